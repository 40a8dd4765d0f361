//! A store that forgets while a gateway serves: emptied, or restarted without its data.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, postgres::Postgres, processes, redis::Redis};
use support::{Client, Gateway, gone, mark, stdio, until};

/// Tells whether the result reports a loss, and of which generation.
fn generation_of_loss(result: &Value) -> Option<u64> {
    let state = &result["_meta"]["dev.stayput/state"];
    (state["state"] == "lost").then(|| state["generation"].as_u64().unwrap())
}

/// Checks that sessions, their processes and their connections go on after `empty` has emptied the store.
async fn check_that_sessions_go_on(name: &str, url: &str, empty: impl AsyncFnOnce()) {
    let mark = mark(name);
    let servers = json!({ "test": stdio(&mark, &[]) });
    let settings = json!({ "store": url, "lease": "3s", "seal": "5".repeat(64) });
    let mut gateway = Gateway::with(servers, settings).await;
    let unnamed = gateway.client("test").await;
    let named = gateway.client("test/~chat").await;
    for count in ["1", "2"] {
        assert_eq!(unnamed.text(&gateway, "count").await, count);
        assert_eq!(named.text(&gateway, "count").await, count);
    }
    empty().await;
    until("restored session", || gateway.log().contains("had forgotten 2 sessions")).await;
    for client in [&unnamed, &named] {
        assert_eq!(client.text(&gateway, "count").await, "3", "{}", gateway.log());
    }
    // The key leads to the same session.
    assert_eq!(gateway.client("test/~chat").await.text(&gateway, "count").await, "4");
    assert_eq!(processes::with_token(&mark).len(), 2, "one process for each session");
    // The records and the connections are in the store again: the next process finds them.
    gateway.kill();
    gateway.restart_in_place().await;
    for client in [&unnamed, &named] {
        let told = client.call(&gateway, "count", json!({})).await["result"].clone();
        assert_eq!(generation_of_loss(&told), Some(1), "{told}");
    }
    assert!(gateway.stop().success());
    gone(&mark).await;
}

#[tokio::test]
async fn sessions_go_on_after_flushall_of_redis() {
    let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
    let empty = async || {
        assert!(redis.cli().arg("flushall").output().unwrap().status.success());
    };
    check_that_sessions_go_on("flushall", &redis.url(), empty).await;
}

#[tokio::test]
async fn sessions_go_on_after_redis_restarts_empty() {
    let start = || Redis::with_options(&["--appendonly", "no"]);
    let mut redis = tokio::task::spawn_blocking(start).await.unwrap();
    let url = redis.url();
    let empty = async || {
        redis.kill();
        redis.start_again();
    };
    check_that_sessions_go_on("restart", &url, empty).await;
}

#[tokio::test]
async fn sessions_go_on_after_truncate_of_postgres() {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    let tables = "truncate stayput_session, stayput_lease cascade";
    let empty = async || postgres.execute(tables);
    check_that_sessions_go_on("truncate", &postgres.url(), empty).await;
}

/// A table of sessions that is emptied alone leaves the lease valid. The next use that is written finds that.
#[tokio::test]
async fn sessions_go_on_after_truncate_of_their_table_alone() {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    let mark = mark("table");
    let settings = json!({ "store": postgres.url(), "expiry": { "idle": "10s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let client = gateway.client("test/~chat").await;
    let user = gateway.client("test/~chat").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    postgres.execute("truncate stayput_session cascade");
    // A session in use is written again and again.
    let used = user.call(&gateway, "slow", json!({ "ms": 600_000 }));
    tokio::select! {
        answer = used => panic!("{answer}"),
        () = until("restored session", || gateway.log().contains("had forgotten 1 sessions")) => {}
    }
    assert_eq!(client.text(&gateway, "count").await, "2");
    let other = gateway.client("test/~chat").await;
    assert_eq!(other.text(&gateway, "count").await, "3");
}

/// A gateway whose sessions the store forgot, and another one that has taken their key meanwhile.
struct TakenKey {
    first: Gateway,
    second: Gateway,
    child: Client,
    remote: Client,
    mark: String,
    _redis: Redis,
    _server: TestServer,
}

impl TakenKey {
    async fn new() -> Self {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let (mark, server) = (mark("taken-key"), TestServer::http(&["--era", "legacy"]).await);
        let servers = json!({ "test": stdio(&mark, &[]), "web": { "url": server.url() } });
        let cluster = json!({ "listen": "127.0.0.1:0", "key": "k".repeat(32) });
        let settings = json!({
            "store": redis.url(), "lease": "3s", "seal": "5".repeat(64), "cluster": cluster,
        });
        let first = Gateway::with(servers.clone(), settings.clone()).await;
        let second = Gateway::with(servers, settings).await;
        let child = first.client("test/~chat").await;
        let remote = first.client("web/~chat").await;
        for count in ["1", "2", "3"] {
            assert_eq!(child.text(&first, "count").await, count);
            assert_eq!(remote.text(&first, "count").await, count);
        }
        first.signal("-STOP");
        assert!(redis.cli().arg("flushall").output().unwrap().status.success());
        let other = second.client("web/~chat").await;
        assert_eq!(other.text(&second, "count").await, "1");
        first.signal("-CONT");
        Self { first, second, child, remote, mark, _redis: redis, _server: server }
    }
}

/// Invariant 3: the store forgot a session, and another process made one with its key. The loss is reported, and the
/// process of the forgotten session ends.
#[tokio::test]
async fn forgotten_session_whose_key_was_taken_is_reported_as_lost() {
    let mut taken = TakenKey::new().await;
    gone(&taken.mark).await;
    assert!(taken.second.stop().success());
    let TakenKey { first, child, remote, .. } = &taken;
    let told = remote.call(first, "count", json!({})).await["result"].clone();
    assert_eq!(generation_of_loss(&told), Some(1), "{told}");
    assert_eq!(remote.text(first, "count").await, "2", "the session of the other process goes on");
    assert_eq!(child.text(first, "count").await, "1");
}

/// A session of a window of an editor goes on, too.
#[tokio::test]
async fn stdio_window_goes_on_after_flushall_of_redis() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
    let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
    let mark = mark("window");
    let settings = json!({ "store": redis.url(), "lease": "3s" });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["stdio", "--server", "test", "--config"]).arg(gateway.config());
    command.env("XDG_DATA_HOME", gateway.folder.path().join("data")).kill_on_drop(true);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut window = command.spawn().unwrap();
    let (mut input, output) = (window.stdin.take().unwrap(), window.stdout.take().unwrap());
    let mut lines = tokio::io::BufReader::new(output).lines();
    let mut ask = async |id: u64, method: &str, params: Value| -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let line = tokio::time::timeout(support::LONG, lines.next_line()).await.unwrap();
            let message: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    };
    let client = json!({ "name": "editor", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    ask(1, "initialize", hello).await;
    let count = json!({ "name": "count", "arguments": {} });
    for (id, counted) in [(2, "1"), (3, "2")] {
        let answer = ask(id, "tools/call", count.clone()).await;
        assert_eq!(answer["result"]["content"][0]["text"], counted, "{answer}");
    }
    assert!(redis.cli().arg("flushall").output().unwrap().status.success());
    until("restored session", || gateway.log().contains("had forgotten 1 sessions")).await;
    let answer = ask(4, "tools/call", count).await;
    assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
    drop(redis);
}
