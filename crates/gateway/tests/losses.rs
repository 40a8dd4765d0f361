//! Losses on shared links, and calls that are sent again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};
use support::{Client, Gateway, LONG, gone, mark, stdio};

async fn count(client: &Client, gateway: &Gateway) -> Value {
    client.call(gateway, "count", json!({})).await["result"].clone()
}

fn is_lost(result: &Value) -> bool {
    result["_meta"]["dev.stayput/state"]["state"] == "lost"
}

fn number(result: &Value) -> &str {
    assert!(result["isError"] != true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

/// Returns the server entry with these options.
fn with(mut server: Value, options: Value) -> Value {
    server["stayput"] = options;
    server
}

async fn kill(mark: &str) {
    for pid in processes::with_token(mark) {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    gone(mark).await;
}

/// Invariant 3: the loss of a shared state is reported once to each session, also across a restart of the gateway. A
/// session that never used it gets no report.
#[tokio::test]
async fn shared_loss_is_reported_once_per_session() {
    for isolation in ["per-owner", "shared"] {
        let mark = mark(&format!("lost-{isolation}"));
        let server = with(stdio(&mark, &[]), json!({ "isolation": isolation }));
        let mut gateway = Gateway::start(json!({ "test": server })).await;
        let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
        assert_eq!(number(&count(&ann, &gateway).await), "1");
        assert_eq!(number(&count(&bob, &gateway).await), "2");
        kill(&mark).await;
        let told = count(&ann, &gateway).await;
        assert!(is_lost(&told) && told["isError"] == true, "{told}");
        assert_eq!(number(&count(&ann, &gateway).await), "1");
        assert_eq!(number(&count(&ann, &gateway).await), "2");
        let told = count(&bob, &gateway).await;
        assert!(is_lost(&told) && told["isError"] == true, "{told}");
        assert_eq!(number(&count(&bob, &gateway).await), "3", "told once");
        let carl = gateway.client("test").await;
        assert_eq!(number(&count(&carl, &gateway).await), "4", "it had lost nothing");
        gateway.kill();
        gone(&mark).await;
        gateway.restart().await;
        for (client, next) in [(&bob, "1"), (&ann, "2"), (&carl, "3")] {
            assert!(is_lost(&count(client, &gateway).await));
            assert_eq!(number(&count(client, &gateway).await), next);
        }
    }
}

/// A call in flight reports the loss to its own session at once. No session gets a second report.
#[tokio::test]
async fn shared_crash_is_reported_once_per_session() {
    let mark = mark("lost-crash");
    let server = with(stdio(&mark, &[]), json!({ "isolation": "shared" }));
    let gateway = Gateway::start(json!({ "test": server })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    assert_eq!(number(&count(&ann, &gateway).await), "1");
    assert_eq!(number(&count(&bob, &gateway).await), "2");
    assert!(is_lost(&ann.call(&gateway, "crash", json!({})).await["result"]));
    assert_eq!(number(&count(&ann, &gateway).await), "1");
    assert!(is_lost(&count(&bob, &gateway).await));
    assert_eq!(number(&count(&bob, &gateway).await), "2");
    assert_eq!(number(&count(&ann, &gateway).await), "3");
}

/// A server without state reports no loss.
#[tokio::test]
async fn stateless_server_loses_nothing() {
    for options in [["--era", "modern"].as_slice(), &["--era", "legacy", "--stateless"]] {
        let mut server = TestServer::http(options).await;
        let shared = json!({ "url": server.url(), "stayput": { "isolation": "shared" } });
        let mut gateway = Gateway::start(json!({ "test": shared })).await;
        let client = gateway.client("test").await;
        assert!(!is_lost(&count(&client, &gateway).await));
        server.restart().await;
        assert!(!is_lost(&count(&client, &gateway).await), "{options:?}");
        gateway.kill();
        gateway.restart().await;
        assert!(!is_lost(&count(&client, &gateway).await), "{options:?}");
    }
}

/// R125, invariant 2: with `on_loss = "restart"` a call that certainly did not run is sent again, and its answer names
/// the loss. A call that may have run is not sent again.
#[tokio::test]
async fn call_that_did_not_run_is_sent_again_if_configured() {
    let mark = mark("again");
    let server = with(stdio(&mark, &[]), json!({ "on_loss": "restart" }));
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    kill(&mark).await;
    let again = count(&client, &gateway).await;
    assert!(is_lost(&again) && number(&again) == "1", "{again}");
    let next = count(&client, &gateway).await;
    assert!(!is_lost(&next) && number(&next) == "2", "{next}");
    // A new session, because a server that fails twice in a row backs off for a moment.
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let crashed = client.call(&gateway, "crash", json!({})).await["result"].clone();
    assert!(is_lost(&crashed) && crashed["isError"] == true, "{crashed}");
    let next = count(&client, &gateway).await;
    assert!(!is_lost(&next) && number(&next) == "1", "{next}");
}

/// A call that the server itself refused is sent again, too. A second refusal is final.
#[tokio::test]
async fn call_that_the_server_refused_is_sent_again_if_configured() {
    let folder = tempfile::TempDir::new().unwrap();
    let log = folder.path().join("log");
    let server = TestServer::http(&["--era", "legacy", "--log", log.to_str().unwrap()]).await;
    let restarts = json!({ "url": server.url(), "stayput": { "on_loss": "restart" } });
    let gateway = Gateway::start(json!({ "test": restarts })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let forgets =
        |nth: u32| json!({ "on": "tools/call", "nth": nth, "do": { "status": { "code": 404 } } });
    server.script(&json!([forgets(1)])).await;
    let again = count(&client, &gateway).await;
    assert!(is_lost(&again) && number(&again) == "1", "{again}");
    assert_eq!(number(&count(&client, &gateway).await), "2");
    // A new session, because a server that fails twice in a row backs off for a moment.
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    server.script(&json!([forgets(1), forgets(2)])).await;
    let told = count(&client, &gateway).await;
    assert!(is_lost(&told) && told["isError"] == true, "{told}");
    let sent = std::fs::read_to_string(&log).unwrap().matches("tools/call").count();
    assert_eq!(sent, 7, "once more, and no more often");
}

/// The stderr of a process before its end goes to the log of the gateway, not to the client.
#[tokio::test]
async fn stderr_tail_is_logged() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("words"), &[]) })).await;
    let client = gateway.client("test").await;
    client.call(&gateway, "stderr", json!({ "text": "the disk is full" })).await;
    let told = client.call(&gateway, "crash", json!({})).await["result"].clone();
    assert!(is_lost(&told) && !told.to_string().contains("disk"), "{told}");
    let start = tokio::time::Instant::now();
    loop {
        let log = gateway.log();
        if let Some(line) = log.lines().find(|line| line.contains("lost its state")) {
            assert!(line.contains("the disk is full"), "{line}");
            return;
        }
        assert!(start.elapsed() < LONG, "{log}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A resumed session sends nothing but the call to its server.
#[tokio::test]
async fn resumed_session_is_not_initialized_again() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let before = server.stats().await;
    gateway.kill();
    gateway.restart().await;
    assert_eq!(number(&count(&client, &gateway).await), "2");
    let after = server.stats().await;
    for what in ["initialize", "discover"] {
        assert_eq!(after[what], before[what], "{what}: {before} and {after}");
    }
}
