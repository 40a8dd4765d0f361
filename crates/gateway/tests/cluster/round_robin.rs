//! Many clients behind a balancer without stickiness: no request fails, and none runs twice.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{
    mcp::{Answer, TestServer, send},
    peers, processes,
};
use tokio::time::timeout;

use crate::{
    driven::Driven,
    modern::Modern,
    replicas::{Database, Replicas, settings},
    support::{LONG, gone, mark, stdio},
};

/// Sessions of the clients of each kind: half of them on stdio.
const LEGACY: usize = 80;
const MODERN: usize = 60;
const OF_EACH_SDK: usize = 10;

/// Calls of a session, one after the other, and then at the same time.
const IN_TURN: u64 = 4;
const AT_ONCE: u64 = 3;

/// Servers behind the replicas.
const SERVERS: [&str; 2] = ["local", "web"];

/// Clients of SDKs: file, and mode of the negotiation. Those of the modern era name their session in a header.
const SDKS: [(&str, &str); 3] =
    [("python_sdk.py", "legacy"), ("typescript2.mjs", "legacy"), ("python_sdk.py", "auto")];

/// Client of the legacy era that sends each request once, over a new connection.
struct Raw {
    url: String,
    id: String,
    /// Id of the last request.
    last: AtomicU64,
}

impl Raw {
    async fn open(url: &str) -> Self {
        let mut client = Self { url: url.to_owned(), id: String::new(), last: AtomicU64::new(0) };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "raw", "version": "1" },
        });
        let opened = client.request("initialize", &params).await;
        client.id = opened.header("mcp-session-id").to_owned();
        assert_eq!(opened.status, 200);
        assert!(opened.message().await["result"].is_object());
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&ready).await.status, 202);
        client
    }

    async fn send(&self, method: Method, body: String) -> Answer {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        if !self.id.is_empty() {
            headers.push(("mcp-session-id", &self.id));
        }
        timeout(LONG, send(method, &self.url, &headers, body)).await.unwrap().unwrap()
    }

    async fn post(&self, body: &Value) -> Answer {
        self.send(Method::POST, body.to_string()).await
    }

    async fn request(&self, method: &str, params: &Value) -> Answer {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await
    }

    async fn count(&self) -> u64 {
        let answer = self.request("tools/call", &json!({ "name": "count" })).await;
        assert_eq!(answer.status, 200);
        let answer = timeout(LONG, answer.message()).await.unwrap();
        assert!(answer["result"].is_object(), "{answer}");
        number(&answer["result"])
    }

    async fn close(self) {
        assert_eq!(self.send(Method::DELETE, String::new()).await.status, 200);
    }
}

/// Returns the count in a result.
fn number(result: &Value) -> u64 {
    let text = result["content"][0]["text"].as_str().and_then(|text| text.parse().ok());
    text.filter(|_| result["isError"] != true).unwrap_or_else(|| panic!("{result}"))
}

/// Checks that each call of a session counts one more than the one before.
async fn check_counts(attempts: &AtomicU64, count: impl AsyncFn() -> u64) {
    let call = async || {
        attempts.fetch_add(1, Ordering::Relaxed);
        count().await
    };
    for expected in 1..=IN_TURN {
        assert_eq!(call().await, expected);
    }
    let mut counts = join_all((0..AT_ONCE).map(|_| call())).await;
    counts.sort_unstable();
    let expected: Vec<_> = (IN_TURN + 1..=IN_TURN + AT_ONCE).collect();
    assert_eq!(counts, expected);
}

