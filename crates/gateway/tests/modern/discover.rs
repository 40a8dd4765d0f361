//! `server/discover` and lists, which need no session.

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    kit::{Modern, modern_stdio},
    support::{Gateway, mark, stdio},
};

const LISTS: [&str; 4] =
    ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];

/// Returns the whole body of an answer.
async fn bytes(client: &Modern, method: &str, params: Value) -> String {
    let answer = client.ask(method, params).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/json");
    String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()
}

/// Cell B: the result of the legacy server's `initialize`, without the capabilities that need a bridge between the
/// eras.
#[tokio::test]
async fn legacy_server_is_discovered_from_its_initialize_result() {
    let mark = mark("discover");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let said = Modern::of(&gateway, "test").result("server/discover", json!({})).await;
    assert_eq!(said["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        said["capabilities"],
        json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} })
    );
    assert_eq!(said["instructions"], "A server for tests.");
    assert_eq!(said["resultType"], "complete");
    assert_eq!((&said["ttlMs"], &said["cacheScope"]), (&json!(60_000), &json!("public")));
    assert_eq!(
        said["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stayput-testserver",
        "{said}"
    );
    let asked = processes::with_token(&mark);
    let used = Modern::of(&gateway, "test").named("a").text("pid").await;
    assert_eq!(asked, [used.parse::<u32>().unwrap()], "another process was started");
}

/// Cell E: the answers of a modern server pass byte for byte.
#[tokio::test]
async fn answers_of_a_modern_server_pass_unchanged() {
    let server = TestServer::http(&["--era", "modern", "--page", "7"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let (through, direct) = (Modern::of(&gateway, "test"), Modern::direct(server.url()));
    for method in ["server/discover"].iter().chain(&LISTS) {
        let said = bytes(&through, method, json!({})).await;
        assert_eq!(said, bytes(&direct, method, json!({})).await);
    }
    let asked = server.stats().await["methods"]["tools/list"].as_u64();
    for cursor in ["7", "14"] {
        let said = bytes(&through, "tools/list", json!({ "cursor": cursor })).await;
        assert!(said.contains("\"tools\""), "{said}");
    }
    assert_eq!(server.stats().await["methods"]["tools/list"].as_u64(), asked, "known from before");
    // The server judges a cursor that was never issued.
    let answer = through.ask("tools/list", json!({ "cursor": "nonsense" })).await;
    assert_eq!(answer.json().await["error"]["code"], -32602);
}

/// Invariant 9: no list varies by conversation, and each has a cache lifetime.
#[tokio::test]
async fn lists_of_a_legacy_server_are_the_same_in_every_conversation() {
    let mark = mark("lists");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &["--page", "7"]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let ann = unnamed.named("ann");
    assert_eq!(ann.text("count").await, "1");
    // A change in a session changes no list.
    ann.text("notify").await;
    for method in LISTS {
        let said = bytes(&unnamed, method, json!({})).await;
        assert_eq!(said, bytes(&ann, method, json!({})).await);
        let result = unnamed.result(method, json!({})).await;
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(60_000), &json!("public")));
        assert_eq!(result["resultType"], "complete");
    }
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let page = unnamed.result("tools/list", params).await;
        names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()));
        if page["nextCursor"].is_null() {
            break;
        }
        params = json!({ "cursor": page["nextCursor"] });
    }
    // The session tools are on the first page, once.
    let own: Vec<_> =
        names.extract_if(.., |name| name.as_str().unwrap().starts_with("session_")).collect();
    assert_eq!(own, ["session_start", "session_info", "session_end"]);
    assert_eq!((names.len(), &names[0], &names[20]), (21, &json!("count"), &json!("region")));
    let answer = unnamed.ask("tools/list", json!({ "cursor": "nonsense" })).await;
    assert_eq!(answer.json().await["error"]["code"], -32602);
    assert_eq!(processes::with_token(&mark).len(), 1, "no list starts a process");
}

/// A denied tool is neither listed nor callable for modern clients either.
#[tokio::test]
async fn denied_tools_are_neither_listed_nor_callable() {
    for (name, mut server) in [
        ("denied-old", stdio(&mark("denied-old"), &[])),
        ("denied-new", modern_stdio(&mark("denied-new"), &[])),
    ] {
        server["stayput"] = json!({ "tools": { "deny": ["count"] } });
        let gateway = Gateway::start(json!({ "test": server })).await;
        let client = Modern::of(&gateway, "test").named("a");
        let tools = client.result("tools/list", json!({})).await["tools"].clone();
        let names: Vec<_> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert!(!names.contains(&json!("count")) && names.contains(&json!("echo")), "{name}");
        let (_, code, _) = client.refused("tools/call", json!({ "name": "count" })).await;
        assert_eq!(code, -32602, "{name}");
        client.call("echo", json!({})).await;
    }
}

/// A method that a legacy server does not offer is refused by the gateway, without a request to the server.
#[tokio::test]
async fn method_that_a_legacy_server_lacks_is_unknown() {
    let mark = mark("listen-old");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let (status, code, _) = client.refused("subscriptions/listen", listen).await;
    assert_eq!((status, code), (404, -32601));
    assert_eq!(processes::with_token(&mark).len(), 0);
}

/// A server that cannot be started is reported with an error text on every method.
#[tokio::test]
async fn server_that_does_not_start_is_reported() {
    let gateway = Gateway::start(json!({ "test": { "command": "/nonexistent/program" } })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let (status, code, message) = client.refused("tools/list", json!({})).await;
    assert_eq!((status, code), (200, -32603), "{message}");
    let result = client.call("count", json!({})).await;
    assert_eq!(result["isError"], true);
    assert!(result.to_string().contains("test"), "{result}");
}
