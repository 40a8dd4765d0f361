//! Attacks of one owner on memory, workers and sockets, beside another owner who keeps getting answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    time::Instant,
};

use super::{
    Somebody,
    support::{Gateway, LONG, gone, mark, stdio},
    token,
};

/// Gateway with Ann, who attacks, and Bob.
struct Stage {
    gateway: Gateway,
    mark: String,
    anns: String,
    ann: Arc<Somebody>,
    bob: Arc<Somebody>,
    cleo: Arc<Somebody>,
}

impl Stage {
    async fn new(name: &str, limits: Value) -> Self {
        Self::with(name, &[], limits).await
    }

    /// Starts the gateway with a server that has these options, and shows its tools with a session argument.
    async fn with(name: &str, options: &[&str], limits: Value) -> Self {
        let mark = mark(name);
        let [ann, bob, cleo] = ["ann", "bob", "cleo"].map(token);
        let tokens = json!({ "ann": ann.1, "bob": bob.1, "cleo": cleo.1 });
        let mut servers = json!({ "test": stdio(&mark, options) });
        servers["test"]["stayput"] = json!({ "handles": "always" });
        let settings = json!({ "auth": { "tokens": tokens }, "limits": limits });
        let gateway = Gateway::with(servers, settings).await;
        let [anns, bobs, cleos] = [ann.0, bob.0, cleo.0];
        let [ann, bob, cleo] =
            [&anns, &bobs, &cleos].map(|token| Arc::new(Somebody::bearer(token)));
        Self { gateway, mark, anns, ann, bob, cleo }
    }

    fn url(&self) -> String {
        self.gateway.at("test")
    }

    /// Begins a POST of Ann whose body has this length, and sends `part` of it.
    async fn begin(&self, length: usize, part: &[u8]) -> TcpStream {
        begin(&self.gateway, (&self.anns, length), part).await
    }

    /// Lets Bob make `calls` calls while Ann attacks.
    async fn bob_calls(&self, calls: usize) {
        let connection = self.bob.connect(&self.url()).await;
        for expected in 1..=calls {
            let counted = self.bob.text(&self.url(), &connection, "count").await;
            assert_eq!(counted, expected.to_string());
        }
    }

    /// Processor time of the gateway so far, in ticks of the system.
    fn processor_time(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.gateway.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    async fn end(self) {
        drop(self.gateway);
        gone(&self.mark).await;
    }
}

/// Begins a POST with this token whose body has this length, and sends `part` of it.
async fn begin(gateway: &Gateway, (token, length): (&str, usize), part: &[u8]) -> TcpStream {
    let mut socket = gateway.socket().await;
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: \
         application/json\r\naccept: application/json, text/event-stream\r\nexpect: 100-continue\r\n\
         content-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // The gateway asks for the body, so the request is in progress.
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let _ = socket.write_all(part).await;
    socket
}

/// Reads a response up to the end of the connection. A reset counts as an end.
async fn rest(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while let Ok(length @ 1..) =
        tokio::time::timeout(LONG, socket.read(&mut part)).await.expect("an answer in time")
    {
        said.extend_from_slice(&part[..length]);
    }
    String::from_utf8(said).unwrap()
}

/// Call of `count` with a string of this length as an argument.
fn call_with(length: usize) -> String {
    let padding = "x".repeat(length);
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "count", "arguments": { "padding": padding } } })
    .to_string()
}

/// R170: bodies have a memory budget per owner and in all. A body over it is refused with a sentence, and is taken when
/// others are gone.
#[tokio::test]
async fn bodies_over_the_memory_budget_are_refused() {
    let limits = json!({ "body": "1MiB", "bodies": "2MiB", "per_owner": { "bodies": "1MiB" } });
    let stage = Stage::new("body-budget", limits).await;
    let (url, large) = (stage.url(), call_with(600_000));
    let held = stage.begin(1_000_000, b"{").await;
    let refused = stage.ann.ask(Method::POST, &url, &large).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    let sentence = refused.json().await["error"]["message"].to_string();
    assert!(
        sentence.contains("1048576 bytes") && sentence.contains("per_owner.bodies"),
        "{sentence}"
    );
    // The session is missing, but the body was read.
    assert_eq!(stage.bob.ask(Method::POST, &url, &large).await.status, 400);
    let bobs = stage.bob.headers[0].1.trim_start_matches("Bearer ").to_owned();
    let other = begin(&stage.gateway, (&bobs, 1_000_000), b"{").await;
    let refused = stage.cleo.ask(Method::POST, &url, &large).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), "1");
    let sentence = refused.json().await["error"]["message"].to_string();
    assert!(
        sentence.contains("2097152 bytes") && sentence.contains("`limits.bodies`"),
        "{sentence}"
    );
    drop((held, other));
    let start = Instant::now();
    while stage.ann.ask(Method::POST, &url, &large).await.status != 400 {
        assert!(start.elapsed() < LONG);
    }
    stage.end().await;
}