/// Runs the sessions of one client of an SDK, and leaves them open.
async fn check_sdk(attempts: &AtomicU64, url: &str, (file, mode): (&str, &str)) -> Driven {
    let mut client = Driven::start(&peers::client(file), &[url, mode]);
    let name = |session| format!("{file}-{session}");
    for session in 0..OF_EACH_SDK {
        let headers = match mode {
            "legacy" => json!({}),
            _ => json!({ "stayput-session": format!("key:{}", name(session)) }),
        };
        client.open_with(&name(session), headers).await;
    }
    for expected in 1..=IN_TURN {
        for session in 0..OF_EACH_SDK {
            attempts.fetch_add(1, Ordering::Relaxed);
            assert_eq!(client.count(&name(session)).await, expected, "{file}");
        }
    }
    client
}

/// Runs all clients at the same time.
async fn check_clients(attempts: &AtomicU64, balancer: &str, mark: &str) {
    let url = |number: usize| format!("{balancer}/mcp/{}", SERVERS[number % SERVERS.len()]);
    let legacy = join_all((0..LEGACY).map(async |number| {
        let client = Raw::open(&url(number)).await;
        check_counts(attempts, || client.count()).await;
        client
    }));
    let modern = join_all((0..MODERN).map(async |number| {
        let client = Modern::direct(&url(number)).named(&format!("chat-{number}"));
        check_counts(attempts, async || number_of(&client).await).await;
    }));
    let sdks = SDKS.iter().flat_map(|sdk| SERVERS.iter().map(move |server| (sdk, server)));
    let sdks = join_all(sdks.map(async |(sdk, server)| {
        check_sdk(attempts, &format!("{balancer}/mcp/{server}"), *sdk).await
    }));
    let (legacy, _, sdks) = tokio::join!(legacy, modern, sdks);
    let sessions = LEGACY + MODERN + SDKS.len() * SERVERS.len() * OF_EACH_SDK;
    assert_eq!(sessions, 200);
    assert_eq!(processes::with_token(mark).len(), sessions / 2, "one process for each session");
    drop(sdks);
    join_all(legacy.into_iter().map(Raw::close)).await;
}

async fn number_of(client: &Modern) -> u64 {
    number(&client.call("count", json!({})).await)
}

/// Number of calls in the log of all processes of a server.
fn logged_calls(log: &Path) -> u64 {
    let log = std::fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.contains("\"tools/call\"")).count() as u64
}

/// §7: any replica takes any request. Attempts of the clients are as many as executions of the servers.
async fn check_round_robin(database: &Database, name: &str) {
    if peers::are_left_out() {
        return;
    }
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let folder = tempfile::TempDir::new().unwrap();
    let log = folder.path().join("calls");
    let local = stdio(&mark, &["--log", log.to_str().unwrap()]);
    let mut settings = settings(database.url());
    // No replica fails here, and a hundred processes start at once: a busy machine is not to end a lease.
    settings["lease"] = json!("15s");
    settings["limits"] = json!({ "processes": 200, "per_owner": { "processes": 200 } });
    let servers = json!({ "local": local, "web": { "url": web.url() } });
    let replicas = Replicas::with(&servers, &settings).await;
    let balancer = replicas.balancer().await;
    let attempts = AtomicU64::new(0);
    check_clients(&attempts, &balancer.url(), &mark).await;
    let executions = logged_calls(&log) + web.counted("tools/count").await;
    assert_eq!(executions, attempts.into_inner(), "{}", replicas.logs());
    let mut shares = BTreeMap::<_, usize>::new();
    let requests = balancer.requests();
    for request in &requests {
        *shares.entry(&request.gateway).or_default() += 1;
        // The stream of a client that is gone has no other status.
        let is_closed = request.method == "GET" && request.status == 499;
        assert!(request.status < 300 || is_closed, "{request:?}");
    }
    let fair = requests.len() / 3;
    assert!(shares.len() == 3 && shares.values().all(|it| it.abs_diff(fair) <= 2), "{shares:?}");
    drop((balancer, replicas));
    gone(&mark).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_behind_a_round_robin_on_postgres() {
    check_round_robin(&Database::postgres().await, "round-robin-postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_behind_a_round_robin_on_redis() {
    check_round_robin(&Database::redis().await, "round-robin-redis").await;
}
