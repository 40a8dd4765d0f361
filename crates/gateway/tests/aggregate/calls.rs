//! Calls, and the notifications and requests of servers during calls.

use serde_json::json;
use stayput_testkit::{mcp::TestServer, peers, processes};

use crate::{
    ALL, called, notes,
    support::{Gateway, gone, mark, stdio},
    tools,
};

/// R018, R099, E34: a client has one session with a separate state on each server. Another client has other states.
#[tokio::test]
async fn client_has_a_separate_state_on_each_server() {
    let mark = mark("all");
    let servers = json!({ "one": stdio(&mark, &[]), "notes": notes(), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let (ann, bob) = (gateway.client(ALL).await, gateway.client(ALL).await);
    assert_eq!(ann.greeting["result"]["serverInfo"]["name"], "stayput");
    for n in 1..=3 {
        assert_eq!(ann.text(&gateway, "one__count").await, n.to_string());
    }
    assert_eq!(ann.text(&gateway, "two__count").await, "1");
    assert_eq!(ann.text(&gateway, "notes__count").await, "1");
    assert_eq!(bob.text(&gateway, "one__count").await, "1");
    assert_eq!(processes::with_token(&mark).len(), 3);
    assert_eq!(bob.delete(&gateway).await, 200);
    assert_eq!(ann.delete(&gateway).await, 200);
    gone(&mark).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(ann.send(&gateway, ping).await.status, 404);
}

/// R031: lists are answered from the cache, without a process for the session.
#[tokio::test]
async fn child_starts_with_the_first_call_to_its_server() {
    let mark = mark("all-lazy");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let listed = client.request(&gateway, method, json!({})).await;
        assert!(listed["result"].is_object(), "{listed}");
    }
    for unknown in ["one__nothing", "three__count", "count"] {
        client.call(&gateway, unknown, json!({})).await;
    }
    let level = json!({ "level": "error" });
    let set = client.request(&gateway, "logging/setLevel", level).await;
    assert_eq!(set["result"], json!({}));
    assert_eq!(processes::with_token(&mark).len(), 0);
    assert_eq!(client.text(&gateway, "two__count").await, "1");
    assert_eq!(processes::with_token(&mark).len(), 1);
}

/// A prefixed name is routed to its server, whatever characters it has. The error for an unknown name explains the
/// form of names.
#[tokio::test]
async fn prefixed_name_is_routed_to_its_server() {
    let mark = mark("all-names");
    let long = "long_".repeat(20);
    let servers = json!({
        "a": stdio(&mark, &["--tool", "b__count", "--tool", "_x"]),
        "a.b": stdio(&mark, &["--tool", &long]),
        "a__b": stdio(&mark, &[]),
    });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    assert_eq!(client.text(&gateway, "a__b__count").await, "b__count");
    assert_eq!(client.text(&gateway, "a___x").await, "_x");
    assert_eq!(client.text(&gateway, "a__count").await, "1");
    assert_eq!(client.text(&gateway, "a_b__count").await, "1");
    assert_eq!(client.text(&gateway, "a_b_2__count").await, "1");
    let listed = tools(&client, &gateway).await;
    let cut = listed.iter().find(|name| name.starts_with("a_b__long_")).unwrap();
    assert_eq!(cut.len(), 64);
    assert_eq!(client.text(&gateway, cut).await, long);
    for unknown in ["count", "b__count", "A__count", "__count", "", "a_b"] {
        let refused = client.call(&gateway, unknown, json!({})).await;
        assert_eq!(refused["error"]["code"], -32602, "{unknown}: {refused}");
        let words = refused["error"]["message"].as_str().unwrap();
        assert!(words.contains("SERVER__TOOL") && words.contains("a, a_b, a_b_2"), "{words}");
    }
    let refused = client.request(&gateway, "tools/call", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

/// Invariant 10: the gateway changes only the name.
#[tokio::test]
async fn arguments_and_results_are_passed_on_unchanged() {
    let mark = mark("all-bytes");
    let gateway = Gateway::start(json!({ "one": stdio(&mark, &[]) })).await;
    let client = gateway.client(ALL).await;
    let said = r#"{"jsonrpc":"2.0", "id":"a\/1","method":"tools/call","params":{"name":"one__ec\u0068o","arguments":{ "n":1.10,"name":"one__x" }}}"#;
    let answer = client.send(&gateway, said).await.bytes().await.unwrap();
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    assert!(answer.contains(r#""id":"a\/1""#), "{answer}");
    assert!(answer.contains(r#"{ \"n\":1.10,\"name\":\"one__x\" }"#), "{answer}");
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__echo","name":"one__crash"}}"#;
    let refused = client.send(&gateway, twice).await.message().await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn prompts_and_completions_are_routed_to_their_server() {
    let mark = mark("all-prompts");
    let servers = json!({ "one": stdio(&mark, &[]), "notes": notes(), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    let listed = client.request(&gateway, "prompts/list", json!({})).await;
    assert_eq!(called(&listed, "prompts", "name"), ["one__greet", "two__greet"]);
    let get = json!({ "name": "two__greet", "arguments": { "name": "Ann" } });
    let got = client.request(&gateway, "prompts/get", get).await;
    assert!(got["result"]["messages"].to_string().contains("hello to Ann"), "{got}");
    assert_eq!(processes::with_token(&mark).len(), 1);
    for unknown in ["greet", "two__other", "notes__greet"] {
        let get = json!({ "name": unknown });
        let refused = client.request(&gateway, "prompts/get", get).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    for reference in [
        json!({ "type": "ref/prompt", "name": "one__greet" }),
        json!({ "type": "ref/resource", "uri": "test://count" }),
    ] {
        let ask = json!({ "ref": reference, "argument": { "name": "name", "value": "An" } });
        let completed = client.request(&gateway, "completion/complete", ask).await;
        assert_eq!(completed["result"]["completion"]["values"], json!(["An…"]), "{completed}");
    }
    let bad = json!({ "ref": { "type": "ref/other" }, "argument": { "name": "n", "value": "" } });
    let refused = client.request(&gateway, "completion/complete", bad).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let unknown = client.request(&gateway, "tasks/list", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
}

/// Two servers send a request at the same time under the same id. Each gets its own answer.
#[tokio::test]
async fn requests_of_several_servers_get_their_own_answers() {
    let mark = mark("all-asks");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client_with(ALL, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut streams = Vec::new();
    for (id, tool) in ["one__elicit", "two__elicit"].into_iter().enumerate() {
        let ask = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": tool, "arguments": { "message": tool } } });
        let mut events = client.send(&gateway, &ask.to_string()).await.events();
        let question = events.message().await.unwrap();
        assert_eq!(question["params"]["message"], tool, "{question}");
        streams.push((tool, question["id"].clone(), events));
    }
    assert_ne!(streams[0].1, streams[1].1);
    for (tool, id, _) in streams.iter().rev() {
        let answer = json!({ "jsonrpc": "2.0", "id": id,
            "result": { "action": "accept", "content": { "name": format!("for {tool}") } } });
        assert_eq!(client.send(&gateway, &answer.to_string()).await.status, 202);
    }
    for (tool, _, mut events) in streams {
        let done = events.message().await.unwrap();
        assert!(done["result"].to_string().contains(&format!("for {tool}")), "{done}");
    }
}

/// The log level applies to existing links and to later ones.
#[tokio::test]
async fn log_level_applies_to_all_servers() {
    let mark = mark("all-level");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    let lines = async |tool: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": { "n": 3 } } });
        let answer = client.send(&gateway, &call.to_string()).await;
        if answer.header("content-type").starts_with("application/json") {
            return 0;
        }
        let (mut events, mut lines) = (answer.events(), 0);
        while let Some(message) = events.message().await {
            lines += usize::from(message["method"] == "notifications/message");
        }
        lines
    };
    assert_eq!(lines("one__log").await, 3);
    let set = async |level: &str| {
        client.request(&gateway, "logging/setLevel", json!({ "level": level })).await
    };
    assert_eq!(set("error").await["result"], json!({}));
    assert_eq!(lines("one__log").await, 0, "the link that was there");
    assert_eq!(lines("two__log").await, 0, "the link that came");
    assert_eq!(set("debug").await["result"], json!({}));
    assert_eq!((lines("one__log").await, lines("two__log").await), (3, 3));
    assert_eq!(set("loud").await["error"]["code"], -32602);
}

/// Messages of every server outside of calls arrive on the one stream of the client.
#[tokio::test]
async fn listening_client_gets_messages_of_all_servers() {
    let mark = mark("all-hears");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    assert_eq!(client.text(&gateway, "one__count").await, "1");
    // One link exists when the client begins to listen, the other is opened later.
    let mut events = client.get(&gateway, None).await.events();
    let watched = json!({ "uri": "test://count" });
    let subscribed = client.request(&gateway, "resources/subscribe", watched).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    assert_eq!(client.text(&gateway, "two__count").await, "1");
    for (tool, updates) in [("one__notify", 1), ("two__notify", 0), ("one__notify", 1)] {
        client.call(&gateway, tool, json!({})).await;
        for _ in 0..=updates {
            let heard = tokio::time::timeout(crate::support::LONG, events.message()).await;
            let heard = heard.unwrap_or_else(|_| panic!("nothing was heard of {tool}")).unwrap();
            let method = heard["method"].as_str().unwrap();
            assert!(method.ends_with("/list_changed") || method.ends_with("/updated"), "{heard}");
        }
    }
}

/// A modern server, whose link is shared, is listed and called like any other. Its notifications also reach clients
/// that did not open the link.
#[tokio::test]
async fn modern_server_is_listed_called_and_listened_to() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let gateway = Gateway::start(json!({ "a": notes(), "m": { "url": server.url() } })).await;
    let (ann, bob) = (gateway.client(ALL).await, gateway.client(ALL).await);
    assert!(tools(&bob, &gateway).await.contains(&"m__count".to_owned()));
    let mut events = bob.get(&gateway, None).await.events();
    assert!(!ann.text(&gateway, "m__count").await.is_empty());
    assert!(!bob.text(&gateway, "m__count").await.is_empty());
    let heard = async {
        loop {
            let said = events.message().await.unwrap();
            if said["method"] == "notifications/tools/list_changed" {
                return;
            }
        }
    };
    // The server registers its listeners asynchronously.
    let notify = async {
        loop {
            ann.call(&gateway, "m__notify", json!({})).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let heard = async {
        tokio::select! { () = heard => {}, () = notify => {} }
    };
    tokio::time::timeout(crate::support::LONG, heard).await.expect("nothing was heard");
}

/// The official Python SDK uses all servers as if they were one, in both eras. In the modern era the path names the
/// session.
#[tokio::test]
async fn python_sdk_uses_all_servers() {
    if peers::are_left_out() {
        return;
    }
    is_used_by_python("", "legacy", "2025-11-25").await;
    is_used_by_python("/~chat", "auto", "2026-07-28").await;
}

async fn is_used_by_python(session: &str, mode: &'static str, version: &str) {
    let mark = mark("all-python");
    let servers = json!({ "one": stdio(&mark, &[]), "notes": notes(), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let url = gateway.at(ALL) + session;
    let run = move || peers::client_python().command().args([&url, mode]).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&seen["server"], &seen["version"]), (&json!("stayput"), &json!(version)));
    assert_eq!(seen["counted"], json!(["1", "2", "1", "1"]), "{seen}");
    assert_eq!(seen["prompts"], json!(["one__greet", "two__greet"]));
    assert_eq!(seen["resources"], json!(["test://count"]));
    assert_eq!((&seen["read"], &seen["greeting"]), (&json!("2"), &json!("Say hello to Ann.")));
    let tools = seen["tools"].to_string();
    assert!(tools.contains("notes__note_add") && tools.contains("two__crash"), "{tools}");
    assert!(seen["instructions"].as_str().unwrap().contains("# notes\n"), "{seen}");
    match session {
        "" => gone(&mark).await,
        // A named session stays open for the next client that knows the name.
        _ => assert_eq!(processes::with_token(&mark).len(), 2),
    }
}
