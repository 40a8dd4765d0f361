//! Drain: the sessions of a replica that stops move to the others, and no request fails.

use std::{
    io::ErrorKind,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{TestServer, send};
use tokio::{net::TcpStream, process::Command, time::Instant};

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Client, Gateway, LONG, gone, mark, stdio},
};

/// Calls of each client after the replica has ended.
const CALLS_AFTER_STOP: usize = 20;

/// Calls `count`, as by a balancer that asks the next replica if one does not accept connections, or closes its listener at that
/// moment. Everything else that is not an answer fails the test.
async fn count(urls: &[String], turn: &AtomicUsize, client: &Client) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "count", "arguments": {},
    }});
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", &*client.id),
    ];
    let first = turn.fetch_add(1, Ordering::Relaxed);
    for step in 0..urls.len() {
        let at = (first + step) % urls.len();
        let url = format!("{}/mcp/{}", urls[at], client.server);
        match tokio::time::timeout(LONG, send(Method::POST, &url, &headers, call.to_string())).await
        {
            Ok(Ok(answer)) => {
                assert_eq!(answer.status, 200, "replica {at}, {}", client.server);
                return answer.message().await["result"].clone();
            }
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
            Ok(Err(error)) => {
                // A connection that was waiting to be accepted when the listener was closed. The request was not run: the
                // next count shows it.
                let again = TcpStream::connect(urls[at].trim_start_matches("http://")).await;
                assert!(again.is_err(), "replica {at}: {error:?}");
            }
            Err(_) => panic!("replica {at} does not answer"),
        }
    }
    panic!("no replica accepts connections")
}

/// Settings with this time to drain.
pub(crate) fn draining(store: &str, drain: &str) -> Value {
    let mut settings = settings(store);
    settings["limits"] = json!({ "drain": drain });
    // Nothing here depends on the end of a lease.
    settings["lease"] = json!("15s");
    settings
}

/// Opens `count` clients of a server at the first replica, which gets their sessions.
async fn clients(replica: &Gateway, server: &str, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = replica.client(server).await;
        assert_eq!(client.text(replica, "count").await, "1");
        clients.push(client);
    }
    clients
}

/// §7: while a replica stops, clients call through all of them. Sessions on HTTP servers go on without a handshake and without
/// a failed request. Sessions with processes are served until the deadline, and each reports its loss once.
#[tokio::test]
async fn replica_stops_without_a_failed_request() {
    for database in [Database::postgres().await, Database::redis().await] {
        check_stop(&database).await;
    }
}

