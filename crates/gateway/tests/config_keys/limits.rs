//! Limits of the gateway, and of each owner.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::kit::{Peer, Stage, address, end_of, hello, occupy, raw, try_occupy};

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

/// Observer: long calls on more and more connections, until one is refused. The memory of processes is measured every
/// few seconds.
async fn more_and_more(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let mut busy = Vec::new();
    for _ in 0..12 {
        let next = Peer::default().connect(&gateway).await.unwrap();
        match try_occupy(&gateway, &next, 60_000).await {
            Some(events) => busy.push(events),
            None => return "refused".to_owned(),
        }
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
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

/// Observer: whether one of thirty requests at once is refused.
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

/// Observer: the answer to a head that does not end.
async fn half_a_head(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    raw(&gateway, b"GET /healthz HTTP/1.1\r\n").await
}

/// Observer: the answer on a second socket while the first one is open.
async fn second_socket(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let mut first = TcpStream::connect(address(&gateway)).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", address(&gateway));
    first.write_all(request.as_bytes()).await.unwrap();
    assert!(first.read(&mut [0; 12]).await.unwrap() > 0);
    raw(&gateway, request.as_bytes()).await
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
        key.set(json!("1MiB")).shows(more_and_more, ["refused", "all"]).await;
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
    "stayput.limits.stall" stalled_head_is_closed |key| {
        key.set(json!("1s")).shows(half_a_head, ["closed", "silence"]).await;
    }
    "stayput.limits.sockets" sockets_are_limited |key| {
        key.set(json!(1)).shows(second_socket, ["503", "200"]).await;
    }
    "stayput.limits.drain" drain_ends_calls_at_a_stop |key| {
        key.set(json!("100ms")).shows(stop, ["error", "done"]).await;
    }
}
