//! A server over a line of its own, such as standard input and output.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use std::{process::Stdio, sync::Arc};

use rmcp::ServiceExt as _;
use serde_json::{Value, json};
use stayput_core::{MemoryEvents, MemoryStore, Store, SystemClock};
use stayput_server::ServerSessions;
use support::{Counter, LONG, example, handle_in, said, until};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, Lines},
    process::Command,
    time::timeout,
};

/// The client's end of a line.
struct Line<R, W> {
    lines: Lines<BufReader<R>>,
    to: W,
    last: u64,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Line<R, W> {
    fn new(from: R, to: W) -> Self {
        Self { lines: BufReader::new(from).lines(), to, last: 0 }
    }

    async fn say(&mut self, message: Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let line = timeout(LONG, self.lines.next_line()).await.expect("an answer in time");
            let said: Value = serde_json::from_str(&line.unwrap().expect("a line")).unwrap();
            if said["id"] == id {
                return said;
            }
        }
    }

    async fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        self.request("initialize", params).await;
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }

    async fn call(&mut self, tool: &str, arguments: Value, meta: Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let answer = self.request("tools/call", params).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        said(&answer["result"])
    }

    async fn count(&mut self) -> String {
        self.call("count", json!({ "by": 1 }), json!({})).await
    }
}

fn modern() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

type Duplex = Line<tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

/// A server on the other end of a line, which keeps its sessions in `store`.
fn serve(store: &Arc<MemoryStore>, name: Option<&'static str>) -> Duplex {
    let sessions =
        ServerSessions::builder().with_store(store.clone(), Arc::new(MemoryEvents::new()));
    let counter = Counter::new(&sessions);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut transport = sessions.wrap_transport(tokio::io::split(theirs));
    if let Some(name) = name {
        transport = transport.with_name(name).unwrap();
    }
    tokio::runtime::Handle::current().spawn(async move {
        let _ = counter.serve(transport).await.unwrap().waiting().await;
    });
    let (from, to) = tokio::io::split(ours);
    Line::new(from, to)
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// R042, R043, R050–R054: one session on a line, in the store that its sessions was given, made by the first call that wants it, replaced by the next handshake, ended with
/// the line.
#[tokio::test]
async fn a_line_has_one_session_as_long_as_it_lasts() {
    let store = store();
    let live = async || store.list(None, None, 10).await.unwrap().len();
    let mut line = serve(&store, None);
    line.initialize().await;
    assert_eq!(live().await, 0, "nothing was kept yet");
    assert_eq!(line.count().await, "1");
    assert_eq!(line.count().await, "2");
    assert_eq!(live().await, 1);
    line.initialize().await;
    assert_eq!(line.count().await, "1");
    assert_eq!(live().await, 1, "the one of before is over");
    drop(line);
    until("the session ends with its line", async || live().await == 0).await;
}

/// R146, R147, R168: several chats on one line have sessions of their own, by name, by handle or by what their host says.
#[tokio::test]
async fn several_chats_on_one_line_are_kept_apart() {
    let store = store();
    let mut line = serve(&store, None);
    line.initialize().await;
    assert_eq!(line.count().await, "1");
    let started = line.call("session_start", json!({}), json!({})).await;
    let handle = handle_in(&started);
    let mine = json!({ "by": 1, "session_id": handle });
    assert_eq!(line.call("count", mine.clone(), json!({})).await, "1");
    assert_eq!(
        line.call("count", json!({ "by": 1 }), json!({ "vscode.conversationId": "a" })).await,
        "1"
    );
    assert_eq!(
        line.call("count", json!({ "by": 1 }), json!({ "dev.stayput/session": "key:b" })).await,
        "1"
    );
    assert_eq!(
        line.call("count", json!({ "by": 1 }), json!({ "vscode.conversationId": "a" })).await,
        "2"
    );
    assert_eq!(line.call("count", mine, json!({})).await, "2");
    assert_eq!(line.count().await, "2");
    assert_eq!(line.call("own", json!({ "session_id": "key:x" }), json!({})).await, "key:x");
    // R154.
    line.call("session_switch", json!({ "session_id": "key:b" }), json!({})).await;
    assert_eq!(line.count().await, "2");
    // R153: on a line of one's own it is certain who asks.
    let listed = line.call("session_list", json!({}), json!({})).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

/// R052: the first request makes it, also without a handshake, as modern clients do.
#[tokio::test]
async fn a_modern_client_has_it_without_a_handshake() {
    let store = store();
    let mut line = serve(&store, None);
    let found = line.request("server/discover", json!({ "_meta": modern() })).await;
    assert!(found["error"].is_null(), "{found}");
    for total in ["1", "2"] {
        assert_eq!(line.call("count", json!({ "by": 1 }), modern()).await, total);
    }
}

/// R054, R160: a line whose session has a name finds it again.
#[tokio::test]
async fn a_session_with_a_name_outlives_its_line() {
    let store = store();
    for total in ["1", "2"] {
        let mut line = serve(&store, Some("chat-1"));
        line.initialize().await;
        assert_eq!(line.count().await, total);
    }
    let mut other = serve(&store, Some("chat-2"));
    other.initialize().await;
    assert_eq!(other.count().await, "1");
}

/// R163, R169: the example as a process.
#[tokio::test]
async fn the_example_speaks_stdio() {
    let mut command = Command::new(example("cart"));
    command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut line = Line::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    line.initialize().await;
    line.call("add", json!({ "sku": "apple" }), json!({})).await;
    let cart = line.call("add", json!({ "sku": "pear" }), json!({})).await;
    assert_eq!(cart, "2 in the cart: apple, pear");
    drop(line);
    assert!(timeout(LONG, child.wait()).await.unwrap().unwrap().success());
}

/// R052, R056, R163: the notebook as a process, in both eras: its prompt and its resource read what its tools wrote.
#[tokio::test]
async fn a_prompt_and_a_resource_have_the_session_of_their_line() {
    for meta in [json!({}), modern()] {
        let mut command = Command::new(example("notebook"));
        command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut line = Line::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        if meta.as_object().unwrap().is_empty() {
            line.initialize().await;
        }
        line.call("note", json!({ "text": "milk" }), meta.clone()).await;
        let params = json!({ "name": "summary", "_meta": meta });
        let prompt = line.request("prompts/get", params).await;
        let text = &prompt["result"]["messages"][0]["content"]["text"];
        assert_eq!(text, "Summarise these notes:\nmilk", "{prompt}");
        let params = json!({ "uri": "notes://all", "_meta": meta });
        let resource = line.request("resources/read", params).await;
        assert_eq!(resource["result"]["contents"][0]["text"], "milk", "{resource}");
        // R154: whoever has a line may switch, in either era.
        let listed = line.request("tools/list", json!({ "_meta": meta })).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|it| it["name"] == "session_switch"), "{listed}");
    }
}