async fn check_stop(database: &Database) {
    let (mark, web) = (mark("cluster-drain"), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let mut replicas = Replicas::with(&servers, &draining(database.url(), "2s")).await;
    let remote = clients(&replicas.all[0], "web", 6).await;
    let local = clients(&replicas.all[0], "local", 3).await;
    let handshakes = web.counted("initialize").await;
    let urls: Vec<_> = replicas.all.iter().map(|it| it.url.clone()).collect();
    let (turn, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut leaving = replicas.all.remove(0);
    let stop = async {
        let begin = Instant::now();
        let stop = tokio::task::spawn_blocking(move || (leaving.stop().success(), leaving.log()));
        let (success, log) = stop.await.unwrap();
        assert!(success, "{log}");
        assert!(log.contains("6 sessions have moved, and 3 were given up"), "{log}");
        stopped.store(true, Ordering::Relaxed);
        begin.elapsed()
    };
    let goes_on = async |client: &Client| {
        let (mut counted, mut after) = (1, 0);
        while after < CALLS_AFTER_STOP {
            after += usize::from(stopped.load(Ordering::Relaxed));
            counted += 1;
            let result = count(&urls, &turn, client).await;
            assert_eq!(result["content"][0]["text"], counted.to_string(), "{result}");
        }
        counted
    };
    let loses_once = async |client: &Client| {
        let (mut counted, mut losses, mut before, mut after) = (1, 0, 0, 0);
        while after < CALLS_AFTER_STOP || losses == 0 {
            after += usize::from(stopped.load(Ordering::Relaxed));
            let result = count(&urls, &turn, client).await;
            if result["_meta"]["dev.stayput/state"]["state"] == "lost" {
                (before, counted, losses) = (counted, 0, losses + 1);
            } else {
                counted += 1;
                assert_eq!(result["content"][0]["text"], counted.to_string(), "{result}");
            }
        }
        assert!(before > 5, "it was not served while the replica drained: {before}");
        losses
    };
    let (lasted, counts, losses) = tokio::join!(
        stop,
        join_all(remote.iter().map(goes_on)),
        join_all(local.iter().map(loses_once)),
    );
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(losses, [1, 1, 1], "{}", replicas.logs());
    assert_eq!(web.counted("initialize").await, handshakes, "there was a new handshake");
    assert!(lasted < Duration::from_secs(20), "{lasted:?}");
    drop(replicas);
    gone(&mark).await;
}

/// Runs `stayput drain` for a gateway.
pub(crate) async fn drain(gateway: &Gateway, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.arg("drain").args(arguments).arg("--config").arg(gateway.config());
    let output = command.env("XDG_DATA_HOME", gateway.folder.path().join("data")).output();
    let output = tokio::time::timeout(LONG, output).await.unwrap().unwrap();
    let text = [&*output.stdout, &*output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// `stayput drain` moves the sessions and leaves the gateway running: it forwards requests, also those for new sessions.
#[tokio::test]
async fn drained_replica_forwards_and_takes_no_session() {
    let (mark, database) = (mark("cluster-drain-command"), Database::redis().await);
    let web = TestServer::http(&["--era", "legacy"]).await;
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let replicas = Replicas::with(&servers, &draining(database.url(), "1s")).await;
    let first = &replicas.all[0];
    let (remote, local) = (clients(first, "web", 3).await, clients(first, "local", 1).await);
    let mut stream = remote[0].get(first, None).await.events();
    let (success, told) = drain(first, &["--json"]).await;
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
    assert!(success);
    assert_eq!(told, json!({ "phase": "drained", "moved": 3, "given_up": 1, "held": 0 }));
    let ended = async { while stream.message().await.is_some() {} };
    tokio::time::timeout(LONG, ended).await.expect("a stream at the drained replica ends");
    let ready = send(Method::GET, &format!("{}/readyz", first.url), &[], "").await.unwrap();
    assert_eq!(ready.status, 503);
    assert!(String::from_utf8_lossy(&ready.bytes().await.unwrap()).contains("draining"));
    for client in &remote {
        assert_eq!(client.text(first, "count").await, "2", "{}", replicas.logs());
    }
    let lost = local[0].call(first, "count", json!({})).await;
    assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    assert!(lost.to_string().contains("the gateway that held it was stopped"), "{lost}");
    assert_eq!(local[0].text(first, "count").await, "1");
    for client in clients(first, "local", 4).await {
        assert_eq!(client.text(&replicas.all[1], "count").await, "2");
    }
    let _stream = remote[0].get(first, None).await.events();
    let (success, told) = drain(first, &[]).await;
    assert!(
        success && told.contains("3 sessions moved") && told.contains("1 session had"),
        "{told}"
    );
    drop(replicas);
    gone(&mark).await;
}

/// A gateway without another one that could take its sessions keeps them, and says so.
#[tokio::test]
async fn lone_gateway_does_not_drain() {
    let database = Database::redis().await;
    let servers = json!({ "local": stdio(&mark("cluster-drain-lone"), &[]) });
    let lone = Gateway::with(servers, draining(database.url(), "1s")).await;
    let client = lone.client("local").await;
    assert_eq!(client.text(&lone, "count").await, "1");
    let (success, told) = drain(&lone, &[]).await;
    assert!(!success && told.contains("no other gateway of a cluster"), "{told}");
    assert_eq!(client.text(&lone, "count").await, "2");
    let ready = send(Method::GET, &format!("{}/readyz", lone.url), &[], "").await.unwrap();
    assert_eq!(ready.status, 200);
}
