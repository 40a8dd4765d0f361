//! Configuration changes while the gateway runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{
    mcp::{TestServer, send},
    processes,
};
use support::{Client, Gateway, LONG, gone, mark, stdio, until};

async fn count(client: &Client, gateway: &Gateway) -> Value {
    client.call(gateway, "count", json!({})).await["result"].clone()
}

fn number(result: &Value) -> &str {
    assert!(result["isError"] != true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

fn is_lost(result: &Value) -> bool {
    result["_meta"]["dev.stayput/state"]["state"] == "lost"
}

/// Returns whether a call failed with a loss because the configuration of its server changed.
fn is_reconfigured(result: &Value) -> bool {
    let text = result["content"][0]["text"].as_str().unwrap();
    is_lost(result) && result["isError"] == true && text.contains("its configuration changed")
}

async fn reloads(gateway: &Gateway, outcome: &str) -> u64 {
    let url = format!("{}/metrics", gateway.url);
    let answer = send(Method::GET, &url, &[], "").await.unwrap();
    let page = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let sample = format!("stayput_reloads_total{{outcome=\"{outcome}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&*sample));
    line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().unwrap()
}

/// Waits until the configuration was reloaded this many times with this outcome.
async fn reloaded(gateway: &Gateway, outcome: &str, times: u64) {
    let what = format!("reload is {outcome} {times} times");
    let reached = async || (reloads(gateway, outcome).await >= times).then_some(());
    stayput_testkit::until_some(&what, reached).await;
}

/// E27: an unchanged server keeps its process and state. A changed server starts anew, and its client gets the reason.
/// A removed server is reported as such. An added server is available.
#[tokio::test]
async fn each_server_is_reloaded_on_its_own() {
    let (kept, changed, removed) = (mark("rl-kept"), mark("rl-changed"), mark("rl-removed"));
    let gateway = Gateway::start(json!({
        "kept": stdio(&kept, &[]), "changed": stdio(&changed, &[]), "removed": stdio(&removed, &[]),
    }))
    .await;
    let [one, two, three] = ["kept", "changed", "removed"];
    let (one, two) = (gateway.client(one).await, gateway.client(two).await);
    let three = gateway.client(three).await;
    for client in [&one, &two, &three] {
        assert_eq!(number(&count(client, &gateway).await), "1");
    }
    let before = processes::with_token(&kept);
    let (next, added) = (mark("rl-next"), mark("rl-added"));
    gateway.configure(json!({
        "kept": stdio(&kept, &[]), "changed": stdio(&next, &[]), "added": stdio(&added, &[]),
    }));
    reloaded(&gateway, "applied", 1).await;
    assert_eq!(number(&count(&one, &gateway).await), "2");
    assert_eq!(processes::with_token(&kept), before);
    let told = count(&two, &gateway).await;
    assert!(is_reconfigured(&told), "{told}");
    assert_eq!(number(&count(&two, &gateway).await), "1", "told once, and begun afresh");
    let told = count(&three, &gateway).await;
    let text = told["content"][0]["text"].as_str().unwrap();
    assert!(told["isError"] == true && text.contains("removed from the configuration"), "{told}");
    assert_eq!(
        gateway.post("removed", &[], "{}").await.status,
        404,
        "to anybody else it is not there"
    );
    let four = gateway.client("added").await;
    assert_eq!(number(&count(&four, &gateway).await), "1");
    gone(&changed).await;
    gone(&removed).await;
    let log = gateway.log();
    assert!(log.contains("(added: added; changed: changed; removed: removed)"), "{log}");
    // Back to the first configuration: each loss is reported again.
    gateway.configure(json!({
        "kept": stdio(&kept, &[]), "changed": stdio(&changed, &[]), "removed": stdio(&removed, &[]),
    }));
    reloaded(&gateway, "applied", 2).await;
    for client in [&two, &three] {
        assert!(is_lost(&count(client, &gateway).await));
        assert_eq!(number(&count(client, &gateway).await), "1");
    }
    assert_eq!(number(&count(&one, &gateway).await), "3");
}

/// Invariant 3, on shared links: each session gets a report, also if the server was removed in between.
#[tokio::test]
async fn change_of_a_shared_server_is_reported_to_each_session() {
    let shared = |mark: &str| {
        let mut server = stdio(mark, &[]);
        server["stayput"] = json!({ "isolation": "shared" });
        server
    };
    let (first, second) = (mark("rl-shared"), mark("rl-shared-next"));
    let gateway = Gateway::start(json!({ "test": shared(&first) })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    assert_eq!(number(&count(&ann, &gateway).await), "1");
    assert_eq!(number(&count(&bob, &gateway).await), "2");
    // Removed and added again: it has no earlier generation, and still counts as another server.
    gateway.configure(json!({}));
    reloaded(&gateway, "applied", 1).await;
    gone(&first).await;
    gateway.configure(json!({ "test": shared(&first) }));
    reloaded(&gateway, "applied", 2).await;
    for client in [&ann, &bob] {
        assert!(is_lost(&count(client, &gateway).await));
    }
    assert_eq!(number(&count(&bob, &gateway).await), "1");
    gateway.configure(json!({ "test": shared(&second) }));
    reloaded(&gateway, "applied", 3).await;
    for client in [&ann, &bob] {
        let told = count(client, &gateway).await;
        assert!(is_reconfigured(&told), "{told}");
    }
    assert_eq!(number(&count(&ann, &gateway).await), "1");
    assert_eq!(number(&count(&bob, &gateway).await), "2");
}

/// A call in flight ends on the server that it was sent to. Later calls wait for that, and are not sent there.
#[tokio::test]
async fn call_in_flight_ends_where_it_began() {
    let (old, new) = (mark("rl-drain"), mark("rl-drained"));
    let gateway = Gateway::start(json!({ "test": stdio(&old, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let slow = client.call(&gateway, "slow", json!({ "ms": 4_000 }));
    let next = async {
        until("process", || processes::with_token(&old).len() == 1).await;
        gateway.configure(json!({ "test": stdio(&new, &[]) }));
        reloaded(&gateway, "applied", 1).await;
        let body = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/call",
            "params": { "name": "count", "arguments": {} } });
        let answer = client.send(&gateway, &body.to_string()).await;
        tokio::time::timeout(LONG, answer.message()).await.unwrap()["result"].clone()
    };
    let (slow, next) = tokio::join!(slow, next);
    assert!(slow["result"]["isError"] != true && slow["error"].is_null(), "{slow}");
    assert!(is_reconfigured(&next), "{next}");
    assert_eq!(number(&count(&client, &gateway).await), "1");
    gone(&old).await;
}

/// The session of a changed HTTP server is ended there and not resumed. Its client gets a loss.
#[tokio::test]
async fn changed_http_server_loses_its_session() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let entry = |key: &str| json!({ "url": server.url(), "headers": { "X-Key": key } });
    let gateway = Gateway::start(json!({ "test": entry("a") })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    gateway.configure(json!({ "test": entry("a"), "more": entry("b") }));
    reloaded(&gateway, "applied", 1).await;
    assert_eq!(number(&count(&client, &gateway).await), "2");
    gateway.configure(json!({ "test": entry("b") }));
    reloaded(&gateway, "applied", 2).await;
    assert!(is_reconfigured(&count(&client, &gateway).await));
    assert_eq!(number(&count(&client, &gateway).await), "1");
}

/// An invalid file is reported with the place of the mistake, and changes nothing. A half-written file is read again.
#[tokio::test]
async fn invalid_configuration_changes_nothing() {
    let mark = mark("rl-wrong");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let text = gateway.configuration();
    gateway.write(&text.replace("\"listen\"", "\n\"lisen\""));
    reloaded(&gateway, "refused", 1).await;
    let log = gateway.log();
    let expected =
        "stayput.json:2:1: stayput.lisen: unknown key; the most similar one is \"listen\"";
    assert!(log.contains(expected), "{log}");
    gateway.write(&text[..text.len() / 2]);
    reloaded(&gateway, "refused", 2).await;
    std::fs::remove_file(gateway.config()).unwrap();
    reloaded(&gateway, "refused", 3).await;
    gateway.hang_up();
    reloaded(&gateway, "refused", 4).await;
    assert_eq!(number(&count(&client, &gateway).await), "2");
    gateway.write(&text);
    gateway.hang_up();
    reloaded(&gateway, "applied", 1).await;
    assert_eq!(number(&count(&client, &gateway).await), "3");
    gateway.hang_up();
    reloaded(&gateway, "unchanged", 1).await;
    assert_eq!(number(&count(&client, &gateway).await), "4");
}

/// `limits.drain` bounds that wait. Then the call fails with the reason.
#[tokio::test]
async fn drain_ends_a_call_that_takes_too_long() {
    let (old, new) = (mark("rl-long"), mark("rl-long-next"));
    let drain = json!({ "limits": { "drain": "1s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&old, &[]) }), drain).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let slow = client.call(&gateway, "slow", json!({ "ms": 600_000 }));
    let next = async {
        until("call", || gateway_is_busy(&gateway)).await;
        gateway.configure(json!({ "test": stdio(&new, &[]) }));
        reloaded(&gateway, "applied", 1).await;
        gone(&old).await;
    };
    let (slow, ()) = tokio::join!(slow, next);
    assert!(is_reconfigured(&slow["result"]), "{slow}");
}

/// Returns whether a call is in flight.
fn gateway_is_busy(gateway: &Gateway) -> bool {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let store = format!("sqlite:{}", gateway.folder.path().join("store.db").display());
    let output = command.args(["sessions", "ls", "--json", "--store", &store]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("\"busy\"")
}

/// `limits.drain` also bounds how long calls may continue when the gateway stops.
#[tokio::test]
async fn stop_waits_for_calls_up_to_the_drain_limit() {
    let mark = mark("rl-stop");
    let drain = json!({ "limits": { "drain": "5m" } });
    let mut gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), drain).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let url = gateway.at("test");
    let call = tokio::runtime::Handle::current().spawn(async move {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": "slow", "arguments": { "ms": 12_000 } } });
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", &*client.id),
        ];
        let answer = send(Method::POST, &url, &headers, body.to_string()).await.unwrap();
        answer.message().await
    });
    until("call", || gateway_is_busy(&gateway)).await;
    let stopped = tokio::task::spawn_blocking(move || gateway.stop());
    let answer = tokio::time::timeout(2 * LONG, call).await.unwrap().unwrap();
    assert!(answer["result"]["isError"] != true && answer["error"].is_null(), "{answer}");
    assert!(stopped.await.unwrap().success());
    gone(&mark).await;
}

/// Address, store, audit, trace export and seal keys do not change in a reload, which is logged.
#[tokio::test]
async fn settings_that_need_a_restart_are_logged() {
    let mark = mark("rl-fixed");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    let text = gateway.configuration();
    gateway.write(&text.replace("127.0.0.1:0", "127.0.0.1:1").replace("store.db", "other.db"));
    reloaded(&gateway, "applied", 1).await;
    let log = gateway.log();
    assert!(log.contains("it still listens on") && log.contains("sessions stay where"), "{log}");
    assert!(!log.contains("other.db"), "{log}");
    // The address stays closed to other machines.
    gateway.write(&text.replace("127.0.0.1:0", "0.0.0.0:0"));
    reloaded(&gateway, "applied", 2).await;
    assert_eq!(number(&count(&client, &gateway).await), "2");
    let waits = |what: &str| format!("`{what}` is as it was: it holds from the next start on");
    let told = |what: &str| gateway.log().matches(&waits(what)).count();
    assert_eq!(["audit", "otlp", "seal"].map(told), [0, 0, 0]);
    let (key, url) = ("7".repeat(64), "http://127.0.0.1:1");
    let mut times = 2;
    for (name, value) in [
        ("audit", json!({ "to": "audit.jsonl" })),
        ("otlp", json!({ "url": url })),
        ("seal", json!(key)),
    ] {
        let mut all: Value = serde_json::from_str(&text).unwrap();
        all["stayput"][name] = value;
        gateway.write(&all.to_string());
        times += 1;
        reloaded(&gateway, "applied", times).await;
        assert_eq!(told(name), 1, "{name}: {}", gateway.log());
    }
    assert_eq!(["audit", "otlp", "seal"].map(told), [1, 1, 1]);
    assert!(!gateway.log().contains(&key) && !gateway.folder.path().join("audit.jsonl").exists());
    assert_eq!(number(&count(&client, &gateway).await), "3");
}

/// Tokens (inline and in their file), limits and tool filters apply from the next request on.
#[tokio::test]
async fn settings_apply_from_the_next_request_on() {
    let ann = "stp_ann-ann-ann-ann-ann-ann-ann";
    let hash = |token: &str| {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {token} | sha256sum")])
            .output()
            .unwrap();
        format!("sha256:{}", String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap())
    };
    let mark = mark("rl-settings");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let tokens = gateway.folder.path().join("tokens");
    let configure = |stayput: Value, test: Value| {
        let mut all: Value = serde_json::from_str(&gateway.configuration()).unwrap();
        all["mcpServers"]["test"]["stayput"] = test;
        for (name, value) in stayput.as_object().unwrap() {
            all["stayput"][name] = value.clone();
        }
        gateway.write(&all.to_string());
    };
    let status = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } } });
        let headers = [("authorization", &*bearer)];
        gateway.post("test", &headers, &body.to_string()).await.status.as_u16()
    };
    let client = gateway.client("test").await;
    assert_eq!(number(&count(&client, &gateway).await), "1");
    configure(
        json!({ "limits": { "sessions_per_owner": 1, "body": 200 } }),
        json!({ "tools": { "deny": ["count"] } }),
    );
    reloaded(&gateway, "applied", 1).await;
    let denied = client.call(&gateway, "count", json!({})).await;
    assert_eq!(denied["error"]["message"], "Unknown tool", "{denied}");
    assert_eq!(gateway.post("test", &[], &" ".repeat(201)).await.status, 413);
    std::fs::write(&tokens, format!("ann {}\n", hash(ann))).unwrap();
    configure(json!({ "auth": { "tokens_file": "tokens" }, "limits": {} }), json!({}));
    until("token", || gateway.log().matches("read anew and holds").count() == 2).await;
    assert_eq!(status(ann).await, 200);
    assert_eq!(status("stp_other").await, 401);
    // Only the token file changes.
    std::fs::write(&tokens, format!("bob {}\n", hash("stp_bob"))).unwrap();
    until("token", || gateway.log().matches("read anew and holds").count() == 3).await;
    assert_eq!(status(ann).await, 401);
    assert_eq!(status("stp_bob").await, 200);
}

/// Listening clients get a notification of changed tools, also on the path of all servers.
#[tokio::test]
async fn listeners_are_notified_of_changed_lists() {
    let (first, second) = (mark("rl-heard"), mark("rl-heard-more"));
    let gateway = Gateway::start(json!({ "one": stdio(&first, &[]) })).await;
    let client = gateway.client("").await;
    let listed = client.request(&gateway, "tools/list", json!({})).await;
    assert!(!listed.to_string().contains("two__count"), "{listed}");
    let mut events = client.get(&gateway, None).await.events();
    gateway.configure(json!({ "one": stdio(&first, &[]), "two": stdio(&second, &[]) }));
    let heard = async {
        loop {
            let event = events.message().await.unwrap();
            if event["method"] == "notifications/tools/list_changed" {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, heard).await.unwrap();
    let listed = client.request(&gateway, "tools/list", json!({})).await;
    assert!(listed.to_string().contains("two__count"), "{listed}");
    let counted = client.call(&gateway, "two__count", json!({})).await["result"].clone();
    assert_eq!(number(&counted), "1");
}
