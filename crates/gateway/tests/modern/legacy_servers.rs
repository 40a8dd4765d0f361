//! Calls to legacy servers, whose state belongs to a session.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    kit::{Modern, modern_stdio, request},
    support::{Gateway, LONG, gone, mark, stdio},
};

const STATE: &str = "dev.stayput/state";

/// R013, R146: several conversations of one client have a process each. Their results name the state.
#[tokio::test]
async fn each_named_session_has_its_own_state() {
    let mark = mark("named");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let (ann, bob) = (unnamed.named("ann"), unnamed.named("bob"));
    let first = ann.call("count", json!({})).await;
    assert_eq!(first["content"][0]["text"], "1");
    assert_eq!(first["resultType"], "complete");
    assert_eq!(first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stayput-testserver");
    let state = &first["_meta"][STATE];
    assert_eq!((&state["state"], &state["generation"]), (&json!("fresh"), &json!(0)), "{state}");
    assert!(state["expires"].as_str().is_some_and(|at| at.ends_with('Z')), "{state}");
    let second = ann.call("count", json!({})).await;
    assert_eq!(second["content"][0]["text"], "2");
    assert_eq!(second["_meta"][STATE]["state"], "kept");
    assert_eq!(second["_meta"][STATE]["session"], state["session"]);
    let other = bob.call("count", json!({})).await;
    assert_eq!(other["content"][0]["text"], "1");
    assert_ne!(other["_meta"][STATE]["session"], state["session"]);
    assert_eq!(processes::with_token(&mark).len(), 2);
}

/// A call without a session name does not run. The process that was asked for its tools waits for the session.
#[tokio::test]
async fn call_without_a_session_name_does_not_run() {
    let mark = mark("unnamed");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let result = unnamed.call("count", json!({})).await;
    assert_eq!(result["isError"], true, "{result}");
    let asked = processes::with_token(&mark);
    assert_eq!(asked.len(), 1);
    assert_eq!(unnamed.named("a").text("count").await, "1");
    assert_eq!(processes::with_token(&mark), asked);
}

/// A method without an argument for a handle runs on an ephemeral link.
#[tokio::test]
async fn prompt_needs_no_session() {
    let mark = mark("fleeting");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let prompt = json!({ "name": "greet", "arguments": { "name": "Ann" } });
    let prompt = unnamed.result("prompts/get", prompt).await;
    assert!(prompt.to_string().contains("Say hello to Ann."), "{prompt}");
    let read = unnamed.result("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(0), &json!("private")));
    gone(&mark).await;
}

/// Cell B: the legacy server and its modern client each get messages of their own era.
#[tokio::test]
async fn requests_and_answers_are_translated() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let mark = mark("translated");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &["--log", path]) })).await;
    let client = Modern::of(&gateway, "test").named("a");
    client.call("echo", json!({ "n": 1 })).await;
    let traced = json!({ "name": "echo", "arguments": {}, "_meta": { "traceparent": "00-t" } });
    client.result("tools/call", traced).await;
    let seen = std::fs::read_to_string(path).unwrap();
    let calls: Vec<Value> = seen
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|message| message["method"] == "tools/call")
        .map(|message| message["params"].clone())
        .collect();
    assert_eq!(calls[0], json!({ "name": "echo", "arguments": { "n": 1 } }));
    assert_eq!(calls[1]["_meta"], json!({ "traceparent": "00-t" }));
    // The session's own link is opened with the name of its client, which supports no server requests.
    let hello = seen.lines().rfind(|line| line.contains("\"initialize\"")).unwrap();
    let hello: Value = serde_json::from_str(hello).unwrap();
    assert_eq!(hello["params"]["clientInfo"]["name"], "modern");
    assert_eq!(hello["params"]["capabilities"], json!({}));
    let (status, code, message) =
        client.refused("resources/read", json!({ "uri": "test://no" })).await;
    assert_eq!((status, code), (200, -32602), "{message}");
    assert_eq!(message["error"]["data"]["uri"], "test://no");
}

