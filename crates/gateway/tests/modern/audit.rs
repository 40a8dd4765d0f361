//! Audit lines of refused calls and of calls of session tools.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};
use stayput_testkit::mcp::Answer;
use stayput_testkit::until_some;
use tokio::task::JoinHandle;

use crate::{
    kit::{Modern, modern_stdio, refusal, request},
    support::{Gateway, LONG, mark, stdio},
};

/// Starts a gateway with an audit.
async fn audited(servers: Value, mut stayput: Value) -> (Gateway, PathBuf) {
    stayput["audit"] = json!({ "to": "audit.jsonl", "arguments": true });
    let gateway = Gateway::with(servers, stayput).await;
    let path = gateway.folder.path().join("audit.jsonl");
    (gateway, path)
}

/// Returns the first line of the audit that matches.
async fn line(path: &PathBuf, is: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let mut all = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            if let Some(found) = all.find(&is) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(LONG, look).await;
    found.unwrap_or_else(|_| panic!("{}", std::fs::read_to_string(path).unwrap_or_default()))
}

/// Starts a call in the background that takes longer than any test. Dropping it cancels the call. A call that is
/// refused because of the limit is repeated.
fn slow(client: &Modern) -> JoinHandle<Answer> {
    let client = client.with("x-slow", "1");
    let call = json!({ "name": "slow", "arguments": { "ms": 600_000 } });
    tokio::runtime::Handle::current().spawn(async move {
        loop {
            let answer = client.ask("tools/call", call.clone()).await;
            if answer.header("content-type") == "text/event-stream" {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Repeats a call until one is refused because of the limit, or until none is.
async fn until_busy(client: &Modern, busy: bool) -> Value {
    let answer = async || {
        let result = client.call("count", json!({})).await;
        ((result["isError"] == true) == busy).then_some(result)
    };
    until_some(&format!("busy is {busy}"), answer).await
}

/// R170: calls without a session have a limit per owner and server. Listeners are counted separately.
#[tokio::test]
async fn calls_without_a_session_have_a_limit() {
    let (one, other) = (mark("crowd"), mark("crowd-other"));
    let servers = json!({ "test": modern_stdio(&one, &[]), "other": modern_stdio(&other, &[]) });
    let limits = json!({ "limits": { "calls_per_session": 2 } });
    let (gateway, audit) = audited(servers, limits).await;
    let client = Modern::of(&gateway, "test");
    assert_eq!(client.text("count").await, "1");
    let under_way = [slow(&client), slow(&client)];
    let refused = until_busy(&client, true).await;
    let sentence = refused["content"][0]["text"].as_str().unwrap();
    assert!(sentence.contains("limits.calls_per_session"), "{sentence}");
    assert!(sentence.contains("Nothing was run") && sentence.contains("try again in 1 s"));
    let denied = line(&audit, |it| it["outcome"] == "denied" && it["tool"] == "count").await;
    assert_eq!(denied["server"], "test");
    assert_eq!((&denied["owner"], &denied["session"]), (&json!("anonymous"), &Value::Null));
    // Other servers and listeners are not affected by the limit.
    assert_eq!(Modern::of(&gateway, "other").text("count").await, "1");
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut streams = Vec::new();
    for id in 0..2 {
        let wanted = request(&json!(id), "subscriptions/listen", listen.clone());
        let mut events = client.send(&wanted).await.events();
        let first = events.message().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        streams.push(events);
    }
    let (_, _, error) = refusal(client.ask("subscriptions/listen", listen).await).await;
    let sentence = error["error"]["message"].as_str().unwrap();
    assert!(sentence.contains("limits.calls_per_session"), "{sentence}");
    // A client that disconnects frees its place.
    under_way.iter().for_each(JoinHandle::abort);
    drop(under_way);
    until_busy(&client, false).await;
}

/// R170: calls of a session have a limit, and a refusal is audited.
#[tokio::test]
async fn refusal_of_a_busy_session_is_audited() {
    let mark = mark("busy-noted");
    let limits = json!({ "limits": { "calls_per_session": 1 } });
    let (gateway, audit) = audited(json!({ "test": stdio(&mark, &[]) }), limits).await;
    let client = Modern::of(&gateway, "test").named("chat");
    assert_eq!(client.text("count").await, "1");
    let under_way = slow(&client);
    until_busy(&client, true).await;
    let denied = line(&audit, |it| it["outcome"] == "denied" && it["tool"] == "count").await;
    assert_eq!(denied["server"], "test");
    assert_eq!(denied["session"].as_str().unwrap().len(), 36, "{denied}");
    under_way.abort();
}

/// Issue 6: a denied call behind `/mcp` is audited under its own name. So are calls of session tools and calls without
/// a session. The audit contains no handle, not even in arguments.
#[tokio::test]
async fn every_call_is_audited() {
    let mark = mark("noted");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "tools": { "deny": ["env"] } });
    let (gateway, audit) = audited(json!({ "test": server }), json!({})).await;
    let all = Modern::of(&gateway, "");
    let legacy = gateway.client("").await;
    let denied = legacy.call(&gateway, "test__env", json!({ "name": "A" })).await;
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    all.refused("tools/call", json!({ "name": "test__env", "arguments": { "name": "B" } })).await;
    for name in ["A", "B"] {
        let line = line(&audit, |line| line["arguments"]["name"] == name).await;
        assert_eq!((&line["server"], &line["tool"]), (&json!("test"), &json!("env")));
        assert_eq!(line["outcome"], "denied");
    }
    for client in [all, Modern::of(&gateway, "test")] {
        let started = client.call("session_start", json!({ "name": client.url })).await;
        let told = &started["structuredContent"];
        let handle = told["session_id"].as_str().unwrap().to_owned();
        let noted = line(&audit, |line| line["session"] == told["session"]).await;
        assert_eq!((&noted["tool"], &noted["server"]), (&json!("session_start"), &Value::Null));
        assert_eq!((&noted["outcome"], &noted["method"]), (&json!("ok"), &json!("tools/call")));
        client.call("session_end", json!({ "session_id": handle })).await;
        let ended =
            |line: &Value| line["tool"] == "session_end" && line["session"] == told["session"];
        assert_eq!(line(&audit, ended).await["outcome"], "ok");
        client.call("session_end", json!({ "session_id": handle })).await;
        let again = |line: &Value| line["tool"] == "session_end" && line["outcome"] == "tool_error";
        let shown = line(&audit, again).await["arguments"]["session_id"].clone();
        assert!(shown.as_str().unwrap().starts_with("Handle(sp_"), "{shown}");
        let text = std::fs::read_to_string(&audit).unwrap();
        assert!(!text.contains(&handle), "{text}");
    }
    let offered = Modern::of(&gateway, "test").call("count", json!({})).await;
    assert_eq!(offered["isError"], true, "{offered}");
    let noted = line(&audit, |line| line["outcome"] == "no_session").await;
    assert_eq!((&noted["server"], &noted["tool"]), (&json!("test"), &json!("count")));
    let page = gateway_metrics(&gateway).await;
    assert!(page.contains("stayput_requests_refused_total{reason=\"denied_tool\"} 2\n"), "{page}");
}

async fn gateway_metrics(gateway: &Gateway) -> String {
    let url = format!("{}/metrics", gateway.url);
    let answer = stayput_testkit::mcp::send(http::Method::GET, &url, &[], "").await.unwrap();
    String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()
}