/// R170: a body that comes steadily, but takes too long as a whole, is refused. Others get answers meanwhile.
#[tokio::test]
async fn body_that_takes_too_long_is_refused() {
    let stage = Stage::new("body-time", json!({ "body_time": "2s" })).await;
    let start = Instant::now();
    let drips: Vec<_> = (0..16)
        .map(|_| {
            let (token, url) = (stage.anns.clone(), stage.gateway.url.clone());
            Handle::current().spawn(async move {
                let mut socket = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
                let head = format!(
                    "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
                     content-length: 3000000\r\n\r\n"
                );
                socket.write_all(head.as_bytes()).await.unwrap();
                let (mut read, mut write) = socket.into_split();
                // Faster than the slowest rate, so that only the total time ends it.
                let drip = async {
                    while write.write_all(&[b' '; 4_000]).await.is_ok() {
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
                String::from_utf8_lossy(&said[..length]).into_owned()
            })
        })
        .collect();
    stage.bob_calls(20).await;
    for drip in drips {
        let said = drip.await.unwrap();
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("limits.body_time"), "{said}");
    }
    assert!(start.elapsed() >= Duration::from_secs(2));
    stage.end().await;
}

/// R170: `_meta` with too many members or bytes is refused before it is read by any later step.
#[tokio::test]
async fn large_meta_is_refused() {
    let stage = Stage::new("large-meta", json!({})).await;
    let (url, connection) = (stage.url(), stage.ann.connect(&stage.url()).await);
    let ann = stage.ann.and("mcp-session-id", &connection);
    let ask = async |meta: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": "count", "arguments": {}, "_meta": meta } });
        let answer = ann.ask(Method::POST, &url, &body.to_string()).await;
        (answer.status.as_u16(), answer.message().await)
    };
    let members = |count: usize| {
        (0..count).map(|number| (format!("k{number}"), json!(0))).collect::<serde_json::Map<_, _>>()
    };
    let (status, answer) = ask(members(1024).into()).await;
    assert_eq!((status, &answer["result"]["content"][0]["text"]), (200, &json!("1")), "{answer}");
    for meta in [members(1025).into(), json!({ "x": "x".repeat(300_000) })] {
        let (status, answer) = ask(meta).await;
        assert_eq!(
            (status, &answer["error"]["code"], &answer["id"]),
            (200, &json!(-32602), &json!(7))
        );
        let sentence = answer["error"]["message"].as_str().unwrap();
        assert!(sentence.contains("1024 members or 262144 bytes"), "{sentence}");
    }
    assert_eq!(stage.ann.text(&url, &connection, "count").await, "2");
    stage.end().await;
}

/// R170: bytes count against the rate of an owner, and of no other.
#[tokio::test]
async fn large_bodies_use_up_the_rate() {
    let stage =
        Stage::new("byte-rate", json!({ "per_owner": { "requests_per_second": 10 } })).await;
    let url = stage.url();
    let connection = stage.ann.connect(&url).await;
    let ann = stage.ann.and("mcp-session-id", &connection);
    let answer = ann.ask(Method::POST, &url, &call_with(4 << 20)).await;
    assert_eq!(answer.status, 200);
    let refused = stage.ann.call(&url, &connection, "count").await;
    assert_eq!(refused.status, 429);
    // 64 requests cost 6.4 s, of which the burst covers 2 s.
    assert!((3..=5).contains(&refused.header("retry-after").parse::<u64>().unwrap()));
    stage.bob_calls(5).await;
    stage.end().await;
}

