//! Restart of all replicas, one after the other, under load.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{
    mcp::{TestServer, send},
    processes,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    replicas::{Database, free_port, settings},
    support::{Gateway, LONG, gone, mark, stdio},
    writer::Writer,
};

/// Servers behind the replicas.
const SERVERS: [&str; 2] = ["local", "web"];

/// Clients: half of them legacy, half modern, half on stdio.
const CLIENTS: usize = 12;

/// Pause between two looks at `/readyz`, and between two calls of a client.
const READY_INTERVAL: Duration = Duration::from_millis(20);
const CALL_INTERVAL: Duration = Duration::from_millis(10);

/// Calls of each client between two restarts.
const CALLS_BETWEEN: usize = 15;

/// Round robin over the replicas that are ready, as a balancer with health checks has it.
#[derive(Default)]
struct ReadyReplicas {
    urls: Mutex<Vec<String>>,
    turn: AtomicUsize,
}

impl ReadyReplicas {
    fn next(&self) -> String {
        let urls = self.urls.lock().unwrap();
        urls[self.turn.fetch_add(1, Ordering::Relaxed) % urls.len()].clone()
    }

    /// Waits until a replica is ready, or is not any more, and sends it requests accordingly.
    async fn follow(&self, gateway: &Gateway, is_ready: bool) {
        let (url, start) = (format!("{}/readyz", gateway.url), Instant::now());
        loop {
            let answer = send(Method::GET, &url, &[], "").await;
            if answer.is_ok_and(|answer| answer.status == 200) == is_ready {
                break;
            }
            assert!(start.elapsed() < LONG, "{}", gateway.log());
            sleep(READY_INTERVAL).await;
        }
        let mut urls = self.urls.lock().unwrap();
        match is_ready {
            true => urls.push(gateway.url.clone()),
            false => urls.retain(|url| *url != gateway.url),
        }
    }
}

fn is_legacy(client: usize) -> bool {
    (client / SERVERS.len()).is_multiple_of(2)
}

/// Client that writes until it is told to stop.
struct RunningClient {
    task: JoinHandle<Writer>,
    /// Number of calls that have ended.
    calls: watch::Receiver<usize>,
}

impl RunningClient {
    fn spawn(
        mut writer: Writer,
        (server, replicas): (&'static str, Arc<ReadyReplicas>),
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (count, calls) = watch::channel(0);
        let task = tokio::runtime::Handle::current().spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                writer.write(&format!("{}/mcp/{server}", replicas.next())).await;
                count.send_modify(|calls| *calls += 1);
                sleep(CALL_INTERVAL).await;
            }
            writer
        });
        Self { task, calls }
    }

    /// Waits for some calls from now on.
    async fn wait_for_calls(&self) {
        let mut calls = self.calls.clone();
        let enough = *calls.borrow() + CALLS_BETWEEN;
        timeout(LONG, calls.wait_for(|calls| *calls >= enough)).await.unwrap().unwrap();
    }
}

/// Waits until each client has made some calls to the replicas as they are now.
async fn wait_for_calls(clients: &[RunningClient]) {
    join_all(clients.iter().map(RunningClient::wait_for_calls)).await;
}

/// Starts a replica that has the same addresses after each restart.
async fn start(servers: &Value, database: &Database) -> Gateway {
    let mut settings = settings(database.url());
    settings["limits"] = json!({ "drain": "1s" });
    settings["cluster"]["listen"] = json!(format!("127.0.0.1:{}", free_port()));
    let mut gateway = Gateway::with(servers.clone(), settings).await;
    assert!(gateway.stop().success());
    gateway.restart_in_place().await;
    gateway
}

fn logs(replicas: &[Gateway]) -> String {
    replicas.iter().map(Gateway::log).collect::<Vec<_>>().join("\n---\n")
}

/// Restarts a replica as an update does: SIGTERM, then a new start at the same address.
async fn restart(gateway: &mut Gateway, ready: &ReadyReplicas) {
    gateway.signal("-TERM");
    ready.follow(gateway, false).await;
    let pid = gateway.pid();
    while processes::is_alive(pid) {
        processes::wait_for_exit(&[pid]).await;
    }
    assert!(gateway.wait().success());
    gateway.restart().await;
    ready.follow(gateway, true).await;
}

/// §7: no request to an HTTP server fails, and each loss of a process is reported once.
async fn check_restart(database: &Database, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let (mut replicas, ready) = (Vec::new(), Arc::new(ReadyReplicas::default()));
    for _ in 0..3 {
        let replica = start(&servers, database).await;
        ready.follow(&replica, true).await;
        replicas.push(replica);
    }
    let (stop, mut running) = (Arc::new(AtomicBool::new(false)), Vec::new());
    for client in 0..CLIENTS {
        let (server, name) = (SERVERS[client % 2], format!("r{client}"));
        let url = format!("{}/mcp/{server}", ready.next());
        let writer = match is_legacy(client) {
            true => Writer::open(&[url], name).await,
            false => Writer::modern(name),
        };
        running.push(RunningClient::spawn(writer, (server, ready.clone()), stop.clone()));
    }
    wait_for_calls(&running).await;
    for replica in &mut replicas {
        restart(replica, &ready).await;
        wait_for_calls(&running).await;
    }
    stop.store(true, Ordering::Relaxed);
    let writers = join_all(running.into_iter().map(|client| client.task))
        .await
        .into_iter()
        .map(Result::unwrap);
    check_clients(&replicas, writers).await;
    drop(replicas);
    gone(&mark).await;
}

/// Compares what the clients were answered with what is promised.
async fn check_clients(replicas: &[Gateway], writers: impl Iterator<Item = Writer>) {
    let mut losses = 0;
    for (client, mut writer) in writers.enumerate() {
        let server = SERVERS[client % 2];
        let urls: Vec<_> = replicas.iter().map(|it| it.at(server)).collect();
        writer.verify(&urls, &format!("client {client} on {server}")).await;
        let answers = &writer.answers;
        assert!(answers.acknowledged > 20, "{client}: {answers:?}");
        if server == "web" {
            let failed = answers.refused + answers.uncertain + answers.losses;
            let failures = &writer.failures;
            assert_eq!(failed, 0, "client {client}: {failures:?} {}", logs(replicas));
        }
        if let Some(generation) = writer.generation {
            assert_eq!(generation, answers.losses as u64, "client {client}: {answers:?}");
        }
        losses += answers.losses;
    }
    // The holder of each session was restarted at least once, while the session was in use.
    assert!(losses >= CLIENTS / 2, "{losses}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_fails_no_request_on_postgres() {
    check_restart(&Database::postgres().await, "rolling-postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_fails_no_request_on_redis() {
    check_restart(&Database::redis().await, "rolling-redis").await;
}
