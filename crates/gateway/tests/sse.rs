//! `/sse/{server}`: clients of the 2024-11-05 transport.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{
    mcp::{Answer, Events, send},
    peers, processes,
};
use support::{Gateway, LONG, gone, mark, stdio};

/// Client with its stream.
struct Caller {
    events: Events,
    /// URL that it posts to.
    url: String,
}

impl Caller {
    /// Opens the stream and reads the URL to post to.
    async fn new(gateway: &Gateway, server: &str) -> Self {
        let url = format!("{}/sse/{server}", gateway.url);
        let answer = send(Method::GET, &url, &[("accept", "text/event-stream")], "").await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-type")),
            (200, "text/event-stream")
        );
        let mut events = answer.events();
        let first = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
        assert_eq!(first.name(), "endpoint");
        let endpoint = String::from_utf8(first.data().to_vec()).unwrap();
        assert!(endpoint.starts_with(&format!("/sse/{server}/messages?session=sp_")), "{endpoint}");
        Self { events, url: format!("{}{endpoint}", gateway.url) }
    }

    /// Opens the stream and sends `initialize`.
    async fn greeted(gateway: &Gateway, server: &str, capabilities: Value) -> Self {
        let mut caller = Self::new(gateway, server).await;
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": capabilities,
            "clientInfo": { "name": "old", "version": "1" } } });
        let greeting = caller.ask(&hello).await;
        assert_eq!(greeting["result"]["protocolVersion"], "2024-11-05", "{greeting}");
        caller.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        caller
    }

    async fn post(&self, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        let sent = send(Method::POST, &self.url, &headers, body.to_owned());
        tokio::time::timeout(LONG, sent).await.unwrap().unwrap()
    }

    async fn say(&self, message: &Value) {
        assert_eq!(self.post(&message.to_string()).await.status, 202, "{message}");
    }

    /// Returns the next message on the stream.
    async fn hear(&mut self) -> Value {
        let event = tokio::time::timeout(LONG, self.events.next()).await.unwrap().unwrap();
        assert_eq!((event.name(), event.id()), ("message", None));
        serde_json::from_slice(event.data()).unwrap()
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(message).await;
        self.hear().await
    }

    async fn count(&mut self) -> String {
        let counted = self.ask(&call(7, "count", &json!({}))).await;
        counted["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{counted}"))
            .to_owned()
    }
}

fn call(id: u32, tool: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": { "progressToken": id } } })
}

/// R049, R103: answers, progress, server requests and changes come on the one stream, and each stream has its own
/// session.
#[tokio::test]
async fn all_messages_come_on_the_one_stream() {
    let mark = mark("sse-all");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut ann = Caller::greeted(&gateway, "test", json!({ "elicitation": {} })).await;
    let mut bob = Caller::greeted(&gateway, "test", json!({})).await;
    assert_eq!((ann.count().await, ann.count().await), ("1".to_owned(), "2".to_owned()));
    assert_eq!(bob.count().await, "1");
    let listed = ann.ask(&json!({ "jsonrpc": "2.0", "id": "l", "method": "tools/list" })).await;
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 5);
    let mut said = ann.ask(&call(1, "slow", &json!({ "ms": 2_500, "steps": 4 }))).await;
    for _ in 0..3 {
        assert_eq!(
            (&said["method"], &said["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!(1))
        );
        said = ann.hear().await;
    }
    while said["id"].is_null() {
        said = ann.hear().await;
    }
    assert_eq!((&said["id"], said["result"].is_object()), (&json!(1), true), "{said}");
    let question = ann.ask(&call(2, "elicit", &json!({}))).await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "answer": "forty-two" } } });
    let done = ann.ask(&answer).await;
    assert!(done["result"].to_string().contains("forty-two"), "{done}");
    ann.say(&call(3, "notify", &json!({}))).await;
    let both = [ann.hear().await, ann.hear().await];
    assert!(
        both.iter().any(|it| it["method"].as_str().is_some_and(|it| it.ends_with("list_changed"))),
        "{both:?}"
    );
    assert_eq!(bob.count().await, "2");
}

/// R054: the stream is the session. When it ends, its process ends, and its URL is unknown.
#[tokio::test]
async fn disconnected_client_leaves_nothing() {
    let mark = mark("sse-gone");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut caller = Caller::greeted(&gateway, "test", json!({})).await;
    assert_eq!(caller.count().await, "1");
    // In flight at the disconnect.
    caller.say(&call(1, "slow", &json!({ "ms": 60_000 }))).await;
    assert_eq!(processes::with_token(&mark).len(), 1);
    let Caller { events, url } = caller;
    drop(events);
    gone(&mark).await;
    let caller = Caller { events: Caller::new(&gateway, "test").await.events, url };
    assert_eq!(caller.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.status, 404);
}

