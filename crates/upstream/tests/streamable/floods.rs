//! Floods, and readers that do not read.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{CallError, Incoming};

use crate::support::{
    LONG, call, close, links, open, place,
    remote::{begin, count, end, legacy_at, once, until_counted},
    until,
};

/// Most bytes that wait for one reader.
const LIMIT: usize = 4 << 20;

/// An unread call does not block others, and buffers no more than its share.
#[tokio::test]
async fn unread_call_blocks_no_other() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let flood = json!({ "flood": { "count": 4_000, "bytes": 4_096 } });
    http.script(&once("tools/call", &flood)).await;
    let mut unread = begin(&link, "count", "{}").await;
    until_counted(&http, "tools/count", 1).await;
    let others = (0..20).map(|_| call(&link, "echo", r#"{"n":1}"#));
    assert!(join_all(others).await.iter().all(|said| said == r#"{"n":1}"#));
    until("the flood is over", || link.in_flight() == 0).await;
    let (mut bytes, mut answered) = (0, false);
    while let Some(incoming) = tokio::time::timeout(LONG, unread.next()).await.unwrap() {
        match incoming {
            Incoming::Notification(text) => bytes += text.len(),
            Incoming::Answer(answer) => answered = answer.is_ok(),
            other => panic!("{other:?}"),
        }
    }
    assert!(answered && bytes <= LIMIT && bytes > LIMIT / 2, "{bytes}");
    assert!(unread.missed_logs() > 2_000);
    close(&links).await;
}

/// A slow answer does not slow down other calls.
#[tokio::test]
async fn slow_answer_blocks_no_other() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&once("tools/call", &json!({ "slow": { "bytes": 1, "ms": 10 } }))).await;
    let slow = begin(&link, "echo", &format!(r#"{{"s":"{}"}}"#, "x".repeat(100))).await;
    until_counted(&http, "tools/echo", 1).await;
    for n in 1..=20 {
        assert_eq!(count(&link).await, n);
    }
    assert_eq!(link.in_flight(), 1, "the slow one was faster");
    assert!(end(slow).await.is_ok());
    close(&links).await;
}

/// Many calls that are dropped midway leave nothing behind.
#[tokio::test]
async fn dropped_calls_leave_nothing() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    count(&link).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let slow = r#"{"ms":3600000}"#;
    let calls = join_all((0..30).map(|_| begin(&link, "slow", slow))).await;
    until_counted(&http, "tools/slow", 30).await;
    drop(calls);
    assert_eq!(link.in_flight(), 0);
    until_counted(&http, "cancels", 30).await;
    // One task for each pooled connection.
    until("the tasks are gone", || tasks() < 60).await;
    assert_eq!(count(&link).await, 2);
    close(&links).await;
}

/// E22: the timeout also holds after the server has begun to answer.
#[tokio::test]
async fn server_that_stops_within_its_answer_times_out() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for deed in ["hang", "hang-after-head"] {
        http.script(&once("tools/call", &json!(deed))).await;
        let limit = Some(Duration::from_millis(200));
        let options = stayput_upstream::CallOptions { limit, ..Default::default() };
        let params = crate::support::params("count", "{}");
        let call = link.call("tools/call", Some(&params), options).await.unwrap();
        let failed = end(call).await.unwrap_err();
        assert!(matches!(failed, CallError::TimedOut { .. }), "{deed}: {failed:?}");
    }
    assert_eq!(count(&link).await, 1);
    close(&links).await;
}
