//! `stayput serve` end to end: real HTTP clients, real servers, real restarts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::json;
use stayput_testkit::until_some;
use stayput_testkit::{
    mcp::{TestServer, send},
    processes,
};
use support::{Gateway, LONG, gone, mark, stdio, until};

/// R013, R162, E34: each client has its own process and state.
#[tokio::test]
async fn each_client_has_its_own_state() {
    let mark = mark("own");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    assert_ne!(ann.id, bob.id);
    for n in 1..=3 {
        assert_eq!(ann.text(&gateway, "count").await, n.to_string());
    }
    assert_eq!(bob.text(&gateway, "count").await, "1");
    assert_eq!(ann.text(&gateway, "count").await, "4");
    drop(gateway);
    gone(&mark).await;
}

/// R031: `initialize` and lists start no process for a session.
#[tokio::test]
async fn child_starts_with_the_first_call_that_needs_it() {
    let mark = mark("lazy");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let clients = [gateway.client("test").await, gateway.client("test").await];
    for client in &clients {
        let listed = client.request(&gateway, "tools/list", json!({})).await;
        assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 5));
        assert_eq!(client.request(&gateway, "ping", json!({})).await["result"], json!({}));
    }
    let asked = processes::with_token(&mark);
    assert_eq!(asked.len(), 1, "the one that was asked waits for its session");
    assert_eq!(clients[0].text(&gateway, "count").await, "1");
    assert_eq!(processes::with_token(&mark), asked);
    assert_eq!(clients[1].text(&gateway, "count").await, "1");
    assert_eq!(processes::with_token(&mark).len(), 2);
}

/// Waits until a counter of the server has this value.
async fn counted(server: &TestServer, name: &str, value: u64) {
    let what = format!("{name} is {value}");
    until_some(&what, async || (server.counted(name).await == value).then_some(())).await;
}

/// A session is deleted on its server also if the gateway was killed before the server had its DELETE, or has no link
/// to it.
#[tokio::test]
async fn delete_is_finished_after_a_restart() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let servers = json!({ "test": { "url": server.url() } });
    let mut gateway = Gateway::with(servers, json!({ "lease": "5s" })).await;
    let (killed, unlinked) = (gateway.client("test").await, gateway.client("test").await);
    for client in [&killed, &unlinked] {
        assert_eq!(client.text(&gateway, "count").await, "1");
    }
    counted(&server, "sessions", 2).await;
    let deletes = server.counted("deletes").await;
    server.script(&json!([{ "on": "DELETE", "do": "hang" }])).await;
    let url = gateway.at("test");
    let id = killed.id;
    let deleting = tokio::runtime::Handle::current().spawn(async move {
        let headers = [("mcp-session-id", &*id)];
        send(Method::DELETE, &url, &headers, "").await.map(|answer| answer.status)
    });
    counted(&server, "deletes", deletes + 1).await;
    gateway.kill();
    let _ = deleting.await.unwrap();
    server.script(&json!([])).await;
    gateway.restart().await;
    counted(&server, "sessions", 1).await;
    assert_eq!(unlinked.delete(&gateway).await, 200);
    counted(&server, "sessions", 0).await;
    assert_eq!(server.counted("deletes").await, deletes + 3, "none is sent twice");
}

/// The id of a session on a server is not sent to the server that took its place in the configuration.
#[tokio::test]
async fn session_is_not_deleted_on_another_server() {
    let servers = [
        TestServer::http(&["--era", "legacy"]).await,
        TestServer::http(&["--era", "legacy"]).await,
    ];
    let mut gateway = Gateway::start(json!({ "test": { "url": servers[0].url() } })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let deletes = servers[0].counted("deletes").await;
    assert!(gateway.stop().success());
    gateway.edit(servers[0].url(), servers[1].url());
    gateway.restart().await;
    assert_eq!(client.delete(&gateway).await, 200);
    assert!(gateway.stop().success());
    assert_eq!(servers[1].counted("deletes").await, 0, "it got the id of another server");
    assert_eq!(servers[0].counted("deletes").await, deletes);
}

/// R019, invariant 4: fifty concurrent first calls start one process.
#[tokio::test]
async fn fifty_first_calls_start_one_process() {
    let mark = mark("fifty");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let calls = (0..50).map(|n| {
        let body = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call",
            "params": { "name": "count", "arguments": {} } });
        let (client, gateway) = (&client, &gateway);
        async move {
            let answer = client.send(gateway, &body.to_string()).await.message().await;
            assert_eq!(answer["id"], n);
            answer["result"]["content"][0]["text"].as_str().unwrap().parse::<u32>().unwrap()
        }
    });
    let mut counted = futures_util::future::join_all(calls).await;
    counted.sort_unstable();
    assert_eq!(counted, (1..=50).collect::<Vec<_>>());
    assert_eq!(processes::with_token(&mark).len(), 1);
}

