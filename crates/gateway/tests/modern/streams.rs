//! SSE streams of calls, and cancellation by closing them.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;

use crate::{
    kit::{Modern, modern_stdio, request},
    support::{Gateway, mark, stdio},
};

/// Starts a gateway in front of servers of both eras over both transports.
async fn all(name: &str) -> (Gateway, [TestServer; 2]) {
    let (old, new) = (mark(&format!("{name}-old")), mark(&format!("{name}-new")));
    let servers = [
        TestServer::http(&["--era", "legacy"]).await,
        TestServer::http(&["--era", "modern"]).await,
    ];
    let gateway = Gateway::start(json!({
        "old-stdio": stdio(&old, &[]), "new-stdio": modern_stdio(&new, &[]),
        "old-http": { "url": servers[0].url() }, "new-http": { "url": servers[1].url() },
    }));
    (gateway.await, servers)
}

const NAMES: [&str; 4] = ["old-stdio", "new-stdio", "old-http", "new-http"];

fn slow(ms: u64, meta: &Value) -> Value {
    json!({ "name": "slow", "arguments": { "ms": ms, "steps": 3 }, "_meta": meta })
}

/// A call with a progress token gets progress on a stream that cannot be resumed. A call without one gets JSON.
#[tokio::test]
async fn progress_is_sent_on_the_stream_of_its_call() {
    let (gateway, _servers) = all("progress").await;
    for name in NAMES {
        let client = Modern::of(&gateway, name).named("a");
        let answer = client.ask("tools/call", slow(90, &json!({ "progressToken": "p/1" }))).await;
        assert_eq!(answer.header("content-type"), "text/event-stream", "{name}");
        assert_eq!(answer.header("x-accel-buffering"), "no");
        assert_eq!(answer.header("mcp-session-id"), "");
        let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
        let fields = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!((fields("id:"), fields("retry:"), fields("event:")), (0, 0, 0), "{text}");
        let messages: Vec<Value> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let (last, progress) = messages.split_last().unwrap();
        assert_eq!(last["id"], "q/1");
        assert_eq!(last["result"]["resultType"], "complete", "{last}");
        assert!(progress.len() >= 3, "{text}");
        assert!(progress.iter().all(|told| told["params"]["progressToken"] == "p/1"), "{text}");
        let answer = client.ask("tools/call", slow(30, &json!({}))).await;
        assert_eq!(answer.header("content-type"), "application/json", "{name}");
        assert_eq!(answer.json().await["result"]["content"][0]["text"], "done");
    }
}

/// Log messages are sent only to a call that asks for them.
#[tokio::test]
async fn log_messages_are_sent_only_on_request() {
    let (gateway, _servers) = all("logs").await;
    for name in NAMES {
        let client = Modern::of(&gateway, name).named("a");
        for (level, heard) in [(Some("info"), 2), (Some("error"), 0), (None, 0)] {
            let meta = level.map(|level| json!({ "io.modelcontextprotocol/logLevel": level }));
            let params = json!({ "name": "log", "arguments": { "n": 2 },
                "_meta": meta.unwrap_or(json!({})) });
            let answer = client.ask("tools/call", params).await;
            let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
            assert_eq!(text.matches("notifications/message").count(), heard, "{name} {level:?}");
        }
    }
}

/// Closing the stream of a call cancels the call once, on both transports and in both eras.
#[tokio::test]
async fn closing_a_stream_cancels_its_call() {
    let (gateway, _servers) = all("close").await;
    for name in NAMES {
        let client = Modern::of(&gateway, name).named("a");
        let params = slow(600_000, &json!({ "progressToken": 1 }));
        let mut events = client.ask("tools/call", params).await.events();
        assert_eq!(events.message().await.unwrap()["params"]["progress"], 0);
        drop(events);
        client.until("/cancels", 1).await;
        assert_eq!(client.text("count").await, "1", "{name} goes on");
        let stats: Value = serde_json::from_str(&client.text("stats").await).unwrap();
        assert_eq!(stats["cancels"], 1, "{name}");
    }
}

/// A disconnect before the first byte of the answer cancels the call, too.
#[tokio::test]
async fn disconnect_before_the_answer_cancels_the_call() {
    let (gateway, _servers) = all("away").await;
    for name in NAMES {
        let client = Modern::of(&gateway, name).named("a");
        let waiting = Modern::of(&gateway, name).named("a");
        let body = request(&json!(1), "tools/call", slow(600_000, &json!({})));
        let asking =
            tokio::runtime::Handle::current().spawn(async move { waiting.send(&body).await });
        client.until("/tools/slow", 1).await;
        assert!(!asking.is_finished());
        asking.abort();
        client.until("/cancels", 1).await;
        assert_eq!(client.text("count").await, "1", "{name} goes on");
    }
}

/// Proxies close silent connections, so a long call becomes a stream with keep-alive comments.
#[tokio::test]
async fn long_silent_call_becomes_a_stream() {
    let mark = mark("silence");
    let gateway = Gateway::start(json!({ "test": modern_stdio(&mark, &[]) })).await;
    let client = Modern::of(&gateway, "test");
    let answer = client.ask("tools/call", slow(16_500, &json!({}))).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert_eq!(answer.message().await["result"]["content"][0]["text"], "done");
}
