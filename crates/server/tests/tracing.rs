//! Spans and events of a server, as the subscriber of its author sees them. A program has one subscriber, so this is a
//! program of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use stayput_testkit::LogLines;
use support::{TestServer, builder, wait_until};
use tracing_subscriber::filter::LevelFilter;

/// Returns the events of this crate with this message.
fn events(lines: &LogLines, message: &str) -> Vec<Value> {
    let text = lines.text();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|it| {
        it["message"] == message && it["target"].as_str().unwrap().starts_with("stayput")
    })
    .collect()
}

/// R055: `initialize` emits the session id. R028: the spans `session` and `call` of a tool call name session and tool;
/// neither arguments nor handles nor `Mcp-Session-Id` are among them.
#[tokio::test]
async fn tool_call_emits_its_spans_without_secrets() {
    let lines = LogLines::default();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(LevelFilter::DEBUG)
        .with_writer(lines.clone())
        .init();
    let server = TestServer::start(builder().in_memory()).await;
    let mut client = server.legacy().await;
    client.call("count", json!({ "by": 2 })).await;
    client.call("count", json!({ "by": "s3cr3t-of-argument" })).await;
    wait_until("answer", async || !events(&lines, "answered").is_empty()).await;

    let id = events(&lines, "initialize")[0]["session"].clone();
    assert_eq!(id.as_str().unwrap().len(), 36, "{id}");
    let answered = &events(&lines, "answered")[0];
    let spans = answered["spans"].as_array().unwrap();
    assert_eq!(spans[0], json!({ "name": "session", "id": id }), "{answered}");
    assert_eq!(spans[1], json!({ "name": "call", "tool": "count" }), "{answered}");
    let ours =
        lines.text().lines().filter(|it| it.contains(r#""target":"stayput"#)).collect::<String>();
    assert!(!ours.contains("s3cr3t") && !ours.contains("sp_"), "{ours}");
}
