//! The peers are where the tests look for them, and they do what the tests rely on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "servers/kit.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the servers")]
mod kit;

use std::process::Stdio;

use kit::{Process, call, initialize, modern, post, post_modern, request, soon, text};
use serde_json::{Value, json};
use stayput_testkit::peers::{self, Peer};
use tokio::io::{AsyncBufReadExt, BufReader};

fn stdio(peer: &Peer, arguments: &[&str]) -> Process {
    let mut command = tokio::process::Command::from(peer.command());
    command.args(arguments);
    Process::of(command)
}

/// Counts to two, over stdio, as a legacy client.
async fn counts(peer: &Peer) {
    let mut server = stdio(peer, &["stdio"]);
    assert!(server.ask(&initialize(&json!({}))).await["result"].is_object());
    server.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    for n in 1..=2 {
        let counted = server.answer_to(&call(n, "count", &json!({}))).await;
        assert_eq!(text(&counted), n.to_string());
    }
    server.stdin = None;
    server.exit().await;
}

/// Counts in two sessions at once over HTTP, and as a modern client.
async fn counts_over_http(peer: &Peer) {
    let mut command = tokio::process::Command::from(peer.command());
    command.args(["http", "0"]).kill_on_drop(true).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = soon(lines.next_line()).await.unwrap().unwrap();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let hello = post(&url, &[], &initialize(&json!({}))).await;
        let session = hello.header("mcp-session-id").to_owned();
        assert!(!session.is_empty());
        soon(hello.message()).await;
        let client = kit::Client { url: url.clone(), session };
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&note).await.status, 202);
        sessions.push(client);
    }
    for n in 1..=2 {
        for client in &sessions {
            let counted = client.call(n, "count", &json!({})).await;
            assert_eq!(text(&counted), n.to_string());
        }
    }
    let list = post_modern(&url, &modern(request(1, "tools/list", &json!({})), &json!({}))).await;
    let list: Value = soon(list.message()).await;
    assert_eq!(list["result"]["tools"][0]["name"], "count", "{list}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn the_typescript_sdk_counts() {
    if !peers::are_left_out() {
        counts(&peers::counter_typescript()).await;
        counts_over_http(&peers::counter_typescript()).await;
    }
}

#[tokio::test]
async fn the_python_sdk_counts() {
    if !peers::are_left_out() {
        counts(&peers::counter_python()).await;
        counts_over_http(&peers::counter_python()).await;
    }
}

#[tokio::test]
async fn fastmcp_counts() {
    if !peers::are_left_out() {
        counts(&peers::counter_fastmcp()).await;
        counts_over_http(&peers::counter_fastmcp()).await;
    }
}

#[tokio::test]
async fn the_reference_servers_and_playwright_list_their_tools() {
    if peers::are_left_out() {
        return;
    }
    let browser = peers::chromium();
    let browser = browser.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.jsonl");
    let memory = Peer { env: vec![("MEMORY_FILE_PATH", file.into())], ..peers::memory() };
    for (peer, arguments, tool) in [
        (peers::everything(), vec!["stdio"], "echo"),
        (memory, vec![], "read_graph"),
        (
            peers::playwright(),
            vec!["--headless", "--isolated", "--executable-path", browser],
            "browser_navigate",
        ),
    ] {
        let mut server = stdio(&peer, &arguments);
        assert!(server.ask(&initialize(&json!({}))).await["result"].is_object());
        server.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        let list = server.answer_to(&request(1, "tools/list", &json!({}))).await;
        let tools = list["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|one| one["name"] == tool), "{list}");
    }
}
