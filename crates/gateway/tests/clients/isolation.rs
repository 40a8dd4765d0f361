//! Two concurrent sessions of each client on a counting server: each sees only its own count.

use serde_json::{Value, json};
use stayput_testkit::{
    peers::{self, Peer},
    processes::with_token,
    program,
};
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use crate::{
    driven::Driven,
    support::{Gateway, LONG, gone, mark, stdio, until},
};

/// Time after which a session is closed whose client left without `DELETE`.
const FORGOTTEN: &str = "8s";

/// Starts a gateway in front of a counting server.
async fn counting(mark: &str) -> (Gateway, String) {
    let expiry = json!({ "expiry": { "idle": FORGOTTEN } });
    let gateway = Gateway::with(json!({ "test": stdio(mark, &[]) }), expiry).await;
    let url = format!("{}/mcp/test", gateway.url);
    (gateway, url)
}

/// Counts in two sessions by turns. Beside their processes at most `unused` wait for a session that never calls.
async fn count_apart(client: &mut Driven, mark: &str, unused: usize) {
    for (name, number) in [("ann", 1), ("ben", 1), ("ann", 2), ("ann", 3), ("ben", 2), ("ben", 3)] {
        assert_eq!(client.count(name).await, number, "{name}");
    }
    let processes = with_token(mark).len();
    assert!((2..=2 + unused).contains(&processes), "a process each, and not {processes}");
}

/// R005, R013, E34: a client that takes the URL and closes its sessions with `DELETE`.
async fn keeps_apart(name: &str, peer: Peer) {
    let mark = mark(name);
    let (gateway, url) = counting(&mark).await;
    let mut client = Driven::start(&peer, &[&url]);
    assert_eq!(client.open("ann").await, "2025-11-25");
    assert_eq!(client.open("ben").await, "2025-11-25");
    count_apart(&mut client, &mark, 0).await;
    client.close("ann").await;
    until("end of her process", || with_token(&mark).len() == 1).await;
    assert_eq!(client.count("ben").await, 4);
    client.close("ben").await;
    gone(&mark).await;
    drop(gateway);
}

#[tokio::test]
async fn python_sdk_sessions_are_isolated() {
    if !peers::are_left_out() {
        keeps_apart("python", peers::client("python_sdk.py")).await;
    }
}

#[tokio::test]
async fn fastmcp_sessions_are_isolated() {
    if !peers::are_left_out() {
        keeps_apart("fastmcp", peers::client("fastmcp_client.py")).await;
    }
}

#[tokio::test]
async fn typescript_sdk_1_sessions_are_isolated() {
    if !peers::are_left_out() {
        keeps_apart("typescript1", peers::client("typescript1.mjs")).await;
    }
}

#[tokio::test]
async fn typescript_sdk_2_sessions_are_isolated() {
    if !peers::are_left_out() {
        keeps_apart("typescript2", peers::client("typescript2.mjs")).await;
    }
}

#[tokio::test]
async fn rust_sdk_sessions_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    // The program may have to be built first.
    let program = tokio::task::spawn_blocking(|| program("stayput-sdk-client")).await.unwrap();
    keeps_apart("rust", Peer { program, args: Vec::new(), env: Vec::new() }).await;
}

/// A stdio host reaches the gateway through a bridge, which leaves without `DELETE`. Its session stays for exactly the
/// configured time.
#[tokio::test]
async fn mcp_remote_sessions_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    let (mark, home) = (mark("remote"), TempDir::new().unwrap());
    let (gateway, url) = counting(&mark).await;
    let mut host = peers::client("typescript1.mjs");
    let bridge = peers::mcp_remote();
    host.args.push(bridge.program);
    host.args.extend(bridge.args);
    host.env.push(("MCP_REMOTE_CONFIG_DIR", home.path().into()));
    let options = ["--transport", "http-only", "--protocol", "legacy", "--silent"];
    let mut client = Driven::start(&host, &[&[&*url], &options[..]].concat());
    for name in ["ann", "ben"] {
        client.open(name).await;
    }
    // The bridge connects once to try the transport, and leaves that session.
    count_apart(&mut client, &mark, 1).await;
    client.close("ann").await;
    assert_eq!(client.count("ben").await, 4);
    client.close("ben").await;
    gone(&mark).await;
    drop(gateway);
}

/// Makes one call with the Inspector, which connects for it and leaves without `DELETE`.
async fn inspect(url: &str, home: &TempDir) -> Value {
    let mut command = Command::from(peers::inspector().command());
    command.args([url, "--transport", "http", "--protocol-era", "legacy", "--format", "json"]);
    command.args(["--method", "tools/call", "--tool-name", "count"]);
    let output = command.env("HOME", home.path()).kill_on_drop(true).output();
    let output = timeout(LONG, output).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = || panic!("{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).unwrap_or_else(|_| failed())
}

/// R005, E34: each call of the Inspector has a new session. It sees no state of another one, and is closed after the
/// idle time.
#[tokio::test]
async fn inspector_calls_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    let (mark, home) = (mark("inspector"), TempDir::new().unwrap());
    let (gateway, url) = counting(&mark).await;
    let both = futures_util::future::join(inspect(&url, &home), inspect(&url, &home)).await;
    for said in [both.0, both.1, inspect(&url, &home).await] {
        assert_eq!(said["result"]["content"][0]["text"], "1", "{said}");
    }
    gone(&mark).await;
    drop(gateway);
}
