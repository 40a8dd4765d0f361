//! Metrics of clients without a connection.

use http::Method;
use serde_json::json;
use stayput_testkit::mcp::send;
use stayput_testkit::until_some;

use super::{
    kit::Modern,
    support::{Gateway, gone, mark, stdio},
};

/// Waits until the metrics page has each of these lines.
async fn until(gateway: &Gateway, lines: &[&str]) {
    let url = format!("{}/metrics", gateway.url);
    let counted = async || {
        let answer = send(Method::GET, &url, &[], "").await.unwrap();
        let page = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
        lines.iter().all(|line| page.lines().any(|other| other == *line)).then_some(())
    };
    until_some(&format!("/metrics has {lines:?}"), counted).await;
}

/// R145: sessions that begin with a key or a tool are counted like those that begin with `initialize`. So are their
/// calls and their ends.
#[tokio::test]
async fn sessions_without_initialize_are_counted() {
    let mark = mark("modern-counted");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let ann = unnamed.named("ann");
    assert_eq!(ann.text("count").await, "1");
    assert_eq!(ann.text("count").await, "2");
    let opened = r#"stayput_sessions_opened_total{server="test"}"#;
    let calls = r#"stayput_call_seconds_count{server="test"}"#;
    until(&gateway, &[&format!("{opened} 1"), &format!("{calls} 2")]).await;
    let started = unnamed.call("session_start", json!({})).await;
    let handle = started["structuredContent"]["session_id"].as_str().unwrap();
    until(&gateway, &[&format!("{opened} 2")]).await;
    unnamed.call("session_end", json!({ "session_id": handle })).await;
    let ended = r#"stayput_sessions_ended_total{reason="closed"} 1"#;
    until(&gateway, &[&format!("{opened} 2"), &format!("{calls} 2"), ended]).await;
    drop(gateway);
    gone(&mark).await;
}
