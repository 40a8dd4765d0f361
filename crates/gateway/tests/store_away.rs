//! Outage of the store while a gateway serves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod world;

use std::time::Duration;

use serde_json::json;
use stayput_testkit::redis::Redis;
use world::{Gateway, LONG, mark, stdio};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// §7: existing sessions continue. New ones are refused with a retry hint until the store returns.
#[tokio::test]
async fn sessions_continue_without_the_store() {
    if std::env::var_os("STAYPUT_TEST_QUICK").is_some() {
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
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
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

/// §7: after its lease has expired, a gateway does nothing that another one might do by then, and reports that. When
/// the store returns, the lease and the state are back.
#[tokio::test]
async fn long_outage_of_the_store_loses_no_state() {
    if std::env::var_os("STAYPUT_TEST_QUICK").is_some() {
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
