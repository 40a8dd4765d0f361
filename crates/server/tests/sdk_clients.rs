//! MCP SDKs of both eras against the examples. The SDKs know nothing about sessions (R166, R167).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::process::Stdio;

use serde_json::{Value, json};
use stayput_testkit::{
    peers::{self, Peer},
    postgres::PostgresUrl,
    redis::RedisUrl,
};
use support::{Example, TEST_TIMEOUT, handle_in, result_text, round_robin};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// A running SDK client with any number of connections. Killed on drop.
struct SdkClient {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl SdkClient {
    fn start(peer: &Peer, args: &[&str]) -> Self {
        let mut command = Command::from(peer.command());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin, lines, _child: child }
    }

    async fn send(&mut self, command: Value) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = timeout(TEST_TIMEOUT, self.lines.next_line()).await.expect("an answer in time");
        let line = line.unwrap().expect("the client lives");
        let response: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert!(response["error"].is_null(), "{command}: {response}");
        response
    }

    async fn open(&mut self, name: &str) -> String {
        self.send(json!({ "open": name })).await["version"].as_str().unwrap().to_owned()
    }

    async fn call(&mut self, name: &str, tool: &str, arguments: Value) -> Value {
        let call = json!({ "call": name, "tool": tool, "arguments": arguments });
        self.send(call).await["result"].take()
    }

    async fn text(&mut self, name: &str, tool: &str, arguments: Value) -> String {
        let result = self.call(name, tool, arguments).await;
        assert_ne!(result["isError"], true, "{result}");
        result_text(&result)
    }
}

/// R061, R065, R162, R166, R167: each legacy connection has its own cart, on every replica, also after a kill.
async fn run_legacy(peer: &Peer, args: &[&str], store: &str) {
    let mut one = Example::start("cart", store).await;
    let two = Example::start("cart", store).await;
    let url = round_robin(&[&one.url, &two.url]).await;
    let mut client = SdkClient::start(peer, &[&[url.as_str()], args].concat());
    for name in ["ann", "bob"] {
        assert!(client.open(name).await.starts_with("2025"));
        client.text(name, "add", json!({ "sku": name })).await;
    }
    one.restart().await;
    for name in ["ann", "bob"] {
        let cart = client.text(name, "add", json!({ "sku": "pear" })).await;
        assert_eq!(cart, format!("2 in the cart: {name}, pear"));
    }
    // R148: a handle works on other connections and outlives its own.
    let handle = handle_in(&client.text("ann", "session_start", json!({ "name": "third" })).await);
    let third = |sku: &str| json!({ "sku": sku, "session_id": handle });
    assert_eq!(client.text("bob", "add", third("quince")).await, "1 in the cart: quince");
    client.send(json!({ "close": "bob" })).await;
    client.open("bob").await;
    assert_eq!(client.text("bob", "add", third("fig")).await, "2 in the cart: quince, fig");
}

/// R146, R156: a modern client is given a handle, which works on every connection and replica, also after a kill.
async fn run_modern(peer: &Peer, args: &[&str], store: &str) {
    let mut one = Example::start("notebook", store).await;
    let two = Example::start("notebook", store).await;
    let url = round_robin(&[&one.url, &two.url]).await;
    let mut client = SdkClient::start(peer, &[&[url.as_str()], args].concat());
    assert_eq!(client.open("one").await, "2026-07-28");
    let noted = client.call("one", "note", json!({ "text": "first" })).await;
    let handle =
        handle_in(noted["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{noted}")));
    client.text("one", "note", json!({ "text": "second", "session_id": handle })).await;
    one.restart().await;
    client.open("two").await;
    for _ in 0..2 {
        let read = json!({ "session_id": handle });
        assert_eq!(client.text("two", "read", read).await, "first\nsecond");
    }
    assert_eq!(client.text("two", "read", json!({ "session_id": "key:other" })).await, "");
}

/// Runs `work` on an empty store of each kind.
async fn on_every_store(work: impl AsyncFn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    work(&format!("sqlite:{}", folder.path().join("a.db").display())).await;
    work(&PostgresUrl::empty().url).await;
    work(&RedisUrl::empty().url).await;
}

async fn assert_legacy_session(file: &str) {
    if !peers::are_left_out() {
        on_every_store(async |store| run_legacy(&peers::client(file), &[], store).await).await;
    }
}

async fn assert_modern_session(file: &str) {
    if !peers::are_left_out() {
        on_every_store(async |store| run_modern(&peers::client(file), &["auto"], store).await)
            .await;
    }
}

#[tokio::test]
async fn python_sdk_keeps_its_legacy_session() {
    assert_legacy_session("python_sdk.py").await;
}

#[tokio::test]
async fn python_sdk_keeps_its_modern_session() {
    assert_modern_session("python_sdk.py").await;
}

#[tokio::test]
async fn fastmcp_keeps_its_legacy_session() {
    assert_legacy_session("fastmcp_client.py").await;
}

#[tokio::test]
async fn typescript_sdk_1_keeps_its_legacy_session() {
    assert_legacy_session("typescript1.mjs").await;
}

#[tokio::test]
async fn typescript_sdk_2_keeps_its_legacy_session() {
    assert_legacy_session("typescript2.mjs").await;
}

#[tokio::test]
async fn typescript_sdk_2_keeps_its_modern_session() {
    assert_modern_session("typescript2.mjs").await;
}
