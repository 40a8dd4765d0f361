//! All servers behind `/mcp`, for clients of 2026-07-28.

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    kit::{Modern, modern_stdio, request},
    support::{Gateway, gone, mark, stdio},
};

/// Path of all servers.
const ALL: &str = "";

const STATE: &str = "dev.stayput/state";

/// Returns the names of the tools.
async fn tools(client: &Modern) -> Vec<String> {
    let listed = client.result("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// The result merges the capabilities of all servers, without those that need a bridge between the eras.
#[tokio::test]
async fn discover_merges_all_servers() {
    let mark = mark("all-discover");
    let servers = json!({ "old": stdio(&mark, &[]), "new": modern_stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let said = Modern::of(&gateway, ALL).result("server/discover", json!({})).await;
    assert_eq!(said["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        said["capabilities"],
        json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} })
    );
    assert_eq!((&said["ttlMs"], &said["cacheScope"]), (&json!(60_000), &json!("public")));
    assert_eq!(said["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stayput");
    let words = said["instructions"].as_str().unwrap();
    assert!(words.contains("SERVER__NAME") && words.contains("# old\n\nA server for tests."));
}

/// Invariant 9: the list is the same in every conversation. Tools of servers with state take a handle, tools of a
/// shared server do not. The session tools are listed once.
#[tokio::test]
async fn lists_of_all_servers_are_the_same_in_every_conversation() {
    let mark = mark("all-modern-lists");
    let servers = json!({
        "new": modern_stdio(&mark, &[]), "old": stdio(&mark, &["--page", "4"]), "z.z": stdio(&mark, &[]),
    });
    let gateway = Gateway::start(servers).await;
    let unnamed = Modern::of(&gateway, ALL);
    let ann = unnamed.named("ann");
    assert_eq!(ann.text("old__count").await, "1");
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let listed = unnamed.result(method, json!({})).await;
        assert_eq!(listed, ann.result(method, json!({})).await);
        assert_eq!(listed["resultType"], "complete");
        assert!(listed["ttlMs"].is_u64() && listed["cacheScope"] == "public", "{method} {listed}");
    }
    let listed = unnamed.result("tools/list", json!({})).await;
    let takes = |name: &str| {
        let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name);
        tool.unwrap_or_else(|| panic!("{name}"))["inputSchema"]["properties"]["session_id"]
            .is_object()
    };
    assert!(takes("old__count") && takes("old__region") && takes("z_z__count"));
    assert!(!takes("new__count"));
    let own: Vec<_> = tools(&unnamed).await.into_iter().filter(|it| !it.contains("__")).collect();
    assert_eq!(own, ["session_start", "session_info", "session_end"]);
    let refused = unnamed.refused("tools/list", json!({ "cursor": "nonsense" })).await;
    assert_eq!((refused.0, refused.1), (200, -32602));
}

/// A legacy client of all servers sees the tools unchanged.
#[tokio::test]
async fn legacy_clients_of_all_servers_see_no_handles() {
    let mark = mark("all-legacy-lists");
    let gateway = Gateway::start(json!({ "old": stdio(&mark, &[]) })).await;
    let client = gateway.client(ALL).await;
    let listed = client.request(&gateway, "tools/list", json!({})).await.to_string();
    assert!(listed.contains("old__count") && !listed.contains("session_"), "{listed}");
}

/// R146, R168, E39: one session has a link to each server, whichever source names it.
#[tokio::test]
async fn conversation_spans_all_servers_by_every_name_source() {
    let (one, two) = (mark("all-one"), mark("all-two"));
    let gateway = Gateway::start(json!({ "one": stdio(&one, &[]), "two": stdio(&two, &[]) })).await;
    let unnamed = Modern::of(&gateway, ALL);
    // No call runs before its session is known.
    let offered = unnamed.call("one__count", json!({})).await;
    assert_eq!(offered["isError"], true);
    let handle = offered["_meta"]["dev.stayput/session"].as_str().unwrap().to_owned();
    assert!(text(&offered).contains(&handle) && processes::with_token(&one).is_empty());
    for (tool, number) in [("one__count", "1"), ("two__count", "1"), ("one__count", "2")] {
        let result = unnamed.call(tool, json!({ "session_id": handle })).await;
        assert_eq!(text(&result), number, "{tool}");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "stayput-testserver"
        );
        assert!(result["_meta"][STATE]["session"].is_string(), "{result}");
    }
    let by_key = unnamed.named("chat");
    assert_eq!(by_key.text("one__count").await, "1");
    assert_eq!(by_key.call("one__count", json!({})).await["_meta"][STATE]["state"], "kept");
    let by_path = Modern::direct(&format!("{}/~chat", gateway.at(ALL)));
    assert_eq!(by_path.text("one__count").await, "3");
    let by_argument = unnamed.call("one__count", json!({ "session_id": "key:chat" })).await;
    assert_eq!(text(&by_argument), "4");
    let hinted = async |tool: &str| {
        let call = json!({ "name": tool, "_meta": { "vscode.conversationId": "7" } });
        text(&unnamed.result("tools/call", call).await).to_owned()
    };
    assert_eq!(hinted("one__count").await, "1");
    assert_eq!(hinted("two__count").await, "1");
    assert_eq!(hinted("one__count").await, "2");
    assert_eq!(processes::with_token(&one).len(), 3, "a handle, a key, a hint");
    assert_eq!(processes::with_token(&two).len(), 2);
    // Prompts and resources without a session name leave no process.
    let prompt = json!({ "name": "two__greet", "arguments": { "name": "Ann" } });
    let prompt = unnamed.result("prompts/get", prompt).await;
    assert!(prompt.to_string().contains("Say hello to Ann."), "{prompt}");
    let read = by_key.result("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(0), &json!("private")));
}

/// R148, R153: a model starts one session for all servers and ends it.
#[tokio::test]
async fn session_tools_cover_all_servers() {
    let mark = mark("all-tools");
    let servers =
        json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &["--tool", "session_info"]) });
    let gateway = Gateway::start(servers).await;
    let unnamed = Modern::of(&gateway, ALL);
    let started = unnamed.call("session_start", json!({ "name": "task" })).await;
    let handle = started["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    assert!(text(&started).contains("`session_id`"), "{started}");
    for tool in ["one__count", "two__count"] {
        assert_eq!(text(&unnamed.call(tool, json!({ "session_id": handle })).await), "1");
    }
    let info = unnamed.call("session_info", json!({ "session_id": handle })).await;
    assert_eq!(info["structuredContent"]["servers"], json!(["one", "two"]), "{info}");
    // A server's tool of the same name stays callable under its prefix. The session tools have no prefixed name.
    let named = unnamed.named("task");
    assert_eq!(named.text("two__session_info").await, "session_info");
    let (_, code, _) = named.refused("tools/call", json!({ "name": "one__session_info" })).await;
    assert_eq!(code, -32602);
    let ended = unnamed.call("session_end", json!({ "session_id": handle })).await;
    assert_eq!(ended["structuredContent"]["ended"], true, "{ended}");
    gone(&mark).await;
}

