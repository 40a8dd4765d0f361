//! Reports of losses that another replica passes on to the client.

use std::sync::Arc;

use serde_json::{Value, json};
use stayput_testkit::processes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
};

use crate::{
    replicas::{Database, settings},
    support::{Client, Gateway, LONG, gone, mark, stdio},
};

/// Relay in front of the internal listener of a replica, which can keep its answers back.
struct Relay {
    address: String,
    is_open: Arc<watch::Sender<bool>>,
    /// Bytes that were kept back.
    kept: Arc<watch::Sender<Vec<u8>>>,
}

impl Relay {
    async fn bind() -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_open = Arc::new(watch::Sender::new(true));
        (Self { address, is_open, kept: Arc::default() }, listener)
    }

    /// Passes connections on to `to`.
    fn run(&self, listener: TcpListener, to: String) {
        let (is_open, kept) = (self.is_open.clone(), self.kept.clone());
        Handle::current().spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(&to).await else { continue };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                Handle::current().spawn(async move {
                    let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                });
                let (is_open, kept) = (is_open.clone(), kept.clone());
                Handle::current().spawn(async move {
                    let (mut bytes, mut open) = ([0; 1 << 14], is_open.subscribe());
                    while let Ok(size @ 1..) = from_server.read(&mut bytes).await {
                        if !*open.borrow() {
                            kept.send_modify(|kept| kept.extend_from_slice(&bytes[..size]));
                        }
                        open.wait_for(|open| *open).await.unwrap();
                        if to_client.write_all(&bytes[..size]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }

    /// Waits until an answer with this text was kept back.
    async fn keeps(&self, text: &str) {
        let mut kept = self.kept.subscribe();
        let has = |kept: &Vec<u8>| String::from_utf8_lossy(kept).contains(text);
        tokio::time::timeout(LONG, kept.wait_for(has)).await.unwrap().unwrap();
    }
}

fn is_lost(answer: &Value) -> bool {
    answer["result"]["_meta"]["dev.stayput/state"]["state"] == "lost"
}

/// Replica that holds a session behind a relay, and two others.
struct Setup {
    relay: Relay,
    holder: Gateway,
    others: Vec<Gateway>,
    client: Client,
    mark: String,
}

impl Setup {
    async fn start(name: &str) -> (Self, Database) {
        let (mark, database) = (mark(name), Database::redis().await);
        let servers = json!({ "local": stdio(&mark, &[]) });
        let (relay, listener) = Relay::bind().await;
        // A port that is free now. The relay has to know it before the gateway starts.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let mut held = settings(database.url());
        held["cluster"]["listen"] = json!(format!("127.0.0.1:{port}"));
        held["cluster"]["advertise"] = json!(format!("http://{}", relay.address));
        relay.run(listener, format!("127.0.0.1:{port}"));
        let holder = Gateway::with(servers.clone(), held).await;
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(Gateway::with(servers.clone(), settings(database.url())).await);
        }
        let client = holder.client("local").await;
        assert_eq!(client.text(&holder, "count").await, "1");
        (Self { relay, holder, others, client, mark }, database)
    }

    async fn call(&self, replica: usize, tool: &str) -> Value {
        self.client.call(&self.others[replica], tool, json!({})).await
    }
}

/// Invariant 3: a replica dies between the holder and the client of a call that reports a loss. The client has not got
/// the report, so its next call does.
#[tokio::test]
async fn loss_is_reported_again_if_the_replica_with_its_report_dies() {
    let (mut setup, _database) = Setup::start("cluster-receipt").await;
    assert!(!is_lost(&setup.call(0, "count").await));
    setup.relay.is_open.send_replace(false);
    let mut first = setup.others.remove(0);
    let url = first.at("local");
    let id = setup.client.id.clone();
    let call = Handle::current().spawn(async move {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
            "name": "crash", "arguments": {},
        }});
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", &*id),
        ];
        let sent = stayput_testkit::mcp::send(http::Method::POST, &url, &headers, body.to_string());
        sent.await.is_err()
    });
    setup.relay.keeps("was lost").await;
    tokio::task::spawn_blocking(move || first.kill()).await.unwrap();
    assert!(tokio::time::timeout(LONG, call).await.unwrap().unwrap(), "the client got an answer");
    setup.relay.is_open.send_replace(true);
    let told = setup.call(0, "count").await;
    assert!(is_lost(&told), "{told} {}", setup.holder.log());
    assert_eq!(setup.client.text(&setup.others[0], "count").await, "1");
    drop((setup.holder, setup.others));
    gone(&setup.mark).await;
}

/// A loss whose report has reached the client is not reported again, whichever replica the next call goes to.
#[tokio::test]
async fn loss_is_reported_once_through_another_replica() {
    let (setup, _database) = Setup::start("cluster-receipt-once").await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = setup.holder.client("local").await;
        assert_eq!(client.text(&setup.holder, "count").await, "1");
        clients.push(client);
    }
    for pid in processes::with_token(&setup.mark) {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    gone(&setup.mark).await;
    for (turn, client) in clients.iter().enumerate() {
        let [one, two] = [&setup.others[turn % 2], &setup.others[(turn + 1) % 2]];
        let told = client.call(one, "count", json!({})).await;
        assert!(is_lost(&told), "{told}");
        assert_eq!(client.text(two, "count").await, "1");
    }
    drop((setup.holder, setup.others));
    gone(&setup.mark).await;
}
