//! Metrics, health checks and logs of the gateway.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{collections::BTreeMap, process::Command, time::Duration};

use http::Method;
use serde_json::json;
use stayput_testkit::mcp::send;
use stayput_testkit::until_some;
use support::{Gateway, gone, mark, stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Parses the samples by name and labels. Checks the format on the way.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = BTreeMap::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            assert!(types.insert(name, kind).is_none(), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let plain = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
            let kind = types.get(name).or_else(|| types.get(plain?));
            assert!(kind.is_some(), "no TYPE before {line}");
            assert!(found.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    found
}

async fn page(gateway: &Gateway) -> String {
    let url = format!("{}/metrics", gateway.url);
    let answer = send(Method::GET, &url, &[], "").await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()
}

async fn numbers(gateway: &Gateway) -> BTreeMap<String, f64> {
    samples(&page(gateway).await)
}

/// Waits until a sample has this value.
async fn until(gateway: &Gateway, sample: &str, value: f64) {
    let what = format!("{sample} is {value}");
    until_some(&what, async || (numbers(gateway).await.get(sample) == Some(&value)).then_some(()))
        .await;
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

/// Two sessions, three calls, a killed process and one `DELETE` are each counted once.
#[tokio::test]
async fn events_are_counted_once() {
    let mark = mark("counted");
    let servers = json!({ "test": stdio(&mark, &[]), "idle": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    let pid = ann.text(&gateway, "pid").await;
    ann.call(&gateway, "echo", json!({ "fill": "a-secret-argument" })).await;
    bob.text(&gateway, "count").await;
    // The process of the probe may still be ending.
    until(&gateway, "stayput_processes", 2.0).await;
    until(&gateway, r#"stayput_call_seconds_count{server="test"}"#, 3.0).await;
    let now = numbers(&gateway).await;
    for (sample, value) in [
        (r#"stayput_sessions_opened_total{server="test"}"#, 2.0),
        (r#"stayput_sessions_opened_total{server="idle"}"#, 0.0),
        ("stayput_sessions_resumed_total", 0.0),
        ("stayput_sessions", 2.0),
        ("stayput_connections", 2.0),
        (r#"stayput_links{server="test"}"#, 2.0),
        (r#"stayput_call_seconds_count{server="idle"}"#, 0.0),
        (r#"stayput_losses_total{server="test",reason="exited"}"#, 0.0),
        (r#"stayput_requests_refused_total{reason="malformed"}"#, 0.0),
    ] {
        assert_eq!(now.get(sample), Some(&value), "{sample}");
    }
    kill(&pid);
    // Several calls report it, but it is one loss.
    let told = futures_util::future::join(
        ann.call(&gateway, "count", json!({})),
        ann.call(&gateway, "echo", json!({})),
    );
    drop(told.await);
    until(&gateway, r#"stayput_losses_total{server="test",reason="exited"}"#, 1.0).await;
    assert_eq!(gateway.post("test", &[], "{").await.status, 400);
    until(&gateway, r#"stayput_requests_refused_total{reason="malformed"}"#, 1.0).await;
    assert_eq!(bob.delete(&gateway).await, 200);
    until(&gateway, r#"stayput_sessions_ended_total{reason="closed"}"#, 1.0).await;
    until(&gateway, "stayput_sessions", 1.0).await;
    let page = page(&gateway).await;
    assert_eq!(samples(&page)[r#"stayput_losses_total{server="test",reason="exited"}"#], 1.0);
    for secret in [&*ann.id, &*bob.id, "a-secret-argument", &*mark] {
        assert!(!page.contains(secret), "{page}");
    }
    drop(gateway);
    gone(&mark).await;
}

/// The buckets of a histogram are cumulative, and the last one holds all calls.
#[tokio::test]
async fn call_durations_are_measured() {
    let mark = mark("timed");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    client.call(&gateway, "slow", json!({ "ms": 600 })).await;
    // The duration of a call that is answered on a stream is recorded just after the answer.
    until(&gateway, r#"stayput_call_seconds_count{server="test"}"#, 2.0).await;
    let now = numbers(&gateway).await;
    let bucket =
        |bound: &str| now[&format!(r#"stayput_call_seconds_bucket{{server="test",le="{bound}"}}"#)];
    let page = page(&gateway).await;
    let buckets = page.lines().filter(|line| line.starts_with("stayput_call_seconds_bucket{"));
    let values: Vec<f64> =
        buckets.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(values.is_sorted() && values.len() > 10, "{values:?}");
    assert_eq!(bucket("+Inf"), now[r#"stayput_call_seconds_count{server="test"}"#]);
    assert_eq!(bucket("+Inf"), 2.0);
    assert!(bucket("0.5") <= 1.0, "one took longer");
    assert!(now[r#"stayput_call_seconds_sum{server="test"}"#] >= 0.6);
}

/// A client that returns after a restart is counted in the new process, and so is its loss.
#[tokio::test]
async fn sessions_of_an_earlier_process_are_counted() {
    let mark = mark("resumed");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    gateway.kill();
    gateway.restart().await;
    client.call(&gateway, "count", json!({})).await;
    let now = numbers(&gateway).await;
    assert_eq!(now["stayput_sessions_resumed_total"], 1.0);
    assert_eq!(now[r#"stayput_losses_total{server="test",reason="released"}"#], 1.0);
    assert_eq!(now[r#"stayput_sessions_opened_total{server="test"}"#], 0.0);
}

/// Returns status and body of a GET with these headers only. Status 0 stands for a connection that was closed instead.
async fn get(gateway: &Gateway, path: &str, headers: &str) -> (u16, String) {
    let address = gateway.url.trim_start_matches("http://");
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return (0, answer) };
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Health is public, metrics are not.
#[tokio::test]
async fn health_is_served_for_any_host() {
    let gateway = Gateway::start(json!({})).await;
    let foreign = "Host: evil.example.com\r\nOrigin: http://evil.example.com\r\n";
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&gateway, path, foreign).await, (200, "ok\n".to_owned()), "{path}");
    }
    assert_eq!(get(&gateway, "/metrics", foreign).await.0, 403);
    assert_eq!(get(&gateway, "/metrics", "Host: localhost\r\n").await.0, 200);
}

/// A stopping gateway reports that it is not ready, and accepts nothing new.
#[tokio::test]
async fn stopping_gateway_is_not_ready() {
    let mark = mark("stopping");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let slow = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "slow", "arguments": { "ms": 8_000, "steps": 80 }, "_meta": { "progressToken": 1 } } });
    let mut events = client.send(&gateway, &slow.to_string()).await.events();
    // The first progress shows that the call is running.
    events.message().await.unwrap();
    let local = "Host: localhost\r\n";
    let pid = gateway.pid().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let not_ready = async || {
        let (status, body) = get(&gateway, "/readyz", local).await;
        (status == 503).then_some(body)
    };
    let body = until_some("the gateway is not ready", not_ready).await;
    assert!(body.contains("is stopping"), "{body}");
    assert_eq!(get(&gateway, "/healthz", local).await.0, 200, "it is up all the same");
    let (status, body) = get(&gateway, "/mcp/test", local).await;
    assert!(status == 503 && body.contains("is stopping"), "{status} {body}");
    let mut last = json!(null);
    while let Some(message) = events.message().await {
        last = message;
    }
    assert!(last["result"].is_object(), "the call came to its end: {last}");
    let status = tokio::task::spawn_blocking(move || gateway.wait()).await.unwrap();
    assert!(status.success(), "{status}");
    gone(&mark).await;
}

/// Each event of a session writes a log line, with fields for programs and without secrets.
#[tokio::test]
async fn session_events_are_logged() {
    let mark = mark("logged");
    let (servers, json) = (json!({ "test": stdio(&mark, &[]) }), &["--log-format", "json"]);
    let mut gateway = Gateway::with_arguments(servers, json!({}), json).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    gateway.kill();
    gateway.restart().await;
    client.call(&gateway, "echo", json!({ "fill": "a-secret-argument" })).await;
    assert_eq!(client.delete(&gateway).await, 200);
    let expected = [
        ("session_opened", None),
        ("session_resumed", None),
        ("session_lost", Some("released")),
        ("session_ended", Some("closed")),
    ];
    let mut events = Vec::new();
    for _ in 0..1_500 {
        let log = gateway.log();
        let lines =
            log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        events = lines.filter(|it| it["session"].is_string()).collect();
        if events.len() == expected.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(events.len(), expected.len(), "{}", gateway.log());
    for (event, (name, reason)) in events.iter().zip(expected) {
        assert_eq!(event["event"], name, "{event}");
        assert_eq!(event["reason"].as_str(), reason, "{event}");
        assert_eq!(event["server"], "test", "{event}");
        assert_eq!(event["session"], events[0]["session"], "{event}");
        assert_eq!(event["level"], if name == "session_lost" { "WARN" } else { "INFO" });
        assert!(event["message"].is_string(), "{event}");
    }
    let log = gateway.log();
    assert!(!log.contains(&client.id) && !log.contains("a-secret-argument"), "{log}");
    assert!(
        log.contains(r#""event":"listening""#) && log.contains(r#""event":"serving""#),
        "{log}"
    );
}

/// The log line of a session that idles out names the server.
#[tokio::test]
async fn idle_end_is_logged() {
    let mark = mark("idled");
    let expiry = json!({ "expiry": { "idle": "1s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), expiry).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let logged = || gateway.log().lines().any(|line| line.ends_with(" ended on test: idle"));
    support::until("the end is in the log", logged).await;
    let ended = r#"stayput_sessions_ended_total{reason="idle"}"#;
    assert!(numbers(&gateway).await[ended] >= 1.0);
}

mod redis {
    use stayput_testkit::redis::Redis;

    use super::*;

    /// A gateway is not ready while its store is unreachable.
    #[tokio::test]
    async fn gateway_without_its_store_is_not_ready() {
        let mut redis = Redis::start();
        let gateway = Gateway::with(json!({}), json!({ "store": redis.url() })).await;
        let local = "Host: localhost\r\n";
        assert_eq!(get(&gateway, "/readyz", local).await.0, 200);
        redis.kill();
        let problem = ready_with(&gateway, 503).await;
        assert!(problem.contains("the store could not be reached"), "{problem}");
        assert_eq!(get(&gateway, "/healthz", local).await.0, 200);
        redis.start_again();
        ready_with(&gateway, 200).await;
        let log = gateway.log();
        assert!(log.contains("the store can be reached again"), "{log}");
    }

    /// An operator learns at start that the sessions end with the server, and only then.
    #[tokio::test]
    async fn redis_without_persistence_is_warned_about() {
        let warning = "the Redis server does not persist";
        let warned = async |redis: &Redis| {
            let gateway = Gateway::with(json!({}), json!({ "store": redis.url() })).await;
            gateway.log().contains(warning)
        };
        assert!(warned(&Redis::with_options(&["--appendonly", "no"])).await);
        assert!(!warned(&Redis::start()).await, "every write is on the disk");
        let snapshots = ["--appendonly", "no", "--save", "3600 1"];
        assert!(!warned(&Redis::with_options(&snapshots)).await, "there are snapshots");
        let silent = ["--appendonly", "no", "--rename-command", "CONFIG", ""];
        assert!(!warned(&Redis::with_options(&silent)).await, "nothing is known");
    }

    /// Waits until `/readyz` has this status. The lease is renewed every five seconds.
    async fn ready_with(gateway: &Gateway, status: u16) -> String {
        let ready = async || {
            let (found, body) = get(gateway, "/readyz", "").await;
            (found == status).then_some(body)
        };
        until_some(&format!("/readyz answers {status}"), ready).await
    }
}

/// R170: a host that connects anew for each call of a conversation does not fill the memory. Connections that were
/// dropped from memory are still known.
#[tokio::test]
async fn connections_of_one_session_are_pruned() {
    let mark = mark("pile");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(gateway.client("test/~chat").await);
    }
    let few = async || (numbers(&gateway).await["stayput_connections"] <= 64.0).then_some(());
    until_some("connections are dropped from memory", few).await;
    for (number, client) in clients.iter().enumerate().step_by(20) {
        assert_eq!(client.text(&gateway, "count").await, (number / 20 + 1).to_string());
    }
    drop(gateway);
    gone(&mark).await;
}