/// R029, R137: a broken server is reported as broken, and does not affect the others.
#[tokio::test]
async fn broken_server_is_reported_to_modern_clients() {
    let mark = mark("all-modern-broken");
    let gateway = Gateway::start(json!({
        "good": stdio(&mark, &[]),
        "bad": { "command": "sh", "args": ["-c", "echo hush-hush >&2; exit 3"] },
        "silent": stdio(&mark, &["--silent"]),
    }))
    .await;
    let client = Modern::of(&gateway, ALL).named("a");
    let said = client.result("server/discover", json!({})).await;
    let words = said["instructions"].as_str().unwrap();
    assert!(words.contains("`bad` exited with code 3") && words.contains("`silent` has not"));
    assert!(!words.contains("hush"), "{words}");
    assert!(said["ttlMs"].as_u64().unwrap() < 60_000, "it is worth asking again soon: {said}");
    let names = tools(&client).await;
    assert!(names.iter().any(|it| it == "good__count"), "{names:?}");
    assert!(names.iter().all(|it| it.starts_with("good__") || it.starts_with("session_")));
    assert_eq!(client.text("good__count").await, "1");
    let failed = client.call("bad__x", json!({})).await;
    assert_eq!(failed["isError"], true, "{failed}");
    assert!(text(&failed).contains("exited with code 3") && !text(&failed).contains("hush"));
    assert_eq!(client.text("good__count").await, "2");
}