/// Invariants 3 and 5: after `kill -9` no process is orphaned, the connection is known, the loss of a child is
/// reported once, and then the session continues with a new state.
#[tokio::test]
async fn killed_gateway_reports_the_loss_of_a_child_once() {
    let mark = mark("killed");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let told = client.call(&gateway, "count", json!({})).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    assert_eq!(after_the_loss(&gateway, &client).await, "1");
    assert_eq!(client.text(&gateway, "count").await, "2");
}

/// Invariant 5: if the gateway and its warden are killed at once, the next start ends the processes that they left, and
/// removes the private folders of sessions that are gone.
#[tokio::test]
async fn start_removes_what_a_killed_gateway_and_its_warden_left() {
    let mark = mark("left");
    // The process in the background does not end with the input of the server.
    let server = stayput_testkit::program("stayput-testserver");
    let script = format!("sleep 300 & exec {} stdio --era legacy", server.display());
    let env = json!({ "MARK": mark, "PRIVATE": "${session.dir}" });
    let entry = json!({ "command": "sh", "args": ["-c", script], "env": env });
    let mut gateway = Gateway::on(json!({ "test": entry }), "memory:").await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let stayputs = std::fs::read_dir(gateway.folder.path().join("data/stayput")).unwrap();
    let data = stayputs.map(|it| it.unwrap().path()).find(|it| it.is_dir()).unwrap();
    let sessions = || std::fs::read_dir(data.join("folders/sessions")).map_or(0, Iterator::count);
    until("single private folder", || sessions() == 1).await;

    let wardens = processes::with_token("warden");
    let below = processes::descendants(gateway.pid());
    let warden = below.into_iter().find(|pid| wardens.contains(pid)).unwrap();
    let both = [gateway.pid(), warden].map(|pid| pid.to_string());
    assert!(std::process::Command::new("kill").arg("-9").args(both).status().unwrap().success());
    gateway.wait();
    assert_eq!(sessions(), 1);

    // Another gateway that starts on this machine may end the process earlier.
    gateway.restart().await;
    gone(&mark).await;
    until("removal of the folder", || sessions() == 0).await;
}

/// Returns the first count after a loss. The loss is acknowledged after the answer is sent, so it may be reported once
/// more.
async fn after_the_loss(gateway: &Gateway, client: &support::Client) -> String {
    let next = async || {
        let answer = client.call(gateway, "count", json!({})).await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        (answer["result"]["isError"] != true).then_some(text)
    };
    until_some("the loss is reported no more", next).await
}

/// R110–R118, E07: a session on an HTTP server continues through a restart, without `initialize`.
#[tokio::test]
async fn killed_gateway_resumes_the_session_of_an_http_server() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let shaken = server.counted("initialize").await;
    gateway.kill();
    gateway.restart().await;
    assert_eq!(client.text(&gateway, "count").await, "2");
    // The new process may have probed the era of the server on a separate session.
    assert!(server.counted("initialize").await <= shaken + 1);
}

