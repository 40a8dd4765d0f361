//! Limits on sockets, calls, bodies and server requests, and the graceful stop.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use support::{Gateway, LONG, mark, read_to_end, stdio};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// R170: a client over the socket limit gets an error, and is served when a socket is free.
#[tokio::test]
async fn sockets_over_the_limit_are_refused() {
    let mark = mark("sockets");
    let limits = json!({ "limits": { "sockets": 3 } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), limits).await;
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut socket = gateway.socket().await;
        let head = "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        // The gateway asks for the body, so the request is in progress.
        let mut interim = [0; 25];
        socket.read_exact(&mut interim).await.unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        busy.push(socket);
    }
    let mut late = gateway.socket().await;
    late.write_all(HEALTH).await.unwrap();
    let told = read_to_end(&mut late).await;
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("retry-after: "), "{told}");
    assert!(told.contains("limits.sockets"), "{told}");
    busy.pop();
    let start = tokio::time::Instant::now();
    loop {
        let mut next = gateway.socket().await;
        next.write_all(HEALTH).await.unwrap();
        if read_to_end(&mut next).await.starts_with("HTTP/1.1 200 ") {
            return;
        }
        assert!(start.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// R170: a session has a limit of calls in flight. The next call is refused with a retry hint, and runs when one has
/// ended.
#[tokio::test]
async fn calls_over_the_limit_of_a_session_are_refused() {
    let mark = mark("calls");
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let limits =
        json!({ "limits": { "calls_per_session": 2 }, "audit": { "to": audit.to_str().unwrap() } });
    let gateway = Arc::new(Gateway::with(json!({ "test": stdio(&mark, &[]) }), limits).await);
    let client = Arc::new(gateway.client("test").await);
    assert_eq!(client.text(&gateway, "count").await, "1");
    // A task repeats its call if a count took its place, or if it ended too early.
    let enough = Arc::new(AtomicBool::new(false));
    let slow: Vec<_> = (0..2)
        .map(|who| {
            let (gateway, client, enough) = (gateway.clone(), client.clone(), enough.clone());
            tokio::runtime::Handle::current().spawn(async move {
                while !enough.load(Ordering::Relaxed) {
                    let params = json!({ "name": "slow", "arguments": { "ms": 1_000 } });
                    let body = json!({ "jsonrpc": "2.0", "id": format!("slow{who}"),
                        "method": "tools/call", "params": params });
                    let answer = client.send(&gateway, &body.to_string()).await;
                    let answer = tokio::time::timeout(LONG, answer.message()).await.unwrap();
                    assert!(answer["result"].is_object(), "{answer}");
                }
            })
        })
        .collect();
    let start = tokio::time::Instant::now();
    let refused =
        |answer: &Value| answer["result"]["isError"] == true || answer["error"].is_object();
    let mut told = Vec::new();
    for (method, params) in [
        ("tools/call", json!({ "name": "count", "arguments": {} })),
        ("resources/read", json!({ "uri": "test://count" })),
    ] {
        let answer = loop {
            let answer = client.request(&gateway, method, params.clone()).await;
            if refused(&answer) {
                break answer;
            }
            assert!(start.elapsed() < LONG);
        };
        told.push(answer);
    }
    let text = told[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("limits.calls_per_session") && text.contains("try again"), "{text}");
    let message = told[1]["error"]["message"].as_str().unwrap();
    assert!(message.contains("2 calls in flight"), "{message}");
    enough.store(true, Ordering::Relaxed);
    for slow in slow {
        slow.await.unwrap();
    }
    let again = client.call(&gateway, "count", json!({})).await;
    assert!(again["result"]["isError"] != true, "{again}");
    // The audit names the reason for the refusal.
    let start = tokio::time::Instant::now();
    let written = loop {
        let written = std::fs::read_to_string(&audit).unwrap_or_default();
        if written.contains("\"denied\"") || start.elapsed() > LONG {
            break written;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(written.contains("\"denied\"") && !written.contains("\"cancelled\""), "{written}");
}

/// A stalled body and a head that is too large close the connection.
#[tokio::test]
async fn stalled_request_is_closed() {
    let mark = mark("stalled");
    let limits = json!({ "limits": { "stall": "2s", "headers": "8KiB" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), limits).await;
    let mut stalled = gateway.socket().await;
    let head = "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{";
    stalled.write_all(head.as_bytes()).await.unwrap();
    let mut large = gateway.socket().await;
    let head =
        format!("GET /mcp/test HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(9_000));
    large.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    large.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 431");
    let told = read_to_end(&mut stalled).await;
    assert!(
        told.starts_with("HTTP/1.1 408 ") && told.contains("nothing more of the body came for 2 s"),
        "{told}"
    );
}

/// A stopping gateway writes a started answer to its end. A client that only listens does not delay the stop.
#[tokio::test]
async fn stopping_gateway_finishes_its_answers() {
    let mark = mark("written");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let mut stream = client.get(&gateway, None).await.events();
    stream.next().await.unwrap();
    // More than the buffers of two sockets hold.
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "big", "arguments": { "bytes": 24 << 20 } } });
    let body = body.to_string();
    let mut socket = gateway.socket().await;
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json\r\nmcp-session-id: {}\r\ncontent-length: {}\r\n\r\n{body}",
        client.id,
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let stopping = tokio::task::spawn_blocking(move || (gateway.stop(), gateway));
    while TcpStream::connect(&address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let listening = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(LONG, listening).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(answer.len() > 24 << 20 && answer.ends_with("}]}}"), "{} bytes", answer.len());
    assert!(stopping.await.unwrap().0.success());
}

/// R170: a client can have 256 open server requests. A server over that limit gets an error, and can ask again after
/// one was answered.
#[tokio::test]
async fn server_requests_over_the_limit_are_refused() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let limits = json!({ "limits": { "calls_per_session": 400 } });
    let gateway = Gateway::with(json!({ "test": { "url": server.url() } }), limits).await;
    let client = gateway.client_with("test", "2025-11-25", json!({ "elicitation": {} })).await;
    let asks = async |id: usize| {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "elicit", "arguments": {} } });
        let mut events = client.send(&gateway, &call.to_string()).await.events();
        let first = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        (events, first)
    };
    let mut open = Vec::new();
    for id in 0..256 {
        let (events, question) = asks(id).await;
        assert_eq!(question["method"], "elicitation/create", "{id}: {question}");
        open.push((events, question));
    }
    let (_, refused) = asks(256).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let said = refused["result"].to_string();
    assert!(said.contains("256 questions") && said.contains("-32603"), "{said}");
    let (mut events, question) = open.swap_remove(7);
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "name": "forty-two" } } });
    assert_eq!(client.send(&gateway, &answer.to_string()).await.status, 202);
    let done = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert!(done["result"].to_string().contains("forty-two"), "{done}");
    let (_, question) = asks(257).await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
}