/// Invariant 9: no error code is passed on that this era reserves or has removed.
#[tokio::test]
async fn codes_of_the_legacy_era_are_not_passed_on() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test").named("a");
    assert_eq!(client.text("count").await, "1");
    let wrong = |code: i64| {
        let data = json!({ "elicitations": [{ "mode": "url", "url": "https://a.example/login" }] });
        let body = json!({ "jsonrpc": "2.0", "id": "$id", "error":
            { "code": code, "message": "not yet", "data": data } });
        let body = body.to_string().replace("\"$id\"", "$id");
        let headers = [["content-type", "application/json"]];
        json!([{ "on": "tools/call", "do": { "status":
            { "code": 200, "body": body, "headers": headers } } }])
    };
    for (code, expected) in [(-32002, -32602), (-32021, -32603), (-32007, -32007), (7, 7)] {
        server.script(&wrong(code)).await;
        let (status, code, message) =
            client.refused("tools/call", json!({ "name": "count" })).await;
        assert_eq!((status, code), (200, expected), "{message}");
    }
    server.script(&wrong(-32042)).await;
    let result = client.call("count", json!({})).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.to_string().contains("https://a.example/login"), "{result}");
    assert_eq!(result["_meta"][STATE]["state"], "kept", "{result}");
}

/// Invariant 3: a loss is reported once, and then the client continues with a new state.
#[tokio::test]
async fn loss_is_reported_to_a_modern_client() {
    let mark = mark("lost");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let unnamed = Modern::of(&gateway, "test");
    let client = unnamed.named("a");
    assert_eq!(client.text("count").await, "1");
    let told = client.call("crash", json!({})).await;
    assert_eq!(told["isError"], true, "{told}");
    assert_eq!(told["_meta"][STATE]["state"], "lost");
    assert_eq!(told["_meta"][STATE]["generation"], 1);
    let next = after_the_loss(&client).await;
    assert_eq!(next["content"][0]["text"], "1");
    assert_eq!(next["_meta"][STATE]["generation"], 1);
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let client = Modern::of(&gateway, "test").named("a");
    let (status, code, message) =
        client.refused("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!((status, code), (200, -31001), "{message}");
    let next = after_the_loss(&client).await;
    assert_eq!(
        (&next["content"][0]["text"], &next["_meta"][STATE]["state"]),
        (&json!("1"), &json!("kept"))
    );
}

/// Returns the first count after a loss. The loss is acknowledged after the answer is sent, so it may be reported once
/// more.
async fn after_the_loss(client: &Modern) -> Value {
    let next = async || {
        let answer = client.call("count", json!({})).await;
        (answer["isError"] != true).then_some(answer)
    };
    stayput_testkit::until_some("the loss is reported no more", next).await
}

/// A server request during a call is refused, and the server ends the call as it likes.
#[tokio::test]
async fn server_that_sends_requests_does_not_hang() {
    let server = TestServer::http(&["--era", "legacy", "--quirk", "ask-anyway"]).await;
    let mark = mark("asks");
    let servers = json!({
        "http": { "url": server.url() },
        "stdio": stdio(&mark, &["--quirk", "ask-anyway"]),
        "polite": stdio(&mark, &[]),
    });
    let gateway = Gateway::start(servers).await;
    for name in ["http", "stdio", "polite"] {
        let client = Modern::of(&gateway, name).named("a");
        let can = json!({ "io.modelcontextprotocol/clientCapabilities":
            { "elicitation": {}, "sampling": {}, "roots": {} } });
        for tool in ["elicit", "sample", "roots"] {
            let params = json!({ "name": tool, "arguments": {}, "_meta": can });
            let result = tokio::time::timeout(LONG, client.result("tools/call", params)).await;
            let result = result.unwrap();
            assert_eq!(
                (&result["isError"], &result["resultType"]),
                (&json!(true), &json!("complete"))
            );
        }
        assert_eq!(client.text("count").await, "1", "{name} goes on");
    }
}

/// A call without an answer ends at its timeout with an error text.
#[tokio::test]
async fn call_without_an_answer_ends_at_its_timeout() {
    let mark = mark("limit");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "timeout": "1s" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let result = client.call("slow", json!({ "ms": 600_000 })).await;
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("1s"), "{result}");
    assert_eq!(client.text("count").await, "1");
}

/// R019, invariant 4: concurrent first calls open one session and one process.
#[tokio::test]
async fn concurrent_first_calls_start_one_process() {
    let mark = mark("twenty");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = Modern::of(&gateway, "test").named("a");
    let calls = (0..20).map(|n| {
        let body = request(&json!(n), "tools/call", json!({ "name": "count", "arguments": {} }));
        let client = &client;
        async move {
            let answer = client.send(&body).await.message().await;
            assert_eq!(answer["id"], n);
            answer["result"]["content"][0]["text"].as_str().unwrap().parse::<u32>().unwrap()
        }
    });
    let mut counted = futures_util::future::join_all(calls).await;
    counted.sort_unstable();
    assert_eq!(counted, (1..=20).collect::<Vec<_>>());
    assert_eq!(processes::with_token(&mark).len(), 1);
}

