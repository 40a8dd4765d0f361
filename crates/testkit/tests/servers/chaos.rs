//! Faults that a script forces.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use tokio::time::timeout;

use super::kit::{Client, call, initialize, post, soon, text, try_post};

/// A server with one session, after which this goes wrong.
async fn with_rule(rule: &Value) -> (TestServer, Client) {
    let server = TestServer::http(&[]).await;
    let client = Client::open(&server, &json!({})).await;
    server.script(&json!([rule])).await;
    (server, client)
}

fn count(id: u64) -> Value {
    call(id, "count", &json!({}))
}

#[tokio::test]
async fn a_status_is_answered_once_and_nothing_is_run() {
    for code in [400, 401, 404, 410, 500, 503] {
        let status = json!({ "code": code, "body": "{\"id\":$id}", "headers": [["x-a", "b"]] });
        let rule = json!({ "on": "tools/call", "nth": 2, "do": { "status": status } });
        let (server, client) = with_rule(&rule).await;
        assert_eq!(text(&client.call(1, "count", &json!({})).await), "1");
        let refused = client.post(&count(2)).await;
        assert_eq!((refused.status.as_u16(), refused.header("x-a")), (code, "b"));
        assert_eq!(refused.json().await, json!({ "id": 2 }));
        assert_eq!(text(&client.call(3, "count", &json!({})).await), "2");
        assert_eq!(server.counted("tools/count").await, 2);
    }
}

#[tokio::test]
async fn a_rule_can_be_about_a_tool_an_http_method_or_everything() {
    let teapot = json!({ "status": { "code": 418 } });
    let (_server, client) =
        with_rule(&json!({ "on": "tools/call", "tool": "pid", "do": teapot })).await;
    assert_eq!(client.post(&count(1)).await.status, 200);
    assert_eq!(client.post(&call(2, "pid", &json!({}))).await.status, 418);
    let (_server, client) = with_rule(&json!({ "on": "GET", "do": teapot })).await;
    assert_eq!(client.post(&count(1)).await.status, 200);
    assert_eq!(client.get(&[]).await.status, 418);
    let (_server, client) = with_rule(&json!({ "on": "*", "do": teapot })).await;
    assert_eq!(client.delete().await.status, 418);
}

#[tokio::test]
async fn a_connection_is_cut_before_or_after_the_call_ran() {
    for run in [false, true] {
        let rule = json!({ "on": "tools/call", "nth": 1, "run": run, "do": "cut" });
        let (server, client) = with_rule(&rule).await;
        assert!(try_post(&client.url, &client.headers(), &count(1)).await.is_err());
        assert_eq!(server.counted("tools/count").await, u64::from(run));
        let rule = json!({ "on": "tools/call", "nth": 1, "run": run, "do": "cut-mid-stream" });
        server.script(&json!([rule])).await;
        let broken = soon(client.post(&count(2)).await.bytes()).await;
        assert!(broken.is_err(), "{broken:?}");
        assert_eq!(server.counted("tools/count").await, 2 * u64::from(run));
    }
}

#[tokio::test]
async fn a_stream_that_was_cut_after_the_call_ran_can_be_resumed() {
    let rule = json!({ "on": "tools/call", "run": true, "do": "cut-mid-stream" });
    let (_server, client) = with_rule(&rule).await;
    let mut events = client.post(&count(1)).await.events();
    while soon(events.next()).await.is_some() {}
    let last = events.last_id().unwrap().to_owned();
    let answer = client.get(&[("last-event-id", &last)]).await;
    assert_eq!(text(&soon(answer.message()).await), "1");
}

#[tokio::test]
async fn a_server_hangs_before_or_after_the_head() {
    let a_moment = Duration::from_millis(100);
    let (_server, client) = with_rule(&json!({ "on": "tools/call", "do": "hang" })).await;
    assert!(timeout(a_moment, client.post(&count(1))).await.is_err());
    let (_server, client) =
        with_rule(&json!({ "on": "tools/call", "do": "hang-after-head" })).await;
    let mut events = client.post(&count(1)).await.events();
    assert!(timeout(a_moment, events.next()).await.is_err());
    let (_server, client) = with_rule(&json!({ "on": "tools/call", "do": { "delay": 20 } })).await;
    assert_eq!(text(&client.call(1, "count", &json!({})).await), "1");
}

