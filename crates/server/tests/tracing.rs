//! Spans and events of a server, as the subscriber of its author sees them. A program has one subscriber, so this is a
//! program of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use support::{TestServer, builder, wait_until};
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

/// Lines that the subscriber wrote.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the events of this crate with this message.
    fn events(&self, message: &str) -> Vec<Value> {
        let text = self.text();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|it| {
            it["message"] == message && it["target"].as_str().unwrap().starts_with("stayput")
        })
        .collect()
    }
}

/// R055: `initialize` emits the session id. R028: the spans `session` and `call` of a tool call name session and tool;
/// neither arguments nor handles nor `Mcp-Session-Id` are among them.
#[tokio::test]
async fn tool_call_emits_its_spans_without_secrets() {
    let lines = Lines::default();
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
    wait_until("answer", async || !lines.events("answered").is_empty()).await;

    let id = lines.events("initialize")[0]["session"].clone();
    assert_eq!(id.as_str().unwrap().len(), 36, "{id}");
    let answered = &lines.events("answered")[0];
    let spans = answered["spans"].as_array().unwrap();
    assert_eq!(spans[0], json!({ "name": "session", "id": id }), "{answered}");
    assert_eq!(spans[1], json!({ "name": "call", "tool": "count" }), "{answered}");
    let ours =
        lines.text().lines().filter(|it| it.contains(r#""target":"stayput"#)).collect::<String>();
    assert!(!ours.contains("s3cr3t") && !ours.contains("sp_"), "{ours}");
}