/// A modern server can have sessions if configured. Messages change only by the state in `_meta`.
#[tokio::test]
async fn modern_server_has_sessions_if_configured() {
    let mark = mark("kept-modern");
    let mut server = modern_stdio(&mark, &[]);
    server["stayput"] = json!({ "isolation": "per-session", "era": "modern" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let unnamed = Modern::of(&gateway, "test");
    let first = unnamed.named("ann").call("count", json!({})).await;
    assert_eq!(
        (&first["content"][0]["text"], &first["_meta"][STATE]["state"]),
        (&json!("1"), &json!("fresh"))
    );
    assert_eq!(unnamed.named("bob").text("count").await, "1");
    assert_eq!(unnamed.named("ann").text("count").await, "2");
    assert_eq!(unnamed.call("count", json!({})).await["isError"], true);
    let lists = [
        unnamed.result("tools/list", json!({})).await,
        unnamed.named("ann").result("tools/list", json!({})).await,
    ];
    assert_eq!(lists[0], lists[1]);
    assert_eq!(processes::with_token(&mark).len(), 2, "no list starts a process");
}

/// A shared legacy server is translated and used without a session. Its loss is reported to the call that meets it.
#[tokio::test]
async fn legacy_server_is_shared_if_configured() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mark = mark("shared-legacy");
    let mut server = stdio(&mark, &["--log", log.path().to_str().unwrap()]);
    server["stayput"] = json!({ "isolation": "shared", "era": "legacy" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = Modern::of(&gateway, "test");
    assert_eq!(client.text("count").await, "1");
    let second = client.named("ann").call("count", json!({})).await;
    assert_eq!(second["content"][0]["text"], "2");
    assert!(second["_meta"][STATE]["session"].is_null(), "it is nobody's: {second}");
    assert_eq!(processes::with_token(&mark).len(), 1);
    // A changed list is fetched once more on the existing link.
    let listed = || {
        let seen = std::fs::read_to_string(log.path()).unwrap();
        seen.lines().filter(|line| line.contains("\"tools/list\"")).count()
    };
    client.text("notify").await;
    let before = listed();
    for _ in 0..3 {
        client.result("tools/list", json!({})).await;
    }
    assert_eq!(listed(), before + 1);
    let told = client.call("crash", json!({})).await;
    assert_eq!((&told["isError"], &told["_meta"][STATE]["state"]), (&json!(true), &json!("lost")));
    assert_eq!(client.text("count").await, "1");
}

/// A probe without a session leaves no folder behind.
#[tokio::test]
async fn folder_of_a_probe_is_removed() {
    let mark = mark("folders");
    let mut server = stdio(&mark, &[]);
    server["env"] = json!({ "PRIVATE": "${session.dir}" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = Modern::of(&gateway, "test");
    client.result("tools/list", json!({})).await;
    client.result("tools/list", json!({})).await;
    let folders = gateway.folder.path().join("store.db.d/folders/sessions");
    let empty = || std::fs::read_dir(&folders).map_or(0, Iterator::count) == 0;
    stayput_testkit::until("the folders are removed", empty).await;
    let result = client.named("a").call("env", json!({ "name": "PRIVATE" })).await;
    let own = result["content"][0]["text"].as_str().unwrap();
    assert!(own.starts_with(folders.to_str().unwrap()), "{own}");
}

/// Invariant 3: the loss of a shared legacy server is reported, though its callers have no session.
#[tokio::test]
async fn loss_of_a_shared_server_is_reported() {
    let mark = mark("shared-loss");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "isolation": "shared" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    for client in [Modern::of(&gateway, "test"), Modern::of(&gateway, "test").named("a")] {
        let first = client.call("count", json!({})).await;
        let generation = first["_meta"][STATE]["generation"].as_u64().unwrap();
        assert_eq!(first["_meta"][STATE]["state"], "kept", "{first}");
        for pid in processes::with_token(&mark) {
            let kill = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(kill.unwrap().success());
        }
        gone(&mark).await;
        let told = loop {
            let answer = client.call("count", json!({})).await;
            assert_eq!(answer["isError"], true, "{answer}");
            // The gateway waits a moment before it starts the server again.
            if !answer["_meta"][STATE].is_null() {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let state = &told["_meta"][STATE];
        assert_eq!((&state["state"], &state["session"]), (&json!("lost"), &Value::Null), "{told}");
        assert_eq!(state["generation"], generation + 1);
        let next = after_the_loss(&client).await;
        assert_eq!((&next["content"][0]["text"], &next["isError"]), (&json!("1"), &Value::Null));
        assert_eq!(next["_meta"][STATE]["generation"], generation + 1, "{next}");
    }
}