/// E08, E11: a server that forgot its session is reported as a loss, and a new session begins.
#[tokio::test]
async fn http_server_that_forgets_is_reported_as_a_loss() {
    let mut server = TestServer::http(&["--era", "legacy"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    server.restart().await;
    let told = client.call(&gateway, "count", json!({})).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert_eq!(after_the_loss(&gateway, &client).await, "1");
    assert_eq!(client.text(&gateway, "count").await, "2");
}

#[tokio::test]
async fn crash_of_a_child_is_reported_to_its_own_session() {
    let mark = mark("dies");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    assert_eq!(ann.text(&gateway, "count").await, "1");
    assert_eq!(bob.text(&gateway, "count").await, "1");
    let told = ann.call(&gateway, "crash", json!({})).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    let words = told["result"]["content"][0]["text"].as_str().unwrap();
    assert!(words.contains("may or may not have been carried out"), "{words}");
    assert_eq!(bob.text(&gateway, "count").await, "2");
}

#[tokio::test]
async fn progress_and_server_requests_come_on_the_stream_of_their_call() {
    let mark = mark("streams");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client_with("test", "2025-11-25", json!({ "elicitation": {} })).await;
    let slow = json!({ "jsonrpc": "2.0", "id": "s/1", "method": "tools/call", "params": {
        "name": "slow", "arguments": { "ms": 100, "steps": 4 }, "_meta": { "progressToken": "p" } } });
    let mut events = client.send(&gateway, &slow.to_string()).await.events();
    let mut seen = 0;
    loop {
        let message = events.message().await.unwrap();
        if message["id"] == "s/1" {
            break;
        }
        assert_eq!(message["params"]["progressToken"], "p");
        seen += 1;
    }
    assert!(seen >= 3);
    let ask = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "elicit", "arguments": {} } });
    let mut events = client.send(&gateway, &ask.to_string()).await.events();
    let question = events.message().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "answer": "forty-two" } } });
    assert_eq!(client.send(&gateway, &answer.to_string()).await.status, 202);
    let done = events.message().await.unwrap();
    assert!(done["result"].to_string().contains("forty-two"), "{done}");
}

/// A disconnect does not cancel: the answer waits, and the call ran once.
#[tokio::test]
async fn unread_answer_can_be_resumed() {
    let mark = mark("resume");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let slow = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "slow", "arguments": { "ms": 800, "steps": 4 }, "_meta": { "progressToken": 1 } } });
    let mut events = client.send(&gateway, &slow.to_string()).await.events();
    events.message().await.unwrap();
    let last = events.last_id().unwrap().to_owned();
    drop(events);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut events = client.get(&gateway, Some(&last)).await.events();
    let mut messages = Vec::new();
    while let Some(message) = events.message().await {
        messages.push(message);
    }
    let done = messages.last().unwrap();
    assert_eq!((&done["id"], done["result"].is_object()), (&json!(1), true), "{messages:?}");
    // Another client cannot read it.
    let other = gateway.client("test").await;
    let mut events = other.get(&gateway, Some(&last)).await.events();
    let first = tokio::time::timeout(Duration::from_millis(300), events.message()).await;
    assert!(first.is_err(), "it listens to a stream of its own: {first:?}");
    let stats = client.text(&gateway, "stats").await;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["cancels"], 0, "{stats}");
}

#[tokio::test]
async fn client_can_cancel_a_call() {
    let mark = mark("cancel");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let slow = json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {
        "name": "slow", "arguments": { "ms": 60_000, "steps": 600 }, "_meta": { "progressToken": 1 } } });
    let mut events = client.send(&gateway, &slow.to_string()).await.events();
    events.message().await.unwrap();
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": "x" } });
    assert_eq!(client.send(&gateway, &cancel.to_string()).await.status, 202);
    // The stream ends without an answer.
    let rest = async { while events.message().await.is_some() {} };
    tokio::time::timeout(LONG, rest).await.unwrap();
    let cancelled = async || {
        let stats = client.text(&gateway, "stats").await;
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        (stats["cancels"] == 1).then_some(())
    };
    until_some("the server gets the cancellation", cancelled).await;
}

