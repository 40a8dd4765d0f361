//! Limits of the gateway, and of each owner.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use crate::{
    kit::{Peer, Stage, address, end_of, hello, occupy, raw},
    support::{Gateway, LONG},
};

/// Observer: a call while another connection is in the middle of a call of this length.
async fn beside(stage: Stage, ms: u64) -> String {
    let gateway = stage.gateway().await;
    let first = Peer::default().connect(&gateway).await.unwrap();
    let busy = occupy(&gateway, &first, ms).await;
    let second = Peer::default().connect(&gateway).await.unwrap();
    let said = second.call(&gateway, "count", json!({})).await;
    drop(busy);
    said
}

/// Observer: calls on new connections beside a long call, until one is refused. With the limit, memory is measured every
/// five seconds, and the refusal is waited for. Without it, nothing is measured, and a few calls are enough.
async fn more_calls(stage: Stage) -> String {
    let is_limited = !stage.file["stayput"]["limits"]["memory"].is_null();
    let gateway = stage.gateway().await;
    let first = Peer::default().connect(&gateway).await.unwrap();
    let _busy = occupy(&gateway, &first, 60_000).await;
    let (start, mut calls) = (Instant::now(), 0);
    while if is_limited { start.elapsed() < LONG } else { calls < 5 } {
        let next = gateway.client("test").await;
        let answer = next.call(&gateway, "count", json!({})).await;
        if answer["result"]["isError"] == true {
            return "refused".to_owned();
        }
        assert_eq!(next.delete(&gateway).await, 200);
        calls += 1;
    }
    "all".to_owned()
}

/// Observer: a call of another owner, and of the same one, while one is in the middle of a call.
async fn owners(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let of = |name: &str| Peer::with("x-user", name);
    let first = of("ann").connect(&gateway).await.unwrap();
    let _busy = occupy(&gateway, &first, 60_000).await;
    let mut said = Vec::new();
    for name in ["bob", "ann"] {
        let client = of(name).connect(&gateway).await.unwrap();
        said.push(client.call(&gateway, "count", json!({})).await);
    }
    said.join(" ")
}

/// Observer: the answer to a second call on a connection that is in the middle of one.
async fn beside_on_one_session(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    let _busy = occupy(&gateway, &client, 60_000).await;
    client.call(&gateway, "count", json!({})).await
}

/// Observer: whether one of thirty requests is refused.
async fn thirty(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let mut refused = false;
    for _ in 0..30 {
        refused |= Peer::default().post(&gateway, "test", &hello()).await.status == 429;
    }
    if refused { "refused" } else { "all" }.to_owned()
}

/// Observer: the status of the second connection of an owner.
async fn second_connection(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let first = Peer::default().connect(&gateway).await.unwrap();
    let _busy = occupy(&gateway, &first, 60_000).await;
    Peer::default().post(&gateway, "test", &hello()).await.status.as_str().to_owned()
}

/// Observer: the answer to a head that does not end. With the key the end is waited for, however busy the machine is.
async fn half_a_head(stage: Stage) -> String {
    let is_set = !stage.file["stayput"]["limits"]["stall"].is_null();
    let limit = if is_set { LONG } else { Duration::from_secs(3) };
    let gateway = stage.gateway().await;
    raw(&gateway, b"GET /healthz HTTP/1.1\r\n", limit).await
}

/// Begins a POST of this owner whose body has `length` bytes. Returns when the gateway asks for the body.
async fn begin(gateway: &Gateway, owner: &str, length: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address(gateway)).await.unwrap();
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: {}\r\nx-user: {owner}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nexpect: 100-continue\r\n\
         content-length: {length}\r\n\r\n",
        address(gateway)
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    let read = socket.read_exact(&mut interim);
    tokio::time::timeout(LONG, read).await.unwrap().unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket
}

/// Observer: the answer on a second socket while a request on the first one is in progress.
async fn second_socket(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let _busy = begin(&gateway, "ann", 100).await;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", address(&gateway));
    raw(&gateway, request.as_bytes(), LONG).await
}

/// Observer: the status of a large body of `owner` while the gateway reads another one of Ann.
async fn second_body(stage: Stage, owner: &str) -> String {
    let gateway = stage.gateway().await;
    let _held = begin(&gateway, "ann", 1_000_000).await;
    let mut hello = hello();
    hello["params"]["more"] = json!("x".repeat(600_000));
    let peer = Peer::with("x-user", owner);
    peer.post(&gateway, "test", &hello).await.status.as_str().to_owned()
}

/// Observer: the status of `initialize` behind spaces that come steadily for three seconds.
async fn slow_body(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let (hello, spaces) = (hello().to_string(), [b' '; 4_000]);
    let socket = begin(&gateway, "ann", 30 * spaces.len() + hello.len()).await;
    let (mut read, mut write) = socket.into_split();
    let body = async {
        let mut every = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..30 {
            every.tick().await;
            write.write_all(&spaces).await?;
        }
        write.write_all(hello.as_bytes()).await
    };
    let mut said = [0; 12];
    let answer = async {
        tokio::time::timeout(LONG, read.read_exact(&mut said)).await.unwrap().unwrap();
    };
    // A refusal closes the connection, so the rest of the body may fail.
    let _ = tokio::join!(answer, body);
    String::from_utf8_lossy(&said).replace("HTTP/1.1 ", "")
}

