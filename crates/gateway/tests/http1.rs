//! HTTP/1.1 of the gateway, byte by byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use serde_json::json;
use support::{Client, Gateway, LONG, mark, read_to_end, stdio};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn gateway(name: &str) -> Gateway {
    Gateway::start(json!({ "test": stdio(&mark(name), &[]) })).await
}

/// Returns all that the gateway sends until it closes the connection.
async fn said(gateway: &Gateway, parts: &[&[u8]]) -> String {
    let mut socket = gateway.socket().await;
    for part in parts {
        if socket.write_all(part).await.is_err() {
            break;
        }
        // Lets the parts arrive separately, as far as the network allows.
        tokio::task::yield_now().await;
    }
    read_to_end(&mut socket).await
}

/// Reads until `end` was received.
async fn until(socket: &mut TcpStream, end: &str) -> String {
    let mut said = String::new();
    while !said.ends_with(end) {
        let byte = tokio::time::timeout(LONG, socket.read_u8()).await.unwrap();
        said.push(char::from(byte.unwrap_or_else(|error| panic!("{error} after {said}"))));
    }
    said
}

/// Returns a call of `count`, with the framing that `how` gives to its body.
fn count(client: &Client, id: u32, how: impl FnOnce(&str) -> String) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "count", "arguments": {} } });
    format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: \
         application/json\r\nmcp-session-id: {}\r\n{}",
        client.id,
        how(&body.to_string())
    )
}

fn plain(body: &str) -> String {
    format!("content-length: {}\r\n\r\n{body}", body.len())
}

fn closing(body: &str) -> String {
    format!("connection: close\r\n{}", plain(body))
}

fn chunked(body: &str) -> String {
    let (one, two) = body.split_at(7);
    format!(
        "transfer-encoding: chunked\r\n\r\n{:x};x=y\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\n\r\n",
        one.len(),
        two.len()
    )
}

/// R171: a request that a proxy could parse differently is refused, and nothing after it is processed.
#[tokio::test]
async fn ambiguous_request_smuggles_nothing() {
    let gateway = gateway("smuggled").await;
    let next = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for head in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: 4, 4\r\n",
        "content-length: +4\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "x: y\ntransfer-encoding: chunked\r\n",
        "host: elsewhere\r\n",
        "mcp-session-id: a\r\nmcp-session-id: b\r\n",
    ] {
        let request =
            format!("POST /mcp/test HTTP/1.1\r\nhost: localhost\r\n{head}\r\n0\r\n\r\n{next}");
        let said = said(&gateway, &[request.as_bytes()]).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{head}: {said}");
        assert!(said.contains("connection: close\r\n"), "{head}: {said}");
        assert_eq!(said.matches("\r\ndate: ").count(), 1, "{head}: {said}");
    }
    let request = "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
                   1\nx\n0\n\n";
    let said = said(&gateway, &[request.as_bytes(), next.as_bytes()]).await;
    assert!(said.starts_with("HTTP/1.1 400 ") && !said.contains("200 OK"), "{said}");
}