/// R170: 16 connections with bodies of 31 MiB and millions of members in `_meta` stop no other client, and use no more
/// memory than the budget.
#[tokio::test]
async fn flood_of_large_bodies_neither_stalls_nor_exhausts_the_gateway() {
    let budget = 64 << 20;
    let limits = json!({ "per_owner": { "bodies": budget, "requests_per_second": "unlimited" } });
    let stage = Stage::new("body-flood", limits).await;
    stage.bob_calls(5).await;
    let quiet = stage.gateway.peak_memory();
    let meta = "\"\":0,".repeat(31 * (1 << 20) / 5);
    let body = Arc::new(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{meta}"x":0}}}}}}"#
    ));
    let (done, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let flood: Vec<_> = (0..16)
        .map(|_| {
            let (body, done, sent) = (body.clone(), done.clone(), sent.clone());
            let (token, url) = (stage.anns.clone(), stage.gateway.url.clone());
            std::thread::spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    send_blocking(&url, &token, body.as_bytes());
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    // Each connection has sent a whole body, however long that takes. A stalled gateway fails the calls of Bob.
    while sent.load(Ordering::SeqCst) < 16 {
        stage.bob_calls(10).await;
    }
    stage.bob_calls(50).await;
    done.store(true, Ordering::SeqCst);
    flood.into_iter().for_each(|thread| thread.join().unwrap());
    let more = stage.gateway.peak_memory().saturating_sub(quiet);
    let overhead = 48 << 20;
    assert!(more < budget + overhead, "{} MiB more than before", more >> 20);
    stage.end().await;
}

/// Sends a POST on a connection of its own, and reads the answer. The gateway may refuse it before it was sent.
fn send_blocking(url: &str, token: &str, body: &[u8]) {
    use std::io::{Read as _, Write as _};
    let Ok(mut socket) = std::net::TcpStream::connect(url.trim_start_matches("http://")) else {
        return;
    };
    socket.set_read_timeout(Some(LONG)).unwrap();
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    if socket.write_all(head.as_bytes()).is_ok() && socket.write_all(body).is_ok() {
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

/// R170: the threads that parse large bodies run behind those that serve all other requests.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn large_requests_have_the_lower_priority() {
    let stage = Stage::new("nice", json!({})).await;
    assert_eq!(stage.ann.ask(Method::POST, &stage.url(), &call_with(300_000)).await.status, 400);
    let tasks = format!("/proc/{}/task", stage.gateway.pid());
    let mut niceness = std::collections::BTreeMap::<String, Vec<String>>::new();
    for task in std::fs::read_dir(tasks).unwrap() {
        // A thread may end meanwhile.
        let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
        let (head, fields) = stat.rsplit_once(')').unwrap();
        let name = head.split_once('(').unwrap().1.trim_end_matches(char::is_numeric).to_owned();
        niceness.entry(name).or_default().push(fields.split_whitespace().nth(16).unwrap().into());
    }
    let all = |name: &str, nice: &str| {
        niceness.get(name).is_some_and(|them| them.iter().all(|it| it == nice))
    };
    let own = rustix::process::getpriority_process(None).unwrap();
    assert!(all("large requests", "10") && all("worker ", &own.to_string()), "{niceness:?}");
    stage.end().await;
}

/// R170: at the limit of sockets the one that was idle longest is closed, so idle sockets lock nobody out. Those with a
/// request in progress stay.
#[tokio::test]
async fn idle_sockets_lock_nobody_out() {
    let stage = Stage::new("idle-sockets", json!({ "sockets": 6 })).await;
    let (busy, mut idle) = (stage.begin(100, b"{").await, Vec::new());
    for _ in 0..60 {
        idle.push(stage.gateway.socket().await);
    }
    stage.bob_calls(20).await;
    let mut byte = [0; 1];
    let closed = tokio::time::timeout(LONG, idle[0].read(&mut byte)).await.unwrap();
    assert_eq!(closed.unwrap(), 0, "the oldest one was closed");
    let mut busy = busy;
    busy.write_all(&[b' '; 99]).await.unwrap();
    let mut status = [0; 12];
    tokio::time::timeout(LONG, busy.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 400", "it is not JSON, but was answered");
    stage.end().await;
}

/// R170: the connections of one address are limited before authentication. Idle ones make room, busy ones do not.
#[tokio::test]
async fn sockets_of_one_address_are_limited() {
    let stage = Stage::new("address-sockets", json!({ "sockets_per_address": 3 })).await;
    let mut busy = Vec::new();
    for _ in 0..3 {
        busy.push(stage.begin(100, b"").await);
    }
    let mut late = stage.gateway.socket().await;
    late.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let told = rest(&mut late).await;
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(
        told.contains("limits.sockets_per_address") && told.contains("retry-after: "),
        "{told}"
    );
    // The gateway counts a socket until it has closed it.
    for mut socket in busy {
        socket.shutdown().await.unwrap();
        rest(&mut socket).await;
    }
    stage.bob_calls(3).await;
    stage.end().await;
}

/// `/metrics` shows numbers of all owners, so it needs the role, unless the configuration says otherwise.
#[tokio::test]
async fn metrics_need_the_admin_role() {
    let ((ann, hash), (root, roots)) = (token("ann"), token("root"));
    let statuses = async |metrics: Option<&str>| {
        let tokens = json!({ "ann": hash, "root": { "hash": roots, "admin": true } });
        let mut auth = json!({ "tokens": tokens });
        if let Some(metrics) = metrics {
            auth["metrics"] = json!(metrics);
        }
        let gateway = Gateway::with(json!({}), json!({ "auth": auth })).await;
        let url = format!("{}/metrics", gateway.url);
        let mut statuses = Vec::new();
        for client in [Somebody::bearer(&root), Somebody::bearer(&ann), Somebody::nobody()] {
            statuses.push(client.ask(Method::GET, &url, "").await.status);
        }
        statuses
    };
    assert_eq!(statuses(None).await, [200, 403, 401]);
    assert_eq!(statuses(Some("admin")).await, [200, 403, 401]);
    assert_eq!(statuses(Some("authenticated")).await, [200, 200, 401]);
    assert_eq!(statuses(Some("public")).await, [200, 200, 200]);
}

/// R170: a long list is edited once and not for each request. A flood of requests for it stops no other client, and each
/// gets the same bytes.
#[tokio::test]
async fn flood_of_list_requests_edits_the_list_once() {
    let limits = json!({ "per_owner": { "requests_per_second": "unlimited" } });
    let stage = Stage::with("list-flood", &["--wordy", "150000"], limits).await;
    let url = stage.url();
    let connection = stage.ann.connect(&url).await;
    let ann = stage.ann.and("mcp-session-id", &connection);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let list = async || {
        let answer = ann.ask(Method::POST, &url, &body).await;
        assert_eq!(answer.status, 200);
        answer.bytes().await.unwrap()
    };
    let start = stage.processor_time();
    let first = list().await;
    let once = stage.processor_time() - start;
    assert!(first.len() > 2 << 20, "{} bytes", first.len());
    assert!(String::from_utf8_lossy(&first).contains("\"session_id\""), "it is edited");
    let start = stage.processor_time();
    for _ in 0..60 {
        assert_eq!(list().await, first);
    }
    let again = stage.processor_time() - start;
    assert!(again < 5 * once, "{once} ticks for the first list, {again} for 60 more");
    let done = AtomicBool::new(false);
    let flood = async {
        while !done.load(Ordering::SeqCst) {
            tokio::join!(list(), list(), list(), list());
        }
    };
    let bob = async {
        stage.bob_calls(50).await;
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(flood, bob);
    stage.end().await;
}

/// R170: at the limit of processes, the owner with more links than its share loses an idle one, though another owner's
/// was idle for longer.
#[tokio::test]
async fn owner_over_its_share_loses_its_idle_link() {
    let stage = Stage::new("link-share", json!({ "processes": 4 })).await;
    let url = stage.url();
    let bobs = stage.bob.connect(&url).await;
    assert_eq!(stage.bob.text(&url, &bobs, "count").await, "1");
    for _ in 0..5 {
        let anns = stage.ann.connect(&url).await;
        assert_eq!(stage.ann.text(&url, &anns, "count").await, "1");
    }
    assert_eq!(stage.bob.text(&url, &bobs, "count").await, "2", "his state was kept");
    stage.end().await;
}
