//! Calls that still run when `limits.drain` ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::send;
use support::{Gateway, LONG, gone, mark, stdio, until};

/// Returns whether this number of calls is in flight.
fn runs(gateway: &Gateway, calls: usize) -> bool {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let store = format!("sqlite:{}", gateway.folder.path().join("store.db").display());
    let output = command.args(["sessions", "ls", "--json", "--store", &store]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).matches("\"busy\"").count() == calls
}

/// Kind of call: its era, and whether its answer is a stream.
#[derive(Clone, Copy, Debug)]
struct Kind {
    modern: bool,
    streams: bool,
}

/// Starts a call that takes ten minutes, and returns the content type and the body of its answer.
fn start(gateway: &Gateway, kind: Kind, client: &str) -> tokio::task::JoinHandle<(String, String)> {
    let mut params = json!({ "name": "slow", "arguments": { "ms": 600_000, "steps": 600 } });
    let mut headers = vec![("content-type", "application/json".to_owned())];
    // A modern client has to accept both. Its answer is a stream once there is progress.
    let both = kind.streams || kind.modern;
    let accept = if both { "application/json, text/event-stream" } else { "application/json" };
    headers.push(("accept", accept.to_owned()));
    if kind.modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "7" },
        });
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "slow"),
            ("stayput-session", &format!("key:{client}")),
        ] {
            headers.push((name, value.to_owned()));
        }
    } else {
        headers.push(("mcp-session-id", client.to_owned()));
    }
    if kind.streams {
        params["_meta"]["progressToken"] = json!(1);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let url = gateway.at("test");
    tokio::runtime::Handle::current().spawn(async move {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = send(Method::POST, &url, &headers, body.to_string()).await.unwrap();
        let kind = answer.header("content-type").to_owned();
        (kind, String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap())
    })
}

/// §4.7: the answer says that the call may have run, in both eras, as JSON and as a stream.
#[tokio::test]
async fn call_that_outlasts_the_drain_may_have_run() {
    let mark = mark("drain");
    let drain = json!({ "limits": { "drain": "1s" } });
    let mut gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), drain).await;
    let mut calls = Vec::new();
    for (n, (modern, streams)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let client = if modern { format!("chat-{n}") } else { gateway.client("test").await.id };
        let kind = Kind { modern, streams };
        calls.push((kind, start(&gateway, kind, &client)));
    }
    until("call", || runs(&gateway, 4)).await;
    let stopped = tokio::task::spawn_blocking(move || gateway.stop());
    for (kind, call) in calls {
        let (content_type, body) = tokio::time::timeout(LONG, call).await.unwrap().unwrap();
        assert_eq!(content_type.contains("event-stream"), kind.streams, "{kind:?}: {body}");
        let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        let answer: Value = serde_json::from_str(last.unwrap_or(&body)).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(7), &json!(true)));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("may or may not have been carried out"), "{kind:?}: {text}");
    }
    assert!(stopped.await.unwrap().success());
    gone(&mark).await;
}
