//! Lists that change, and lists that were not available at first.

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    kit::Modern,
    support::{Client, Gateway, LONG, mark, stdio},
};

/// Finds a tool in a list.
fn tool<'a>(listed: &'a Value, name: &str) -> Option<&'a Value> {
    let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().find(|tool| tool["name"] == name)
}

fn takes_a_handle(tool: &Value) -> bool {
    tool["inputSchema"]["properties"]["session_id"].is_object()
}

/// Invariant 9: a list that failed at first is shown in the same form later.
#[tokio::test]
async fn list_that_failed_at_first_is_shown_like_any_other() {
    let error = r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32603,"message":"not yet"}}"#;
    let headers = [["content-type", "application/json"]];
    let deed = json!({ "status": { "code": 200, "body": error, "headers": headers } });
    for at in ["test", ""] {
        let server = TestServer::http(&["--era", "legacy"]).await;
        server.script(&json!([{ "on": "tools/list", "nth": 1, "do": deed }])).await;
        let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
        let client = Modern::of(&gateway, at);
        let listed = client.result("tools/list", json!({})).await;
        let name = if at.is_empty() { "test__count" } else { "count" };
        assert!(tool(&listed, name).is_some_and(takes_a_handle), "{at} {listed}");
        assert!(tool(&listed, "session_start").is_some(), "{at} {listed}");
        assert_eq!(listed, client.result("tools/list", json!({})).await);
        let asked = server.stats().await["methods"]["tools/list"].as_u64();
        assert_eq!(asked, Some(1), "what went wrong is not counted, and then once for all");
    }
}

/// A new tool in one session appears in the lists of all conversations, without a new process.
#[tokio::test]
async fn change_in_one_session_changes_the_list_of_all() {
    let mark = mark("grown");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let (unnamed, all) = (Modern::of(&gateway, "test"), Modern::of(&gateway, ""));
    let ann = unnamed.named("ann");
    assert!(tool(&unnamed.result("tools/list", json!({})).await, "extra").is_none());
    ann.call("notify", json!({ "tool": "extra" })).await;
    let listed = unnamed.result("tools/list", json!({})).await;
    assert!(tool(&listed, "extra").is_some_and(takes_a_handle), "{listed}");
    assert_eq!(listed, ann.result("tools/list", json!({})).await);
    let listed = all.result("tools/list", json!({})).await;
    assert!(tool(&listed, "test__extra").is_some_and(takes_a_handle), "{listed}");
    assert_eq!(all.named("ann").text("test__extra").await, "extra");
    // The tool is callable there before any client fetched the list again.
    ann.call("notify", json!({ "tool": "later" })).await;
    assert_eq!(all.named("ann").text("test__later").await, "later");
    assert_eq!(processes::with_token(&mark).len(), 1);
}

/// Calls a tool in a conversation that the host names.
async fn in_chat(gateway: &Gateway, client: &Client, tool: &str, arguments: Value) -> Value {
    let meta = json!({ "vscode.conversationId": "a" });
    let call = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    client.request(gateway, "tools/call", call).await
}

/// R168: a host whose calls name their session gets the list of that session's server. A client with its own link gets
/// the list of that link.
#[tokio::test]
async fn host_that_names_its_sessions_gets_their_lists() {
    let mark = mark("grown-host");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    for at in ["test", ""] {
        let name = |tool: &str| match at {
            "" => format!("test__{tool}"),
            _ => tool.to_owned(),
        };
        let (host, other) = (gateway.client(at).await, gateway.client(at).await);
        let list = async |client: &Client| {
            client.request(&gateway, "tools/list", json!({})).await["result"].take()
        };
        let extra = name("extra");
        assert_eq!(other.text(&gateway, &name("count")).await, "1");
        in_chat(&gateway, &host, &name("notify"), json!({ "tool": "extra" })).await;
        assert!(tool(&list(&host).await, &extra).is_some(), "{at}");
        assert!(tool(&list(&other).await, &extra).is_none(), "{at}: his own server has none");
        assert!(tool(&list(&host).await, &extra).is_some(), "{at}: still");
        let late = gateway.client(at).await;
        assert!(tool(&list(&late).await, &extra).is_some(), "{at}: the latest that is known");
        assert_eq!(processes::with_token(&mark).len(), 2, "{at}: no list starts a process");
        in_chat(&gateway, &host, &name("crash"), json!({})).await;
        assert_eq!(other.delete(&gateway).await, 200);
        crate::support::gone(&mark).await;
        in_chat(&gateway, &host, &name("count"), json!({})).await;
    }
}

/// §4.7: a listening client with a connection gets a loss on its stream, in addition to the answer that reports it.
#[tokio::test]
async fn loss_is_also_sent_to_listeners() {
    let mark = mark("heard-loss");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    for (at, crash, quiet) in
        [("test", "crash", false), ("", "test__crash", false), ("test", "crash", true)]
    {
        let client = gateway.client(at).await;
        let mut events = client.get(&gateway, None).await.events();
        if quiet {
            let level = json!({ "level": "error" });
            client.request(&gateway, "logging/setLevel", level).await;
        }
        let told = client.call(&gateway, crash, json!({})).await;
        assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
        let mut heard = Vec::new();
        for _ in 0..if quiet { 3 } else { 4 } {
            heard.push(tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap());
        }
        for kind in ["tools", "prompts", "resources"] {
            let method = format!("notifications/{kind}/list_changed");
            assert!(heard.iter().any(|it| it["method"] == method), "{at} {heard:?}");
        }
        let warned = heard.iter().find(|it| it["method"] == "notifications/message");
        assert_eq!(warned.is_none(), quiet, "{heard:?}");
        if let Some(warned) = warned {
            assert_eq!(warned["params"]["level"], "warning");
            assert!(warned["params"]["data"].as_str().unwrap().contains("`test` was lost"));
        }
    }
}
