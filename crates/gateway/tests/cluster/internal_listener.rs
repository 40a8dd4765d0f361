//! Attacks on the internal listener.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::{Relay, processes};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    replicas::{Database, KEY, free_port, settings},
    support::{Client, Gateway, mark, stdio, until},
};

/// Sends bytes to the internal listener and returns the status of the answer.
async fn status(address: &str, request: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

/// Replica behind a relay, and another one.
struct Behind {
    relay: Relay,
    /// Address of the internal listener itself.
    internal: String,
    holder: Gateway,
    ingress: Gateway,
}

impl Behind {
    async fn start(mark: &str, database: &Database) -> Self {
        let servers = json!({ "local": stdio(mark, &[]) });
        // The relay has to know the port before the gateway starts.
        let port = free_port();
        let (relay, internal) = (Relay::to(port).await, format!("127.0.0.1:{port}"));
        let mut held = settings(database.url());
        held["cluster"]["listen"] = json!(internal);
        held["cluster"]["advertise"] = json!(relay.url("").trim_end_matches('/'));
        let holder = Gateway::with(servers.clone(), held).await;
        let ingress = Gateway::with(servers, settings(database.url())).await;
        Self { relay, internal, holder, ingress }
    }
}

/// Calls `count` through a replica whose request the other one refuses: it is sent once, and fails.
async fn check_refusal(client: &Client, ingress: &Gateway) {
    let before = ingress.log().matches("refused a request").count();
    let params = json!({ "name": "count" });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let answer = client.send(ingress, &call.to_string()).await;
    assert_eq!(answer.status, 503);
    let text = answer.message().await.to_string();
    assert!(text.contains("nothing was run") && text.contains("refuses"), "{text}");
    let refusals = || ingress.log().matches("refused a request").count();
    until("refusal in the log", || refusals() > before).await;
    assert_eq!(refusals(), before + 1, "{}", ingress.log());
}

/// Requests that are altered on their way to another replica are refused, and not run.
#[tokio::test]
async fn altered_request_is_refused_and_not_repeated() {
    let (mark, database) = (mark("cluster-refused"), Database::redis().await);
    let Behind { relay, holder, ingress, .. } = Behind::start(&mark, &database).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&ingress, "count").await, "1");
    for (part, from, to) in [
        ("version", "stayput-signature: v1", "stayput-signature: v2"),
        ("body", "\"count\"", "\"crash\""),
        ("method", "\"tools/call\"", "\"tools/list\""),
        ("owner", "stayput-principal: eyJ", "stayput-principal: eyK"),
        ("path", "POST /mcp/local", "POST /mcp/lokal"),
    ] {
        relay.alter(Some((from, to)));
        drop(relay.said());
        check_refusal(&client, &ingress).await;
        assert!(relay.said().contains(from), "{part}");
    }
    relay.alter(None);
    assert_eq!(client.text(&ingress, "count").await, "2");
}

/// A replica whose first key is one that the others do not accept any more may have another one in common with them. What
/// it signs is refused.
#[tokio::test]
async fn request_signed_by_an_old_key_is_refused() {
    let (mark, database) = (mark("cluster-old-key"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let with_keys = |keys: Value| {
        let mut settings = settings(database.url());
        settings["cluster"]["key"] = keys;
        settings
    };
    let holder = Gateway::with(servers.clone(), with_keys(json!(KEY))).await;
    let old = json!(["an-old-key-of-the-cluster-that-is-long-enough", KEY]);
    let ingress = Gateway::with(servers, with_keys(old)).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&holder, "count").await, "1");
    check_refusal(&client, &ingress).await;
    until("reason in the log", || holder.log().contains("signature is not valid")).await;
    assert_eq!(client.text(&holder, "count").await, "2");
}