/// Observer: the status of `initialize` with 20 KB more in a header or in the body.
async fn large(stage: Stage, in_a_header: bool) -> String {
    let gateway = stage.gateway().await;
    let (more, mut hello) = ("x".repeat(20_000), hello());
    let peer = if in_a_header { Peer::with("x-more", &more) } else { Peer::default() };
    if !in_a_header {
        hello["params"]["_meta"] = json!({ "more": more });
    }
    peer.post(&gateway, "test", &hello).await.status.as_str().to_owned()
}

/// Observer: the end of a call when the gateway stops.
async fn stop(stage: Stage) -> String {
    let mut gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    let events = occupy(&gateway, &client, 2_000).await;
    let stopped = tokio::task::spawn_blocking(move || gateway.stop());
    let said = end_of(events).await;
    stopped.await.unwrap();
    said
}

/// Owners that a proxy names, and a short wait.
fn proxy() -> Value {
    json!({ "auth": { "proxy": { "header": "X-User" } }, "limits": { "wait": "100ms" } })
}

keys! {
    "stayput.limits.processes" processes_are_limited |key| {
        let key = key.with(&json!({ "limits": { "wait": "100ms" } }));
        let observe = async |stage| beside(stage, 60_000).await;
        key.set(json!(1)).shows(observe, ["error", "1"]).await;
    }
    "stayput.limits.links" links_are_limited |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let key = key.url(&server).with(&json!({ "limits": { "wait": "100ms" } }));
        let observe = async |stage| beside(stage, 60_000).await;
        key.set(json!(1)).shows(observe, ["error", "1"]).await;
    }
    "stayput.limits.memory" memory_of_processes_is_limited |key| {
        let key = key.with(&json!({ "limits": { "wait": "100ms" } }));
        key.set(json!("1MiB")).shows(more_calls, ["refused", "all"]).await;
    }
    "stayput.limits.wait" wait_ends_in_line_for_a_process |key| {
        let key = key.with(&json!({ "limits": { "processes": 1 } }));
        let observe = async |stage| beside(stage, 2_000).await;
        key.set(json!("100ms")).shows(observe, ["error", "1"]).await;
    }
    "stayput.limits.per_owner.processes" processes_of_an_owner_are_limited |key| {
        key.with(&proxy()).set(json!(1)).shows(owners, ["1 error", "1 1"]).await;
    }
    "stayput.limits.per_owner.links" links_of_an_owner_are_limited |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let key = key.url(&server).with(&proxy());
        key.set(json!(1)).shows(owners, ["1 error", "1 1"]).await;
    }
    "stayput.limits.per_owner.requests_per_second" requests_of_an_owner_are_limited |key| {
        key.set(json!(1)).shows(thirty, ["refused", "all"]).await;
    }
    "stayput.limits.calls_per_session" calls_of_a_session_are_limited |key| {
        key.set(json!(1)).shows(beside_on_one_session, ["error", "1"]).await;
    }
    "stayput.limits.sessions_per_owner" sessions_of_an_owner_are_limited |key| {
        key.set(json!(1)).shows(second_connection, ["429", "200"]).await;
    }
    "stayput.limits.headers" headers_of_a_request_are_limited |key| {
        let observe = async |stage| large(stage, true).await;
        key.set(json!("8KiB")).shows(observe, ["431", "200"]).await;
    }
    "stayput.limits.body" body_of_a_request_is_limited |key| {
        let observe = async |stage| large(stage, false).await;
        key.set(json!(10_000)).shows(observe, ["413", "200"]).await;
    }
    "stayput.limits.body_time" slow_body_is_refused |key| {
        key.set(json!("1s")).shows(slow_body, ["408", "200"]).await;
    }
    "stayput.limits.bodies" memory_of_bodies_is_limited |key| {
        let limits = json!({ "body": "1MiB", "per_owner": { "bodies": "1MiB" } });
        let key = key.with(&proxy()).with(&json!({ "limits": limits }));
        let observe = async |stage| second_body(stage, "bob").await;
        key.set(json!("1MiB")).shows(observe, ["503", "200"]).await;
    }
    "stayput.limits.per_owner.bodies" memory_of_bodies_of_an_owner_is_limited |key| {
        let key = key.with(&proxy()).with(&json!({ "limits": { "body": "1MiB" } }));
        let observe = async |stage| second_body(stage, "ann").await;
        key.set(json!("1MiB")).shows(observe, ["429", "200"]).await;
    }
    "stayput.limits.stall" stalled_head_is_closed |key| {
        key.set(json!("1s")).shows(half_a_head, ["closed", "silence"]).await;
    }
    "stayput.limits.sockets" sockets_are_limited |key| {
        key.set(json!(1)).shows(second_socket, ["503", "200"]).await;
    }
    "stayput.limits.sockets_per_address" sockets_of_an_address_are_limited |key| {
        key.set(json!(1)).shows(second_socket, ["503", "200"]).await;
    }
    "stayput.limits.drain" drain_ends_calls_at_a_stop |key| {
        key.set(json!("100ms")).shows(stop, ["error", "done"]).await;
    }
}
