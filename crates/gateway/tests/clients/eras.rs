//! Modern clients of each SDK in front of a server of both eras of the same SDK: elicitation, sampling, progress and
//! cancellation work as without the gateway.
//!
//! Tasks are run by the server of the Rust SDK alone. The Python SDK 2.3 and FastMCP 4.1 have only a hook for extensions,
//! and the server package of the TypeScript SDK 2 refuses `tasks/get` in the modern era.

use std::process::Stdio;

use serde_json::{Value, json};
use stayput_testkit::{
    mcp::TestServer,
    peers::{self, Peer},
    program,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::support::{Gateway, LONG, gone, mark};

/// Runs the client of an SDK against a URL, and returns what came of it.
async fn used(client: &Peer, url: &str) -> Value {
    let mut command = Command::from(client.command());
    let output = command.arg(url).kill_on_drop(true).output();
    // Interpreters start slowly on a busy machine.
    let output = timeout(LONG * 2, output).await.unwrap().unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{failed}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Starts a server over HTTP, and returns its URL. It ends when the child is dropped.
async fn listening(server: &Peer) -> (Child, String) {
    let mut command = Command::from(server.command());
    let mut child = command.arg("http").stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = timeout(LONG, lines.next_line()).await.unwrap().unwrap().unwrap();
    (child, url)
}

/// Compares the client at the server itself, and through the gateway over HTTP and stdio.
async fn is_as_direct((file, sdk): (&str, Option<&str>), server: &str) {
    if peers::are_left_out() {
        return;
    }
    let (mut client, server) = (peers::client(file), peers::server(server));
    client.args.extend(sdk.map(Into::into));
    let mark = mark("sdk-eras");
    let (_child, url) = listening(&server).await;
    let words = server.args.iter().map(|arg| json!(arg));
    let args: Vec<_> = words.chain([json!("stdio"), json!(mark)]).collect();
    let env: serde_json::Map<_, _> = server
        .env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value.to_str())))
        .collect();
    let stdio = json!({ "command": server.program, "args": args, "env": env });
    let gateway = Gateway::start(json!({ "http": { "url": url }, "stdio": stdio })).await;
    let mut expected = json!({
        "version": "2026-07-28", "count": "2", "greet": "Hello Ann", "poem": "Poem: roses are red",
        "steps": "done", "progress": [1, 2, 3], "cancelled": true,
    });
    assert_eq!(used(&client, &gateway.at("stdio/~chat")).await, expected, "stdio");
    assert_eq!(used(&client, &gateway.at("http")).await, expected, "http");
    // All modern clients of the URL share its count.
    expected["count"] = json!("4");
    assert_eq!(used(&client, &url).await, expected, "direct");
    drop(gateway);
    gone(&mark).await;
}

#[tokio::test]
async fn python_sdk_is_asked_by_a_dual_server() {
    is_as_direct(("both_eras.py", Some("python")), "dual_sdk.py").await;
}

#[tokio::test]
async fn fastmcp_is_asked_by_a_dual_server() {
    is_as_direct(("both_eras.py", Some("fastmcp")), "dual_fastmcp.py").await;
}

#[tokio::test]
async fn typescript_sdk_is_asked_by_a_dual_server() {
    is_as_direct(("both_eras.mjs", None), "dual.mjs").await;
}

/// The server of the Rust SDK is that of the conformance suite. It runs tasks, too.
#[tokio::test]
async fn rust_sdk_is_asked_by_a_dual_server() {
    let programs = || (program("stayput-sdk-client"), program("stayput-conformance-server"));
    let (program, server) = tokio::task::spawn_blocking(programs).await.unwrap();
    let client = Peer { program, args: vec!["use".into()], env: Vec::new() };
    let mark = mark("sdk-eras-rust");
    let http = TestServer::conformance().await;
    let stdio = json!({ "command": server, "args": ["stdio", mark] });
    let gateway = Gateway::start(json!({ "http": { "url": http.url() }, "stdio": stdio })).await;
    let expected = json!({
        "version": "2026-07-28", "elicited": "Hello, Ann!", "sampled": r#"{"text":"roses are red","type":"text"}"#,
        "steps": "done", "progress": [0.0, 50.0, 100.0], "task": ["completed", "computed"],
        "stopped": "cancelled", "cancelled": true,
    });
    assert_eq!(used(&client, http.url()).await, expected, "direct");
    assert_eq!(used(&client, &gateway.at("http")).await, expected, "http");
    assert_eq!(used(&client, &gateway.at("stdio/~chat")).await, expected, "stdio");
    drop(gateway);
    gone(&mark).await;
}