/// Requests without a valid signature are refused, and none of them is run: the recorded one was the only count.
#[tokio::test]
async fn internal_listener_accepts_only_what_a_replica_signed_once() {
    let (mark, database) = (mark("cluster-attack"), Database::redis().await);
    let Behind { relay, internal, holder, ingress } = Behind::start(&mark, &database).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&holder, "count").await, "1");
    drop(relay.said());
    assert_eq!(client.text(&ingress, "count").await, "2");
    let text = relay.said();
    assert!(text.contains("stayput-signature: v1 "), "{text}");
    assert!(!text.contains("authorization"), "{text}");
    assert_eq!(status(&internal, text.as_bytes()).await, 421, "a replay");
    let altered = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        text.replacen(from, to, 1).into_bytes()
    };
    let line = |name: &str| {
        let line = text.lines().find(|line| line.to_lowercase().starts_with(name)).unwrap();
        format!("{line}\r\n")
    };
    let without = altered(&line("stayput-signature:"), "");
    assert_eq!(status(&internal, &without).await, 421, "no signature");
    let principal = line("stayput-principal:");
    let other = "stayput-principal: eyJvd25lciI6ImxvY2FsIiwiYWRtaW4iOnRydWV9\r\n";
    assert_eq!(status(&internal, &altered(&principal, other)).await, 421, "another owner");
    let body = altered("\"count\"", "\"crash\"");
    assert_eq!(status(&internal, &body).await, 421, "another body");
    let path = altered("POST /mcp/local", "POST /mcp/other");
    assert_eq!(status(&internal, &path).await, 421, "another path");
    let header = altered("mcp-session-id", "mcp-session-ix");
    assert_eq!(status(&internal, &header).await, 421, "another header");
    let plain = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(status(&internal, plain).await, 421, "no replica");
    // None of them was run.
    assert_eq!(client.text(&ingress, "count").await, "3");
    let log = holder.log();
    assert!(log.contains("received before") && log.contains("not valid"), "{log}");
}

/// Number of open sockets among these.
async fn count_open(sockets: &mut [TcpStream]) -> usize {
    let mut open = 0;
    for socket in sockets {
        let ended = async {
            let mut rest = [0; 1024];
            while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        };
        open += usize::from(tokio::time::timeout(Duration::from_millis(1), ended).await.is_err());
    }
    open
}

/// R170: sockets without a signature are limited, so that half heads take no more memory than their limit allows; the
/// oldest are closed, and requests of replicas go through meanwhile, on old connections and on new ones.
#[tokio::test]
async fn half_heads_are_limited_and_replicas_are_served() {
    let (mark, database) = (mark("cluster-heads"), Database::redis().await);
    let Behind { relay, internal, holder, ingress } = Behind::start(&mark, &database).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&ingress, "count").await, "1");
    let before = processes::open_files(holder.pid());
    let (mut sockets, mut next) = (Vec::new(), 2);
    for number in 0..800 {
        let mut socket = TcpStream::connect(&internal).await.unwrap();
        socket.write_all(b"POST /mcp/local HTTP/1.1\r\nhost: localhost\r\nx: y").await.unwrap();
        sockets.push(socket);
        if number % 100 == 99 {
            assert_eq!(client.text(&ingress, "count").await, next.to_string());
            // The next call needs a new connection.
            relay.cut();
            until("its connections are closed", || relay.open() == 0).await;
            next += 1;
        }
    }
    let files = || processes::open_files(holder.pid());
    until("the oldest half heads are closed", || files() < before + 600).await;
    let open = count_open(&mut sockets).await;
    assert!((256..=512).contains(&open), "{open} half heads are open");
    assert_eq!(client.text(&ingress, "count").await, next.to_string());
}

/// R170: a head that does not end, and one that is too large, end their connection to the internal listener.
#[tokio::test]
async fn heads_of_the_internal_listener_have_the_limits_of_the_public_one() {
    let (mark, database) = (mark("cluster-stalled"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["limits"] = json!({ "stall": "1s", "headers": "8KiB" });
    let port = free_port();
    settings["cluster"]["listen"] = json!(format!("127.0.0.1:{port}"));
    let _gateway = Gateway::with(json!({ "local": stdio(&mark, &[]) }), settings).await;
    let internal = format!("127.0.0.1:{port}");
    let mut half = TcpStream::connect(&internal).await.unwrap();
    half.write_all(b"GET /mcp/local HTTP/1.1\r\nx: y").await.unwrap();
    let large =
        format!("GET /mcp/local HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(32 << 10));
    assert_eq!(status(&internal, large.as_bytes()).await, 431);
    let mut rest = [0; 64];
    let ended = tokio::time::timeout(Duration::from_secs(10), half.read(&mut rest)).await.unwrap();
    assert!(ended.is_ok_and(|count| count == 0), "the half head was not cut off");
}
