//! Clients of others against the examples, in both eras: they know nothing of sessions, and have them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod world;

use std::process::Stdio;

use serde_json::{Value, json};
use stayput_testkit::peers::{self, Peer};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use world::{Example, LONG, handle_in, said};

/// A running client, which has as many connections as it is told to open. Dropped, it is killed.
struct Driven {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Driven {
    fn start(peer: &Peer, args: &[&str]) -> Self {
        let mut command = Command::from(peer.command());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin, lines, _child: child }
    }

    async fn tell(&mut self, command: Value) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = timeout(LONG, self.lines.next_line()).await.expect("an answer in time");
        let line = line.unwrap().expect("the client lives");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert!(told["error"].is_null(), "{command}: {told}");
        told
    }

    async fn open(&mut self, name: &str) -> String {
        self.tell(json!({ "open": name })).await["version"].as_str().unwrap().to_owned()
    }

    async fn call(&mut self, name: &str, tool: &str, arguments: Value) -> Value {
        let call = json!({ "call": name, "tool": tool, "arguments": arguments });
        self.tell(call).await["result"].take()
    }

    async fn text(&mut self, name: &str, tool: &str, arguments: Value) -> String {
        let result = self.call(name, tool, arguments).await;
        assert_ne!(result["isError"], true, "{result}");
        said(&result)
    }
}

/// R065, R162, R167: a client that shakes hands has a cart of its own, also when the server was killed meanwhile.
async fn legacy(peer: Peer, args: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("cart.db").display());
    let mut shop = Example::start("cart", &store).await;
    let url = shop.url.clone();
    let mut client = Driven::start(&peer, &[&[url.as_str()], args].concat());
    for name in ["ann", "bob"] {
        assert!(client.open(name).await.starts_with("2025"));
        client.text(name, "add", json!({ "sku": name })).await;
    }
    shop.restart().await;
    for name in ["ann", "bob"] {
        let cart = client.text(name, "add", json!({ "sku": "pear" })).await;
        assert_eq!(cart, format!("2 in the cart: {name}, pear"));
    }
    // R148: and any other by its handle.
    let handle = handle_in(&client.text("ann", "session_start", json!({ "name": "third" })).await);
    let third = json!({ "sku": "quince", "session_id": handle });
    assert_eq!(client.text("bob", "add", third).await, "1 in the cart: quince");
}

/// R146, R156: one that does not is given a handle, which leads to its notes on every connection and after a kill.
async fn modern(peer: Peer, args: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("notes.db").display());
    let mut notebook = Example::start("notebook", &store).await;
    let url = notebook.url.clone();
    let mut client = Driven::start(&peer, &[&[url.as_str()], args].concat());
    assert_eq!(client.open("one").await, "2026-07-28");
    let noted = client.call("one", "note", json!({ "text": "first" })).await;
    let handle =
        handle_in(noted["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{noted}")));
    client.text("one", "note", json!({ "text": "second", "session_id": handle })).await;
    notebook.restart().await;
    client.open("two").await;
    let read = json!({ "session_id": handle });
    assert_eq!(client.text("two", "read", read).await, "first\nsecond");
    assert_eq!(client.text("two", "read", json!({ "session_id": "key:other" })).await, "");
}

#[tokio::test]
async fn the_python_sdk_shakes_hands() {
    if !peers::are_left_out() {
        legacy(peers::client("python_sdk.py"), &[]).await;
    }
}

#[tokio::test]
async fn the_python_sdk_does_not() {
    if !peers::are_left_out() {
        modern(peers::client("python_sdk.py"), &["auto"]).await;
    }
}

#[tokio::test]
async fn fastmcp_shakes_hands() {
    if !peers::are_left_out() {
        legacy(peers::client("fastmcp_client.py"), &[]).await;
    }
}

#[tokio::test]
async fn the_typescript_sdk_1_shakes_hands() {
    if !peers::are_left_out() {
        legacy(peers::client("typescript1.mjs"), &[]).await;
    }
}

#[tokio::test]
async fn the_typescript_sdk_2_shakes_hands() {
    if !peers::are_left_out() {
        legacy(peers::client("typescript2.mjs"), &[]).await;
    }
}

#[tokio::test]
async fn the_typescript_sdk_2_does_not() {
    if !peers::are_left_out() {
        modern(peers::client("typescript2.mjs"), &["auto"]).await;
    }
}
