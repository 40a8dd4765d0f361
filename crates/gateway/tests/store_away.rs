//! Outage of the store, and loss of the lease, while a gateway serves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::{processes, redis::Redis};
use support::{Client, Gateway, LONG, mark, stdio, until};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// §7: existing sessions continue. New ones are refused with a retry hint until the store returns.
#[tokio::test]
async fn sessions_continue_without_the_store() {
    if stayput_testkit::skips::is_quick_run() {
        return;
    }
    let mut redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
    let mark = mark("away");
    let servers = json!({ "test": stdio(&mark, &[]) });
    let gateway = Gateway::on(servers, &redis.url()).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    redis.kill();
    for n in 2..=20 {
        assert_eq!(client.text(&gateway, "count").await, n.to_string());
    }
    let refused = gateway.post("test", &[], HELLO).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "5"));
    let told = refused.json().await;
    assert_eq!(told["id"], 0, "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("store"), "{told}");
    let unknown = [("mcp-session-id", "sp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")];
    let refused =
        gateway.post("test", &unknown, HELLO.replace("initialize", "ping").as_str()).await;
    assert_eq!(refused.status, 503, "nobody knows whether it is known");
    assert_eq!(client.text(&gateway, "count").await, "21");
    let redis = tokio::task::spawn_blocking(move || {
        redis.start_again();
        redis
    });
    let redis = redis.await.unwrap();
    let start = tokio::time::Instant::now();
    while gateway.post("test", &[], HELLO).await.status != 200 {
        assert!(start.elapsed() < 2 * LONG, "it does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.text(&gateway, "count").await, "22");
    let other = gateway.client("test").await;
    assert_eq!(other.text(&gateway, "count").await, "1");
    drop(redis);
}

/// Returns the time since the last renewal of the only lease, which is over `lease`.
fn since_renewal(redis: &Redis, lease: Duration) -> Duration {
    let run = |arguments: &[&str]| {
        let output = redis.cli().args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let key = run(&["--raw", "keys", "*ends"]);
    let rows = run(&["--raw", "zrange", key.trim(), "0", "-1", "withscores"]);
    let end: f64 = rows.lines().nth(1).unwrap_or_else(|| panic!("{key}{rows}")).parse().unwrap();
    let now =
        Duration::from_millis(stayput_core::Clock::now(&stayput_core::SystemClock).as_millis());
    (now + lease).saturating_sub(Duration::from_secs_f64(end / 1_000.0))
}

/// §7: when an outage ends before the lease, the lease is renewed at once, so that no call on a held session is
/// refused.
#[tokio::test]
async fn lease_is_renewed_as_soon_as_the_store_is_back() {
    let mut redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
    let mark = mark("blip");
    // Renewals are due every 3.3 seconds, and the lease may be used for 9 seconds.
    let lease = Duration::from_secs(10);
    let settings = json!({ "store": redis.url(), "lease": "10s" });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    while !(2_200..2_800).contains(&since_renewal(&redis, lease).as_millis()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The outage ends 7.5 seconds after the last renewal. Two renewals have failed by then, and the one after would
    // come too late.
    let start = tokio::time::Instant::now();
    redis.kill();
    tokio::time::sleep_until(start + Duration::from_millis(4_700)).await;
    let redis = tokio::task::spawn_blocking(move || {
        redis.start_again();
        redis
    });
    let redis = redis.await.unwrap();
    let mut counted = 1;
    while start.elapsed() < lease {
        counted += 1;
        assert_eq!(client.text(&gateway, "count").await, counted.to_string());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(redis);
}

/// Two gateways on one store. The first one is suspended for longer than its lease, and the second one takes the session
/// `chat` over.
struct Takeover {
    first: Gateway,
    second: Gateway,
    client: Client,
    mark: String,
    _redis: Redis,
}

impl Takeover {
    async fn new(name: &str) -> Self {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let mark = mark(name);
        let mut servers = json!({ "test": stdio(&mark, &[]) });
        // Each gateway has session directories of its own.
        servers["test"]["env"] = json!({ "FOLDER": "${session.dir}" });
        let cluster = json!({ "listen": "127.0.0.1:0", "key": "k".repeat(32) });
        let settings = json!({
            "store": redis.url(), "lease": "3s", "seal": "5".repeat(64), "cluster": cluster,
        });
        let first = Gateway::with(servers.clone(), settings.clone()).await;
        let second = Gateway::with(servers, settings).await;
        let client = first.client("test/~chat").await;
        for number in ["1", "2"] {
            assert_eq!(client.text(&first, "count").await, number);
        }
        first.signal("-STOP");
        let other = second.client("test/~chat").await;
        let told = other.call(&second, "count", json!({})).await["result"].clone();
        assert_eq!(generation_of_loss(&told), Some(1), "{told}");
        assert!(told.to_string().contains("holder died"), "{told}");
        assert_eq!(after_the_loss(&second, &other).await, "1");
        for number in ["2", "3"] {
            assert_eq!(other.text(&second, "count").await, number);
        }
        Self { first, second, client, mark, _redis: redis }
    }

    /// Waits until the first gateway reports the loss. It must not run a call before that.
    async fn expect_loss(&self) {
        let start = tokio::time::Instant::now();
        loop {
            let told = self.client.call(&self.first, "count", json!({})).await["result"].clone();
            assert_eq!(told["isError"], true, "it goes on with old state: {told}");
            if let Some(generation) = generation_of_loss(&told) {
                assert_eq!(generation, 2, "{told}");
                break;
            }
            assert!(start.elapsed() < LONG, "no loss is reported: {told}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(after_the_loss(&self.first, &self.client).await, "1");
        let running = || processes::with_token(&self.mark).len() == 1;
        until("end of the old process", running).await;
    }
}

/// Returns the first count after a loss. The loss is acknowledged after the answer is sent, so it may be reported once
/// more.
async fn after_the_loss(gateway: &Gateway, client: &Client) -> String {
    for _ in 0..100 {
        let answer = client.call(gateway, "count", json!({})).await["result"].clone();
        if generation_of_loss(&answer).is_none() {
            return answer["content"][0]["text"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the loss is reported without end");
}

/// Returns the generation of a reported loss.
fn generation_of_loss(result: &Value) -> Option<u64> {
    let state = &result["_meta"]["dev.stayput/state"];
    (state["state"] == "lost").then(|| state["generation"].as_u64().unwrap())
}

/// §7, invariant 3: a gateway that lost its lease does not go on with its old process when the session comes back,
/// whichever request is first.
#[tokio::test]
async fn session_that_comes_back_after_a_takeover_reports_the_loss() {
    let mut takeover = Takeover::new("back").await;
    assert!(takeover.second.stop().success());
    takeover.first.signal("-CONT");
    takeover.expect_loss().await;
}

/// §7: a gateway that lost a session to another one ends its process, also if no request comes.
#[tokio::test]
async fn gateway_that_lost_a_session_ends_its_process() {
    let mut takeover = Takeover::new("taken").await;
    assert_eq!(processes::with_token(&takeover.mark).len(), 2);
    takeover.first.signal("-CONT");
    let (mark, log) = (takeover.mark.clone(), || takeover.first.log());
    until("end of the old process", || processes::with_token(&mark).len() == 1).await;
    assert!(log().contains("taken over by another process"), "{}", log());
    assert!(takeover.second.stop().success());
    takeover.expect_loss().await;
}

/// §7: after its lease has expired, a gateway does nothing that another one might do by then, and reports that. When
/// the store returns, the lease and the state are back.
#[tokio::test]
async fn long_outage_of_the_store_loses_no_state() {
    if stayput_testkit::skips::is_quick_run() {
        return;
    }
    let mut redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
    let mark = mark("long-away");
    let gateway = Gateway::on(json!({ "test": stdio(&mark, &[]) }), &redis.url()).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    redis.kill();
    let mut counted = 1;
    let start = tokio::time::Instant::now();
    loop {
        let answer = client.call(&gateway, "count", json!({})).await["result"].clone();
        if answer["isError"] == true {
            assert!(answer.to_string().contains("lost its lease"), "{answer}");
            break;
        }
        counted += 1;
        assert!(start.elapsed() < 2 * LONG, "it goes on without a lease");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let redis = tokio::task::spawn_blocking(move || {
        redis.start_again();
        redis
    });
    let redis = redis.await.unwrap();
    let start = tokio::time::Instant::now();
    loop {
        let answer = client.call(&gateway, "count", json!({})).await["result"].clone();
        if answer["isError"] != true {
            assert_eq!(answer["content"][0]["text"], (counted + 1).to_string(), "nothing was lost");
            break;
        }
        assert!(start.elapsed() < 2 * LONG, "it does not come back: {answer}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(redis);
}