/// A call can be cancelled right after it was sent, because posts are processed in order.
#[tokio::test]
async fn call_can_be_cancelled() {
    let mark = mark("sse-cancel");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &["--startup-ms", "1000"]) })).await;
    let mut caller = Caller::greeted(&gateway, "test", json!({})).await;
    caller.say(&call(1, "count", &json!({}))).await;
    caller.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
    assert_eq!(caller.count().await, "1", "the first one did not run");
}

/// R062, E30: a client error is answered with a status or an error. An unknown session looks like a foreign one.
#[tokio::test]
async fn bad_request_is_answered_with_the_reason() {
    let mark = mark("sse-bad");
    let servers = json!({ "test": stdio(&mark, &[]), "other": stdio(&mark, &[]) });
    let limits = json!({ "limits": { "body": "1MiB" } });
    let gateway = Gateway::with(servers, limits).await;
    let stream = format!("{}/sse/test", gateway.url);
    let events = [("accept", "text/event-stream")];
    let status = |answer: Answer| answer.status.as_u16();
    assert_eq!(status(send(Method::GET, &stream, &[], "").await.unwrap()), 406);
    assert_eq!(status(send(Method::POST, &stream, &events, "{}").await.unwrap()), 405);
    let evil = [events[0], ("origin", "http://evil.example.com")];
    assert_eq!(status(send(Method::GET, &stream, &evil, "").await.unwrap()), 403);
    let nothing = format!("{}/sse/nothing", gateway.url);
    assert_eq!(status(send(Method::GET, &nothing, &events, "").await.unwrap()), 404);
    let mut caller = Caller::new(&gateway, "test").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!(caller.ask(&ping).await["result"], json!({}));
    assert_eq!(
        caller.ask(&call(2, "count", &json!({}))).await["error"]["code"],
        -32600,
        "too early"
    );
    for (part, other) in [("sp_", "sp_a"), ("session=", "session"), ("/sse/test/", "/sse/other/")] {
        let url = caller.url.replace(part, other);
        assert_eq!(
            status(send(Method::POST, &url, &[], ping.to_string()).await.unwrap()),
            404,
            "{url}"
        );
    }
    assert_eq!(
        status(send(Method::POST, &caller.url, &[evil[1]], ping.to_string()).await.unwrap()),
        403
    );
    assert_eq!(status(send(Method::GET, &caller.url, &events, "").await.unwrap()), 405);
    assert_eq!(status(caller.post("{").await), 400);
    assert_eq!(status(caller.post("[]").await), 400);
    assert_eq!(status(caller.post(&"x".repeat(1_100_000)).await), 413);
    assert_eq!(caller.ask(&ping).await["result"], json!({}), "and it still works");
}

/// A link of ours to such a server, which is another gateway: state is kept, and sessions are isolated.
#[tokio::test]
async fn gateway_works_behind_a_gateway() {
    let mark = mark("sse-own");
    let inner = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let url = format!("{}/sse/test", inner.url);
    let outer = Gateway::start(json!({ "test": { "type": "sse", "url": url } })).await;
    let (ann, bob) = (outer.client("test").await, outer.client("test").await);
    assert_eq!(ann.text(&outer, "count").await, "1");
    assert_eq!(ann.text(&outer, "count").await, "2");
    assert_eq!(bob.text(&outer, "count").await, "1");
    assert_eq!(ann.delete(&outer).await, 200);
    assert_eq!(bob.text(&outer, "count").await, "2");
    drop(outer);
    gone(&mark).await;
}

/// Third-party clients: the Python SDK, and the TypeScript SDK of that time.
#[tokio::test]
async fn third_party_clients_count() {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("sse-peers");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let url = format!("{}/sse/test", gateway.url);
    for peer in peers::old_clients() {
        let mut command = tokio::process::Command::from(peer.command());
        let output = command.arg(&url).kill_on_drop(true).output();
        let output = tokio::time::timeout(4 * LONG, output).await.unwrap().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(told["counted"], json!(["1", "2"]), "{told}");
        assert!(told["tools"].as_u64().unwrap() > 5);
        gone(&mark).await;
    }
}

/// Answers for a client that does not read are not collected in memory. Others continue, and its further answers wait
/// at the server.
#[tokio::test]
async fn client_that_does_not_read_affects_no_other() {
    let mark = mark("sse-slow");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut bob = Caller::greeted(&gateway, "test", json!({})).await;
    let slow = Caller::greeted(&gateway, "test", json!({})).await;
    assert_eq!(bob.count().await, "1");
    let before = processes::memory(gateway.pid());
    for n in 1..=60 {
        slow.say(&call(n, "big", &json!({ "bytes": 1 << 20 }))).await;
    }
    for n in 2..=20 {
        assert_eq!(bob.count().await, n.to_string());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let grown = processes::memory(gateway.pid()).saturating_sub(before);
    // Sixty waiting answers are in memory once each: in the link or in front of the stream, not in both.
    assert!(grown < 200 << 20, "{grown}");
    let mut slow = slow;
    for _ in 1..=60 {
        assert!(slow.hear().await["result"].is_object());
    }
}