/// R170: a client that sends a few bytes of a body now and then cannot hold a connection forever. A body at typing
/// speed is accepted.
#[tokio::test]
async fn slow_body_is_closed() {
    let limits = json!({ "limits": { "stall": "1s" } });
    let test = stdio(&mark("drips"), &[]);
    let gateway = Gateway::with(json!({ "test": test }), limits).await;
    let client = gateway.client("test").await;
    for way in ["content-length: 1000000\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
        let mut socket = gateway.socket().await;
        let begin = count(&client, 1, |_| way.to_owned());
        socket.write_all(begin.as_bytes()).await.unwrap();
        let drop: &[u8] = if way.starts_with('c') { b" " } else { b"1\r\n \r\n" };
        let (mut read, mut write) = socket.into_split();
        let drip = async {
            while write.write_all(drop).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut said = vec![0; 4096];
        let length = tokio::select! {
            length = read.read(&mut said) => length.unwrap(),
            () = drip => unreachable!(),
            () = tokio::time::sleep(LONG) => panic!("it is still waited for"),
        };
        let said = String::from_utf8_lossy(&said[..length]);
        assert!(
            said.starts_with("HTTP/1.1 408 ") && said.contains("slower than 4 KiB/s"),
            "{said}"
        );
    }
}

/// R170: a head has to be complete in time, however steadily its bytes come. This holds for the first request of a
/// connection and for later ones.
#[tokio::test]
async fn slow_head_is_closed() {
    let limits = json!({ "limits": { "stall": "1s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark("slow-head"), &[]) }), limits).await;
    for before in ["", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut socket = gateway.socket().await;
        socket.write_all(before.as_bytes()).await.unwrap();
        if !before.is_empty() {
            until(&mut socket, "ok\n").await;
        }
        let (mut read, mut write) = socket.into_split();
        let drip = async {
            write.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
            while write.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut said = Vec::new();
        tokio::select! {
            // The connection may be reset, because bytes are unread.
            _ = read.read_to_end(&mut said) => {}
            () = drip => unreachable!(),
            () = tokio::time::sleep(LONG) => panic!("it is still waited for"),
        }
        assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    }
}

/// A client that closes its side of the connection while its call runs has disconnected: the connection ends at once
/// and without an answer.
#[tokio::test]
async fn half_closed_connection_counts_as_disconnected() {
    let gateway = gateway("half-closed").await;
    let client = gateway.client("test").await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow", "arguments": { "ms": 600_000 } } })
    .to_string();
    let call = count(&client, 1, |_| plain(&call));
    let mut socket = gateway.socket().await;
    socket.write_all(call.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut socket).await, "");
}

/// R170: a request over a limit is refused, and the answer names the limit.
#[tokio::test]
async fn request_over_a_limit_is_refused() {
    let limits = json!({ "limits": { "body": 65536 } });
    let test = stdio(&mark("limits"), &[]);
    let gateway = Gateway::with(json!({ "test": test }), limits).await;
    let long = "x".repeat(20_000);
    let large = "x".repeat(70_000);
    let many = "x: y\r\n".repeat(101);
    let body = format!("content-length: 999999\r\n\r\n{large}");
    let chunks =
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    for (path, rest, status) in [
        (&*long, "\r\n", 414),
        ("", &*format!("x: {large}\r\n\r\n"), 431),
        ("", &*format!("{many}\r\n"), 431),
        ("", &*body, 413),
        ("", &*chunks, 413),
    ] {
        let request = format!(
            "POST /mcp/test{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{rest}"
        );
        let said = said(&gateway, &[request.as_bytes()]).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {said}");
    }
}

/// Pipelined requests are answered in order, however they are split.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let gateway = gateway("pipelined").await;
    let client = gateway.client("test").await;
    let all = [
        count(&client, 1, plain),
        count(&client, 2, chunked),
        "HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "OPTIONS /mcp/test HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "PUT /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        count(&client, 3, closing),
    ]
    .concat();
    let check = |said: &str, first: u32| {
        let statuses: Vec<_> =
            said.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].to_owned()).collect();
        assert_eq!(statuses, ["200", "200", "200", "405", "405", "200"], "{said}");
        for count in first..first + 3 {
            assert_eq!(said.matches(&format!(r#""text":"{count}""#)).count(), 1, "{said}");
        }
        assert!(said.contains("content-length: 3\r\n") && !said.contains("ok\n"), "{said}");
        assert!(said.contains("\r\nallow: GET, POST, DELETE\r\n"), "{said}");
        assert!(said.contains("\r\ndate: ") && said.contains(" GMT\r\n"), "{said}");
    };
    check(&said(&gateway, &[all.as_bytes()]).await, 1);
    let bytes: Vec<_> = all.as_bytes().chunks(1).collect();
    check(&said(&gateway, &bytes).await, 4);
}

/// A client with `Expect: 100-continue` gets the interim response, unless its body is refused anyway.
#[tokio::test]
async fn expect_continue_is_answered() {
    let gateway = gateway("expects").await;
    let client = gateway.client("test").await;
    let call = count(&client, 1, |body| format!("expect: 100-continue\r\n{}", closing(body)));
    let (head, body) = call.split_once("\r\n\r\n").unwrap();
    let mut socket = gateway.socket().await;
    socket.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(until(&mut socket, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""text":"1""#), "{answer}");
    let unwanted = "POST /nowhere HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                    content-length: 9\r\n\r\n";
    let said = said(&gateway, &[unwanted.as_bytes()]).await;
    assert!(said.starts_with("HTTP/1.1 404 ") && said.contains("connection: close"), "{said}");
}

/// HTTP/1.0 has no chunks, and closes connections unless it asks to keep them.
#[tokio::test]
async fn http_1_0_clients_are_served() {
    let gateway = gateway("one-oh").await;
    let health = b"GET /healthz HTTP/1.0\r\n\r\n";
    let said_once = said(&gateway, &[health, health]).await;
    assert_eq!(said_once.matches("200 OK").count(), 1, "{said_once}");
    let kept = b"GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    let said_twice = said(&gateway, &[kept, health]).await;
    assert_eq!(said_twice.matches("200 OK").count(), 2, "{said_twice}");
    assert!(said_twice.contains("connection: keep-alive\r\n"), "{said_twice}");
    let client = gateway.client("test").await;
    let listen = format!(
        "GET /mcp/test HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n\
         mcp-session-id: {}\r\n\r\n",
        client.id
    );
    let mut socket = gateway.socket().await;
    socket.write_all(listen.as_bytes()).await.unwrap();
    let head = until(&mut socket, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.0 200 ") && !head.contains("transfer-encoding"), "{head}");
    assert!(until(&mut socket, "\n\n").await.contains("retry: "));
}

/// The request target may be an absolute URL, as through a proxy.
#[tokio::test]
async fn absolute_url_is_accepted_as_path() {
    let gateway = gateway("whole").await;
    let request =
        "GET http://localhost/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let said = said(&gateway, &[request.as_bytes()]).await;
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
}

/// E36: a request for another host name than one of this machine is refused, in whichever form the name comes.
#[tokio::test]
async fn foreign_host_is_refused() {
    let gateway = gateway("names").await;
    for (path, headers, inside) in [
        ("/metrics", "host: localhost\r\n", true),
        ("/metrics", "host: [::1]:7337\r\norigin: http://localhost:3000\r\n", true),
        ("http://127.0.0.1:80/metrics", "host: localhost\r\n", true),
        ("http://evil.example.com/metrics", "host: localhost\r\n", false),
        ("/metrics", "host: [::1]evil.example.com\r\n", false),
        ("/metrics", "host: localhost:evil.example.com\r\n", false),
        ("/metrics", "host: localhost.example.com\r\n", false),
        ("/metrics", "host: localhost:+80\r\n", false),
        ("/metrics", "host: localhost:\r\n", false),
        ("/metrics", "host: localhost:65536\r\n", false),
        ("/metrics", "host: localhost\r\norigin: https://127.0.0.1\r\n", true),
        ("/metrics", "host: localhost\r\norigin: evil://localhost\r\n", false),
        ("/metrics", "host: localhost\r\norigin: localhost\r\n", false),
        ("/metrics", "host: localhost\r\norigin: http://localhost@evil.example.com\r\n", false),
        (
            "/metrics",
            "host: localhost\r\norigin: http://localhost\r\norigin: http://e.com\r\n",
            false,
        ),
        ("/metrics", "host: localhost\r\norigin: null\r\n", false),
        ("/metrics", "", false),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
        let said = said(&gateway, &[request.as_bytes()]).await;
        let status = if inside { "HTTP/1.1 200 " } else { "HTTP/1.1 403 " };
        assert!(said.starts_with(status), "{path} {headers}: {said}");
    }
}

/// R170: the client info is stored, so its size is limited.
#[tokio::test]
async fn size_of_client_info_is_limited() {
    let gateway = gateway("wordy").await;
    for (length, works) in [(1_000, true), (100_000, false)] {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "x".repeat(length), "version": "1" },
        }});
        let answer = gateway.post("test", &[], &body.to_string()).await.message().await;
        assert_eq!(answer["result"].is_object(), works, "{answer}");
    }
}
