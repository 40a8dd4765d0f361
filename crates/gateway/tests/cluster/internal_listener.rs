//! Attacks on the internal listener.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

use crate::{
    replicas::{Database, settings},
    support::{Gateway, mark, stdio},
};

/// Relay in front of the internal listener of a replica, which records what the others send, and can spoil their signatures.
struct Relay {
    address: String,
    recorded: Arc<Mutex<Vec<u8>>>,
    spoils: Arc<AtomicBool>,
}

impl Relay {
    async fn bind() -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (Self { address, recorded: Arc::default(), spoils: Arc::default() }, listener)
    }

    /// Passes connections on to `to`.
    fn run(&self, listener: TcpListener, to: String) {
        let (recorded, spoils) = (self.recorded.clone(), self.spoils.clone());
        tokio::runtime::Handle::current().spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&to).await.unwrap();
                let (recorded, spoils) = (recorded.clone(), spoils.clone());
                tokio::runtime::Handle::current().spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    tokio::runtime::Handle::current().spawn(async move {
                        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                    });
                    let mut bytes = [0; 1 << 14];
                    while let Ok(size @ 1..) = from_client.read(&mut bytes).await {
                        recorded.lock().await.extend_from_slice(&bytes[..size]);
                        let name = b"stayput-signature: v1";
                        let at = bytes[..size].windows(name.len()).position(|it| it == name);
                        if let Some(at) = at.filter(|_| spoils.load(Ordering::Relaxed)) {
                            bytes[at + name.len() - 1] = b'2';
                        }
                        if to_server.write_all(&bytes[..size]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
}

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
        let (relay, listener) = Relay::bind().await;
        // A port that is free now. The relay has to know it before the gateway starts.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let internal = format!("127.0.0.1:{port}");
        let mut held = settings(database.url());
        held["cluster"]["listen"] = json!(internal);
        held["cluster"]["advertise"] = json!(format!("http://{}", relay.address));
        relay.run(listener, internal.clone());
        let holder = Gateway::with(servers.clone(), held).await;
        let ingress = Gateway::with(servers, settings(database.url())).await;
        Self { relay, internal, holder, ingress }
    }
}

/// A replica that refuses the signature of another one would do so again: the request is sent once, and fails.
#[tokio::test]
async fn refused_signature_is_final() {
    let (mark, database) = (mark("cluster-refused"), Database::redis().await);
    let Behind { relay, holder, ingress, .. } = Behind::start(&mark, &database).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&ingress, "count").await, "1");
    relay.spoils.store(true, Ordering::Relaxed);
    let call =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "count" } });
    let answer = client.send(&ingress, &call.to_string()).await;
    assert_eq!(answer.status, 503);
    let text = answer.message().await.to_string();
    assert!(text.contains("nothing was run") && text.contains("refuses"), "{text}");
    assert_eq!(ingress.log().matches("refused a request").count(), 1, "{}", ingress.log());
    relay.spoils.store(false, Ordering::Relaxed);
    assert_eq!(client.text(&ingress, "count").await, "2");
}

/// Requests without a valid signature are refused, and none of them is run: the recorded one was the only count.
#[tokio::test]
async fn internal_listener_accepts_only_what_a_replica_signed_once() {
    let (mark, database) = (mark("cluster-attack"), Database::redis().await);
    let Behind { relay, internal, holder, ingress } = Behind::start(&mark, &database).await;
    let client = holder.client("local").await;
    assert_eq!(client.text(&holder, "count").await, "1");
    relay.recorded.lock().await.clear();
    assert_eq!(client.text(&ingress, "count").await, "2");
    let signed = relay.recorded.lock().await.clone();
    let text = String::from_utf8(signed.clone()).unwrap();
    assert!(text.contains("stayput-signature: v1 "), "{text}");
    assert!(!text.contains("authorization"), "{text}");
    assert_eq!(status(&internal, &signed).await, 421, "a replay");
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
    // A gateway with an old key: the cluster refuses what it signs.
    let log = holder.log();
    assert!(log.contains("received before") && log.contains("not valid"), "{log}");
}