#[tokio::test]
async fn messages_are_passed_on_unchanged() {
    let mark = mark("bytes");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let said = r#"{"jsonrpc":"2.0", "id":"a\/1","method":"tools/call","params":{"name":"echo","arguments":{ "n":1.10,"big":123456789012345678901234567890 }}}"#;
    let answer = client.send(&gateway, said).await.bytes().await.unwrap();
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    assert!(answer.contains(r#""id":"a\/1""#), "{answer}");
    assert!(answer.contains(r#"\"n\":1.10,\"big\":123456789012345678901234567890"#), "{answer}");
}

/// R172: a client error is answered with a message that names it.
#[tokio::test]
async fn bad_request_is_answered_with_the_reason() {
    let mark = mark("bad");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let status = |answer: stayput_testkit::mcp::Answer| answer.status.as_u16();
    assert_eq!(status(gateway.post("test", &[], ping).await), 400, "no session id");
    let unknown = [("mcp-session-id", "sp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")];
    assert_eq!(status(gateway.post("test", &unknown, ping).await), 404, "unknown");
    assert_eq!(status(gateway.post("test", &[("mcp-session-id", "../x")], ping).await), 404);
    assert_eq!(status(gateway.post("nothing", &[], ping).await), 404, "no such server");
    assert_eq!(status(client.send(&gateway, "{").await), 400, "no JSON");
    assert_eq!(status(client.send(&gateway, r#"{"jsonrpc":"2.0","id":1}"#).await), 400);
    let id = ("mcp-session-id", &*client.id);
    let old = [id, ("mcp-protocol-version", "1999-01-01")];
    assert_eq!(status(gateway.post("test", &old, ping).await), 400, "unknown version");
    let evil = [id, ("origin", "http://evil.example.com")];
    assert_eq!(status(gateway.post("test", &evil, ping).await), 403, "foreign origin");
    let url = format!("{}/mcp/test", gateway.url);
    assert_eq!(send(Method::PUT, &url, &[], "").await.unwrap().status.as_u16(), 405);
    assert_eq!(send(Method::GET, &url, &[], "").await.unwrap().status.as_u16(), 406);
    let health = format!("{}/healthz", gateway.url);
    assert_eq!(send(Method::GET, &health, &[], "").await.unwrap().status.as_u16(), 200);
    assert_eq!(status(client.send(&gateway, ping).await), 200, "and it still works");
}

/// `DELETE` ends the connection, its session and its process.
#[tokio::test]
async fn delete_ends_the_session_and_its_process() {
    let mark = mark("goodbye");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    assert_eq!(client.delete(&gateway).await, 200);
    gone(&mark).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(client.send(&gateway, ping).await.status, 404);
    assert_eq!(client.delete(&gateway).await, 404);
}

#[tokio::test]
async fn batch_is_answered_as_a_batch() {
    let mark = mark("batch");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client_with("test", "2025-03-26", json!({})).await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},
        {"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"count","arguments":{}}}]"#;
    let answers = client.send(&gateway, batch).await.json().await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!("b")], "{answers}");
    let newer = gateway.client("test").await;
    assert_eq!(newer.send(&gateway, batch).await.status, 400, "later versions have none");
}

#[tokio::test]
async fn stopping_gateway_lets_calls_end() {
    let mark = mark("stop");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    let slow = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "slow", "arguments": { "ms": 3_000 } } });
    let (url, id) = (format!("{}/mcp/test", gateway.url), client.id.clone());
    let calling = tokio::runtime::Handle::current().spawn(async move {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", &*id),
        ];
        send(Method::POST, &url, &headers, slow.to_string()).await.unwrap().message().await
    });
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let status = tokio::task::spawn_blocking(move || (gateway.stop(), gateway)).await.unwrap().0;
    assert!(status.success(), "{status}");
    assert!(calling.await.unwrap()["result"].is_object());
    gone(&mark).await;
}

/// Without authentication only this machine may connect.
#[tokio::test]
async fn public_address_is_refused_with_the_reason() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("stayput.json");
    std::fs::write(&config, r#"{"mcpServers":{},"stayput":{"listen":"0.0.0.0:0"}}"#).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["serve", "--store", "memory:", "--config"]).arg(&config);
    let output = command.env("XDG_DATA_HOME", folder.path()).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--open-to-all"), "{said}");
}

/// Two gateways on one store would compete for its sessions.
#[tokio::test]
async fn second_gateway_on_the_same_store_is_refused() {
    let mark = mark("second");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let config = gateway.folder.path().join("stayput.json");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.args(["serve", "--config"]).arg(&config).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another stayput (process "), "{said}");
}

/// Invariant 3: a session that idled out is replaced, and the loss is reported before any call runs.
#[tokio::test]
async fn expired_session_reports_its_loss() {
    let mark = mark("expired");
    // Long compared with two calls, even on a busy machine.
    let expiry = json!({ "expiry": { "idle": "5s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), expiry).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    assert_eq!(client.text(&gateway, "count").await, "2");
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    let told = client.call(&gateway, "count", json!({})).await;
    assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    // On a new process, not on the earlier one.
    assert_eq!(after_the_loss(&gateway, &client).await, "1");
}

/// Invariant 2: the same request sent twice runs once.
#[tokio::test]
async fn request_in_flight_is_not_run_again() {
    let mark = mark("twice");
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = stdio(&mark, &["--log", log.path().to_str().unwrap()]);
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    let slow = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow", "arguments": { "ms": 600_000 } } });
    let slow = slow.to_string();
    let received = || std::fs::read_to_string(log.path()).unwrap().matches(r#""slow""#).count();
    let again = async {
        until("the first one is in flight", || received() == 1).await;
        client.send(&gateway, &slow).await.message().await
    };
    let refused = tokio::select! {
        first = async { client.send(&gateway, &slow).await.message().await } => panic!("{first}"),
        refused = again => refused,
    };
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(client.text(&gateway, "count").await, "1");
    assert_eq!(received(), 1);
}

/// A request that is cancelled before it was sent is never sent.
#[tokio::test]
async fn request_can_be_cancelled_while_its_server_starts() {
    let mark = mark("early");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &["--startup-ms", "3000"]) })).await;
    // The process that was asked for its tools serves the first session.
    let first = gateway.client("test").await;
    assert_eq!(first.text(&gateway, "count").await, "1");
    let client = gateway.client("test").await;
    let count = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call",
        "params": { "name": "count", "arguments": {} } });
    let count = count.to_string();
    let calling = client.send(&gateway, &count);
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": "c" } });
        client.send(&gateway, &cancel.to_string()).await
    };
    let (answer, told) = futures_util::future::join(calling, cancelling).await;
    assert_eq!((answer.status.as_u16(), told.status.as_u16()), (202, 202));
    assert_eq!(client.text(&gateway, "count").await, "1", "it did not run");
}