/// E08: the process and its port stay, what it knew is gone.
#[tokio::test]
async fn a_restart_forgets_every_session() {
    let (server, client) =
        with_rule(&json!({ "on": "tools/call", "nth": 2, "do": "restart" })).await;
    assert_eq!(text(&client.call(1, "count", &json!({})).await), "1");
    let mut open = client.get(&[]).await.events();
    assert_eq!(client.post(&count(2)).await.status, 404);
    while soon(open.next()).await.is_some() {}
    assert_eq!(server.counted("sessions").await, 0);
    assert_eq!(server.counted("tools/count").await, 1);
}

/// E14: a session id that comes with anything but `initialize` is nobody's.
#[tokio::test]
async fn a_foreign_session_id_is_echoed() {
    let rule = json!({ "on": "tools/call", "do": { "session": "foreign" } });
    let (_server, client) = with_rule(&rule).await;
    let answer = client.post(&count(1)).await;
    assert_eq!(answer.header("mcp-session-id"), "foreign");
    assert_eq!(text(&soon(answer.message()).await), "1");
}

/// E07: a server that was already initialized says no.
#[tokio::test]
async fn a_second_initialize_is_refused() {
    let server =
        TestServer::http(&["--script", r#"[{"on":"initialize","nth":2,"do":"refuse"}]"#]).await;
    Client::open(&server, &json!({})).await;
    let refused = post(server.url(), &[], &initialize(&json!({}))).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32600);
}

#[tokio::test]
async fn an_answer_comes_after_a_flood_or_twice_or_to_somebody_else() {
    let flood = json!({ "on": "tools/call", "do": { "flood": { "count": 50, "bytes": 1000 } } });
    let (server, client) = with_rule(&flood).await;
    let mut events = client.post(&count(1)).await.events();
    for _ in 0..50 {
        let noise = soon(events.message()).await.unwrap();
        assert_eq!(noise["params"]["data"].as_str().unwrap().len(), 1000);
    }
    assert_eq!(text(&soon(events.message()).await.unwrap()), "1");

    server.script(&json!([{ "on": "tools/call", "do": "twice" }])).await;
    let mut events = client.post(&count(2)).await.events();
    let (one, two) = (soon(events.message()).await, soon(events.message()).await);
    assert!(one.is_some() && one == two);

    server.script(&json!([{ "on": "tools/call", "do": { "foreign-id": "who" } }])).await;
    assert_eq!(client.call(3, "count", &json!({})).await["id"], "who");
}

#[tokio::test]
async fn a_stream_is_closed_with_advice_when_to_come_back() {
    let rule = json!({ "on": "tools/call", "do": { "close": { "retry": 1 } } });
    let (_server, client) = with_rule(&rule).await;
    let mut events = client.post(&call(1, "slow", &json!({ "ms": 50 }))).await.events();
    assert_eq!(soon(events.next()).await.unwrap().retry(), Some(Duration::from_millis(1)));
    assert!(soon(events.next()).await.is_none());
    let last = events.last_id().unwrap().to_owned();
    let rest = client.get(&[("last-event-id", &last)]).await;
    assert_eq!(text(&soon(rest.message()).await), "done");
}

#[tokio::test]
async fn an_answer_is_slow_misnamed_elsewhere_or_not_json() {
    let (server, client) =
        with_rule(&json!({ "on": "tools/call", "do": { "slow": { "bytes": 50, "ms": 1 } } })).await;
    assert_eq!(text(&client.call(1, "count", &json!({})).await), "1");
    let set = async |deed: Value| server.script(&json!([{ "on": "*", "do": deed }])).await;
    set(json!({ "content-type": "text/html" })).await;
    assert_eq!(client.post(&count(2)).await.header("content-type"), "text/html");
    set(json!({ "redirect": { "to": "http://127.0.0.1:1/other" } })).await;
    let moved = client.post(&count(3)).await;
    assert_eq!(
        (moved.status.as_u16(), moved.header("location")),
        (307, "http://127.0.0.1:1/other")
    );
    set(json!("invalid-json")).await;
    let bytes = client.post(&count(4)).await.bytes().await.unwrap();
    assert!(serde_json::from_slice::<Value>(&bytes).is_err());
    server.script(&json!([])).await;
    assert_eq!(text(&client.call(5, "count", &json!({})).await), "3");
}

#[tokio::test]
async fn a_frozen_server_answers_when_it_wakes() {
    let (server, client) = with_rule(&json!({ "on": "none", "do": "pass" })).await;
    server.freeze();
    let mut asked = tokio::runtime::Handle::current()
        .spawn(async move { client.call(1, "count", &json!({})).await });
    assert!(timeout(Duration::from_millis(100), &mut asked).await.is_err());
    server.wake();
    assert_eq!(text(&soon(asked).await.unwrap()), "1");
}
