//! Servers over transports that serve one client, such as stdio.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use std::{process::Stdio, sync::Arc};

use rmcp::ServiceExt as _;
use serde_json::{Value, json};
use stayput_core::{MemoryEventLog, MemoryStore, Store, SystemClock};
use stayput_server::ServerSessions;
use support::{Counter, TEST_TIMEOUT, example, handle_in, result_text, wait_until};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, Lines},
    process::Command,
    time::timeout,
};

/// Client end of a transport.
struct StdioClient<R, W> {
    lines: Lines<BufReader<R>>,
    to: W,
    last: u64,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> StdioClient<R, W> {
    fn new(from: R, to: W) -> Self {
        Self { lines: BufReader::new(from).lines(), to, last: 0 }
    }

    async fn send(&mut self, message: Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let line =
                timeout(TEST_TIMEOUT, self.lines.next_line()).await.expect("an answer in time");
            let response: Value = serde_json::from_str(&line.unwrap().expect("a line")).unwrap();
            if response["id"] == id {
                return response;
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
        self.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }

    async fn call(&mut self, tool: &str, arguments: Value, meta: Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let answer = self.request("tools/call", params).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        result_text(&answer["result"])
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

type Duplex = StdioClient<tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

/// Starts a server with its sessions in `store`. Returns the client.
fn serve(store: &Arc<MemoryStore>, name: Option<&'static str>) -> Duplex {
    let sessions =
        ServerSessions::builder().with_store(store.clone(), Arc::new(MemoryEventLog::new()));
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
    StdioClient::new(from, to)
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// R042, R043, R050–R054: a transport has one session in the given store. It is created by the first call that needs
/// it, replaced by the next `initialize`, and ended with the transport.
#[tokio::test]
async fn session_lives_as_long_as_its_transport() {
    let store = store();
    let live = async || store.list(None, None, 10).await.unwrap().len();
    let mut client = serve(&store, None);
    client.initialize().await;
    assert_eq!(live().await, 0, "no session yet");
    assert_eq!(client.count().await, "1");
    assert_eq!(client.count().await, "2");
    assert_eq!(live().await, 1);
    client.initialize().await;
    assert_eq!(client.count().await, "1");
    assert_eq!(live().await, 1, "the earlier session has ended");
    drop(client);
    wait_until("the session ends with its transport", async || live().await == 0).await;
}

/// R146, R147, R168: chats on one transport have separate sessions, by name, handle or conversation hint.
#[tokio::test]
async fn chats_on_one_transport_are_separated() {
    let store = store();
    let mut client = serve(&store, None);
    client.initialize().await;
    assert_eq!(client.count().await, "1");
    let started = client.call("session_start", json!({}), json!({})).await;
    let handle = handle_in(&started);
    let mine = json!({ "by": 1, "session_id": handle });
    assert_eq!(client.call("count", mine.clone(), json!({})).await, "1");
    assert_eq!(
        client.call("count", json!({ "by": 1 }), json!({ "vscode.conversationId": "a" })).await,
        "1"
    );
    assert_eq!(
        client.call("count", json!({ "by": 1 }), json!({ "dev.stayput/session": "key:b" })).await,
        "1"
    );
    assert_eq!(
        client.call("count", json!({ "by": 1 }), json!({ "vscode.conversationId": "a" })).await,
        "2"
    );
    assert_eq!(client.call("count", mine, json!({})).await, "2");
    assert_eq!(client.count().await, "2");
    assert_eq!(client.call("own", json!({ "session_id": "key:x" }), json!({})).await, "key:x");
    // R154.
    client.call("session_switch", json!({ "session_id": "key:b" }), json!({})).await;
    assert_eq!(client.count().await, "2");
    // R153: the transport identifies its client, so the list is allowed.
    let listed = client.call("session_list", json!({}), json!({})).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

/// R052: the first request creates the session, also without `initialize`.
#[tokio::test]
async fn modern_client_needs_no_initialize() {
    let store = store();
    let mut client = serve(&store, None);
    let found = client.request("server/discover", json!({ "_meta": modern() })).await;
    assert!(found["error"].is_null(), "{found}");
    for total in ["1", "2"] {
        assert_eq!(client.call("count", json!({ "by": 1 }), modern()).await, total);
    }
}

/// R054, R160: a later transport finds a named session again.
#[tokio::test]
async fn named_session_outlives_its_transport() {
    let store = store();
    for total in ["1", "2"] {
        let mut client = serve(&store, Some("chat-1"));
        client.initialize().await;
        assert_eq!(client.count().await, total);
    }
    let mut other = serve(&store, Some("chat-2"));
    other.initialize().await;
    assert_eq!(other.count().await, "1");
}

/// R163, R169: the example works as a process.
#[tokio::test]
async fn cart_example_serves_stdio() {
    let mut command = Command::new(example("cart"));
    command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut client = StdioClient::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    client.initialize().await;
    client.call("add", json!({ "sku": "apple" }), json!({})).await;
    let cart = client.call("add", json!({ "sku": "pear" }), json!({})).await;
    assert_eq!(cart, "2 in the cart: apple, pear");
    drop(client);
    assert!(timeout(TEST_TIMEOUT, child.wait()).await.unwrap().unwrap().success());
}

/// R052, R056, R163: prompt and resource of the notebook read the state of its tools, in both eras.
#[tokio::test]
async fn prompt_and_resource_share_the_session_of_their_transport() {
    for meta in [json!({}), modern()] {
        let mut command = Command::new(example("notebook"));
        command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut client =
            StdioClient::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        if meta.as_object().unwrap().is_empty() {
            client.initialize().await;
        }
        client.call("note", json!({ "text": "milk" }), meta.clone()).await;
        let params = json!({ "name": "summary", "_meta": meta });
        let prompt = client.request("prompts/get", params).await;
        let text = &prompt["result"]["messages"][0]["content"]["text"];
        assert_eq!(text, "Summarise these notes:\nmilk", "{prompt}");
        let params = json!({ "uri": "notes://all", "_meta": meta });
        let resource = client.request("resources/read", params).await;
        assert_eq!(resource["result"]["contents"][0]["text"], "milk", "{resource}");
        // R154: the switch tool is listed in both eras.
        let listed = client.request("tools/list", json!({ "_meta": meta })).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|it| it["name"] == "session_switch"), "{listed}");
    }
}