/// Covers §1.1–1.4 on the path of all servers.
#[tokio::test]
async fn requests_to_all_servers_are_validated() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let mark = mark("all-gate");
    let servers = json!({ "new": { "url": server.url() }, "old": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = Modern::of(&gateway, ALL);
    for (method, params) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({ "level": "info" })),
        ("resources/subscribe", json!({ "uri": "test://count" })),
        ("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } })),
        ("tasks/get", json!({ "taskId": "x" })),
        ("no/such", json!({})),
    ] {
        let mut sent = request(&json!(1), method, params);
        sent["id"] = json!("q/1");
        let (status, code, message) = crate::kit::refusal(
            crate::kit::post(&client.url, &headers(&sent), &sent.to_string()).await,
        )
        .await;
        assert_eq!((status, code), (404, -32601), "{message}");
    }
    for tool in ["old__nothing", "nowhere__count", "count"] {
        let (status, code, _) = client.refused("tools/call", json!({ "name": tool })).await;
        assert_eq!((status, code), (200, -32602), "{tool}");
    }
    let (_, code, message) = client.refused("resources/read", json!({ "uri": "x://no" })).await;
    assert!(code == -32602 || code == -32603, "{message}");
    // The header has the name that the client uses.
    let call = request(&json!("q/1"), "tools/call", json!({ "name": "old__count" }));
    let mut wrong = crate::kit::headers(&call);
    wrong.retain(|(name, _)| name != "mcp-name");
    wrong.push(("mcp-name".to_owned(), "count".to_owned()));
    let answer = crate::kit::post(&client.url, &wrong, &call.to_string()).await;
    let (status, code, _) = crate::kit::refusal(answer).await;
    assert_eq!((status, code), (400, -32020));
    // Arguments that are repeated in headers are compared on this path, too.
    let region = json!({ "name": "new__region", "arguments": { "region": "eu" } });
    let (status, code, _) = client.refused("tools/call", region.clone()).await;
    assert_eq!((status, code), (400, -32020));
    let said = client.with("mcp-param-region", "eu").result("tools/call", region).await;
    assert!(text(&said).contains("eu"), "{said}");
    assert_eq!(processes::with_token(&mark).len(), 0);
}

fn headers(request: &Value) -> Vec<(String, String)> {
    let mut all = crate::kit::headers(request);
    let task = request["params"]["taskId"].as_str();
    all.extend(task.map(|task| ("mcp-name".to_owned(), task.to_owned())));
    all
}

/// Names apply from `initialize` on, on this path as on that of one server.
#[tokio::test]
async fn connection_to_all_servers_can_be_named() {
    let mark = mark("all-named");
    let gateway = Gateway::start(json!({ "one": stdio(&mark, &[]) })).await;
    let modern = Modern::of(&gateway, ALL).named("work");
    assert_eq!(modern.text("one__count").await, "1");
    let named = Modern::direct(&format!("{}/~work", gateway.at(ALL)));
    assert_eq!(named.text("one__count").await, "2");
    let client = gateway.client("~work").await;
    let plain =
        crate::support::Client { server: ALL.into(), id: client.id.clone(), greeting: json!({}) };
    assert_eq!(plain.text(&gateway, "one__count").await, "3");
    assert_eq!(client.delete(&gateway).await, 200);
    assert_eq!(modern.text("one__count").await, "4", "its name outlives the connection");
    assert_eq!(processes::with_token(&mark).len(), 1);
}