/// A denied tool is neither listed nor callable.
#[tokio::test]
async fn denied_tool_is_neither_listed_nor_callable() {
    let mark = mark("denied");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "tools": { "deny": ["crash"] } });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    let names = |listed: serde_json::Value| -> Vec<String> {
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = names(client.request(&gateway, "tools/list", json!({})).await);
    assert!(listed.contains(&"count".to_owned()) && !listed.contains(&"crash".to_owned()));
    let refused = client.call(&gateway, "crash", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(client.text(&gateway, "count").await, "1");
    // Nor is it in a list that comes from the server itself after a change.
    client.text(&gateway, "notify").await;
    let listed = names(client.request(&gateway, "tools/list", json!({})).await);
    assert!(listed.contains(&"count".to_owned()) && !listed.contains(&"crash".to_owned()));
}

/// Invariant 1: an id is valid only on the path on which it was issued.
#[tokio::test]
async fn id_is_unknown_on_another_path() {
    let mark = mark("paths");
    let servers = json!({ "one": stdio(&mark, &[]), "two": stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client("one").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let id = [("mcp-session-id", &*client.id)];
    assert_eq!(gateway.post("two", &id, ping).await.status, 404);
    let url = format!("{}/mcp/two", gateway.url);
    assert_eq!(send(Method::DELETE, &url, &id, "").await.unwrap().status, 404);
    assert_eq!(client.send(&gateway, ping).await.status, 200, "it was not ended by that");
}

/// A large body passes. A body over the limit is refused, and the session stays alive.
#[tokio::test]
async fn large_argument_passes_and_a_larger_one_is_refused() {
    let mark = mark("large");
    let limits = json!({ "limits": { "body": "11MiB" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), limits).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let fill = "x".repeat(10 << 20);
    let answer = client.call(&gateway, "echo", json!({ "fill": fill })).await;
    let echoed = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(echoed.len() > 10 << 20);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "echo", "arguments": { "fill": "x".repeat(12 << 20) } } });
    let refused = client.send(&gateway, &body.to_string()).await;
    assert_eq!(refused.status, 413);
    assert_eq!(client.text(&gateway, "count").await, "2");
}
