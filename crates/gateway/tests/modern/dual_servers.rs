//! Servers that speak both eras: each client is served in its own era, as far as the link allows it.

use futures_util::future::join_all;
use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes, program};

use crate::{
    kit::{Modern, request},
    support::{Gateway, mark, until},
};

const STATE: &str = "dev.stayput/state";
const ERA: &str = "dev.stayput/era";

/// Entry of a server of both eras as a process, which the first request fixes to one era.
fn dual_stdio(mark: &str, more: &[&str]) -> Value {
    let mut args = vec!["stdio", "--lock-era", "--mark", mark];
    args.extend(more);
    json!({ "command": program("stayput-testserver"), "args": args })
}

/// Returns the messages that the server got, by its log.
fn received(log: &tempfile::NamedTempFile) -> Vec<Value> {
    let text = std::fs::read_to_string(log.path()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// R013: a modern client speaks its own era to a process, and each name has a process of its own.
#[tokio::test]
async fn modern_clients_of_a_dual_process_are_apart() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mark = mark("dual-apart");
    let server = dual_stdio(&mark, &["--log", log.path().to_str().unwrap()]);
    let gateway = Gateway::start(json!({ "test": server })).await;
    let unnamed = Modern::of(&gateway, "test");
    let (ann, bob) = (unnamed.named("ann"), unnamed.named("bob"));
    let first = ann.call("count", json!({})).await;
    assert_eq!(first["content"][0]["text"], "1");
    assert_eq!(first["_meta"][STATE]["state"], "fresh");
    assert!(first["_meta"][ERA].is_null(), "{first}");
    assert_eq!(ann.text("count").await, "2");
    assert_eq!(bob.text("count").await, "1");
    assert_eq!(processes::with_token(&mark).len(), 2);
    assert_eq!(unnamed.call("count", json!({})).await["isError"], true, "it has no session");
    let received = received(&log);
    assert!(received.iter().all(|it| it["method"] != "initialize"), "{received:?}");
    let call = received.iter().find(|it| it["method"] == "tools/call").unwrap();
    let meta = &call["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "modern", "{call}");
    assert!(meta["dev.stayput/session"].is_null() && call["params"]["arguments"] == json!({}));
}

/// R019, invariant 4: fifty first calls of modern clients start one process.
#[tokio::test]
async fn fifty_first_calls_to_a_dual_process_start_one_process() {
    let starts = tempfile::NamedTempFile::new().unwrap();
    let mark = mark("dual-fifty");
    let server = dual_stdio(&mark, &["--starts", starts.path().to_str().unwrap()]);
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let calls = (0..50).map(|n| {
        let body = request(&json!(n), "tools/call", json!({ "name": "count", "arguments": {} }));
        let client = &client;
        async move {
            let answer = client.send(&body).await.message().await;
            answer["result"]["content"][0]["text"].as_str().unwrap().parse::<u32>().unwrap()
        }
    });
    let mut counted = join_all(calls).await;
    counted.sort_unstable();
    assert_eq!(counted, (1..=50).collect::<Vec<_>>());
    assert_eq!(processes::with_token(&mark).len(), 1);
    let started = std::fs::read_to_string(starts.path()).unwrap().lines().count();
    assert_eq!(started, 1);
}

/// R163: clients of both eras on one named session use one process. The second is translated, and its answers and the
/// log say so.
#[tokio::test]
async fn clients_of_both_eras_share_a_named_session() {
    let mark = mark("dual-shared");
    let gateway = Gateway::start(json!({ "test": dual_stdio(&mark, &[]) })).await;
    // The legacy client opens the first session, the modern client the second.
    let legacy = gateway.client("test/~one").await;
    let modern = Modern::of(&gateway, "test/~one");
    let opened = legacy.call(&gateway, "count", json!({})).await["result"].take();
    assert_eq!(opened["content"][0]["text"], "1");
    assert!(opened["_meta"][ERA].is_null(), "{opened}");
    let translated = modern.call("count", json!({})).await;
    assert_eq!(translated["content"][0]["text"], "2");
    assert_eq!(translated["_meta"][ERA], "legacy");
    assert_eq!(translated["resultType"], "complete");
    let (status, code, _) = modern.refused("subscriptions/listen", json!({})).await;
    assert_eq!((status, code), (404, -32601), "a legacy link has no subscriptions");
    until("the log says it", || gateway.log().contains("the messages are translated")).await;

    let modern = Modern::of(&gateway, "test/~two");
    assert_eq!(modern.text("count").await, "1");
    let legacy = gateway.client("test/~two").await;
    let translated = legacy.call(&gateway, "count", json!({})).await["result"].take();
    assert_eq!(translated["content"][0]["text"], "2");
    assert_eq!(translated["_meta"][ERA], "modern");
    assert_eq!(modern.text("count").await, "3");
    assert_eq!(processes::with_token(&mark).len(), 2);
}

/// Invariant 3: the state of a process is lost with it in the modern era, too, and the next call says so.
#[tokio::test]
async fn loss_of_a_dual_process_is_reported() {
    let mark = mark("dual-loss");
    let gateway = Gateway::start(json!({ "test": dual_stdio(&mark, &[]) })).await;
    let client = Modern::of(&gateway, "test").named("a");
    assert_eq!(client.text("count").await, "1");
    let lost = client.call("crash", json!({})).await;
    assert_eq!(lost["isError"], true, "{lost}");
    assert_eq!(lost["_meta"][STATE]["state"], "lost", "{lost}");
    let next = client.call("count", json!({})).await;
    assert_eq!(next["content"][0]["text"], "1", "{next}");
    assert_eq!(next["_meta"][STATE]["generation"], 1, "{next}");
}

/// An `input_required` round passes to the process of the session.
#[tokio::test]
async fn required_input_passes_to_a_dual_process() {
    let mark = mark("dual-input");
    let gateway = Gateway::start(json!({ "test": dual_stdio(&mark, &[]) })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let can = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let mut params = json!({ "name": "elicit", "arguments": {}, "_meta": can });
    let first = client.result("tools/call", params.clone()).await;
    assert_eq!(first["resultType"], "input_required", "{first}");
    params["requestState"] = first["requestState"].clone();
    params["inputResponses"] =
        json!({ "question": { "action": "accept", "content": { "name": "Bo" } } });
    let second = client.result("tools/call", params).await;
    assert_eq!(second["structuredContent"]["content"]["name"], "Bo");
}

/// A modern client is passed through to a URL of both eras: without a session, with the server's own lists and without
/// session tools. A legacy client beside it has its session.
#[tokio::test]
async fn modern_client_is_passed_through_to_a_dual_url() {
    let server = TestServer::http(&[]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let (client, direct) = (Modern::of(&gateway, "test"), Modern::direct(server.url()));
    let through = client.call("count", json!({})).await;
    assert_eq!(through["isError"], json!(null), "{through}");
    assert!(through["_meta"][STATE].is_null(), "{through}");
    for method in ["tools/list", "prompts/list", "resources/list", "server/discover"] {
        let lists = [&client, &direct].map(|it| it.result(method, json!({})));
        let [through, direct] = join_all(lists).await.try_into().unwrap();
        assert_eq!(through, direct, "{method}");
    }
    let named = Modern::of(&gateway, "test/~a");
    assert_eq!(
        named.result("tools/list", json!({})).await,
        direct.result("tools/list", json!({})).await
    );
    let legacy = gateway.client("test").await;
    assert_eq!(legacy.text(&gateway, "count").await, "1");
    assert_eq!(legacy.text(&gateway, "count").await, "2");
    assert!(client.call("count", json!({})).await["_meta"][STATE].is_null());
}

/// `era: legacy` keeps a session for modern clients of a URL of both eras.
#[tokio::test]
async fn legacy_era_keeps_a_session_at_a_dual_url() {
    let server = TestServer::http(&[]).await;
    let entry = json!({ "url": server.url(), "stayput": { "era": "legacy" } });
    let gateway = Gateway::start(json!({ "test": entry })).await;
    let unnamed = Modern::of(&gateway, "test");
    assert_eq!(unnamed.call("count", json!({})).await["isError"], true);
    let named = unnamed.named("a");
    assert_eq!(named.text("count").await, "1");
    let second = named.call("count", json!({})).await;
    assert_eq!(second["content"][0]["text"], "2");
    assert_eq!(second["_meta"][STATE]["state"], "kept");
    assert_eq!(unnamed.named("b").text("count").await, "1");
}

/// Entry of a legacy server behind a shell script, which gets the command of the server as `"$@"`.
fn scripted(script: &str, mark: &str, starts: &tempfile::NamedTempFile) -> Value {
    let server = program("stayput-testserver");
    let starts = starts.path().to_str().unwrap();
    json!({ "command": "sh", "args": ["-c", script, "sh", server, "stdio", "--era", "legacy", "--mark", mark,
        "--starts", starts] })
}

/// A legacy process that refuses `server/discover`, that does not answer it, or that answers nothing before `initialize`,
/// gets `initialize` without a restart. One that exits is started again. Each is learned once.
#[tokio::test]
async fn legacy_process_is_learned_with_one_start() {
    let refuses = r#"exec "$@""#;
    let ignores = r#"grep -v --line-buffered server/discover | "$@""#;
    let is_silent = r#"grep -v --line-buffered -e server/discover -e '"ping"' | "$@""#;
    let exits = r#"read -r line; case "$line" in *server/discover*) exit 3;; esac
        { printf '%s\n' "$line"; cat; } | "$@""#;
    for (name, script) in
        [("refuses", refuses), ("ignores", ignores), ("silent", is_silent), ("exits", exits)]
    {
        let starts = tempfile::NamedTempFile::new().unwrap();
        let mark = mark(&format!("learned-{name}"));
        let gateway = Gateway::start(json!({ "test": scripted(script, &mark, &starts) })).await;
        let client = Modern::of(&gateway, "test");
        let discovered = client.result("server/discover", json!({})).await;
        assert!(discovered["capabilities"]["tools"].is_object(), "{name}: {discovered}");
        let started = || std::fs::read_to_string(starts.path()).unwrap().lines().count();
        assert_eq!(started(), 1, "{name}");
        assert_eq!(client.named("a").text("count").await, "1", "{name}");
        assert_eq!(started(), 1, "{name}: started again for its session");
        let log = gateway.log();
        assert!(!log.contains("did not answer"), "{name}: a timeout ended: {log}");
    }
}

/// Server of 2026-07-28 that answers nothing before it got `initialize`, too, which it refuses first. A process that gets
/// `initialize` as its first request refuses it at once.
const SLOW_MODERN: &str = r#"
import json, sys
discover = None
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "server/discover":
        discover = id
    elif method == "initialize":
        say({"id": id, "error": {"code": -32601, "message": "no such method"}})
        if discover is not None:
            say({"id": discover, "result": {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                 "capabilities": {"tools": {}}, "ttlMs": 60000, "cacheScope": "public"}})
    elif method == "tools/list":
        say({"id": id, "result": {"resultType": "complete", "ttlMs": 60000, "cacheScope": "public",
             "tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        say({"id": id, "result": {"resultType": "complete", "content": [{"type": "text", "text": "hello"}]}})
"#;

/// A slow modern process may refuse `initialize` before it answers `server/discover`.
#[tokio::test]
async fn slow_modern_process_may_refuse_initialize_first() {
    let server = json!({ "command": "python3", "args": ["-c", SLOW_MODERN] });
    let gateway = Gateway::start(json!({ "test": server })).await;
    assert_eq!(Modern::of(&gateway, "test").text("hello").await, "hello");
}
