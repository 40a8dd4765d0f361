//! Over standard input and output.

use std::{fs, time::Duration};

use serde_json::json;
use stayput_testkit::{processes, program};
use tokio::{io::AsyncReadExt, process::Command};

use super::kit::{Process, call, initialize, modern, request, soon, text, until};

#[tokio::test]
async fn a_process_keeps_its_state() {
    let mut server = Process::start(&[]);
    server.initialize().await;
    for n in 1..=3_u64 {
        let answer = server.ask(&call(n, "count", &json!({}))).await;
        assert_eq!(text(&answer), n.to_string());
        assert_eq!(answer["result"]["structuredContent"]["count"], n);
    }
    server.ask(&call(4, "note_add", &json!({ "text": "milk" }))).await;
    assert_eq!(text(&server.ask(&call(5, "note_list", &json!({}))).await), "milk");
    let read = server.ask(&request(6, "resources/read", &json!({ "uri": "test://count" }))).await;
    assert_eq!(read["result"]["contents"][0]["text"], "3");

    let mut other = Process::start(&[]);
    other.initialize().await;
    assert_eq!(text(&other.ask(&call(1, "count", &json!({}))).await), "1");
}

/// Invariant 10: whoever stands between can be found out by a single byte.
#[tokio::test]
async fn arguments_and_ids_are_echoed_byte_for_byte() {
    let mut server = Process::start(&[]);
    server.initialize().await;
    let arguments = r#"{ "b":1.10, "a" : 12345678901234567890123, "a":"\u00e9\/" }"#;
    let id = r#""a\/1""#;
    server
        .say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
        ))
        .await;
    let line = server.line().await.unwrap();
    assert!(line.contains(&format!(r#""id":{id},"#)), "{line}");
    assert_eq!(text(&serde_json::from_str(&line).unwrap()), arguments);
}

#[tokio::test]
async fn a_legacy_client_asks_in_order_and_gets_the_right_errors() {
    let mut server = Process::start(&["--era", "legacy"]);
    let early = server.ask(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(early["error"]["code"], -32600);
    let modern_only = server.ask(&request(2, "server/discover", &json!({}))).await;
    assert_eq!(modern_only["error"]["code"], -32601);
    assert_eq!(server.ask(&request(3, "ping", &json!({}))).await["result"], json!({}));
    server.initialize().await;
    for (method, params, code) in [
        ("no/such", json!({}), -32601),
        ("tools/call", json!({ "name": "nothing" }), -32602),
        ("resources/read", json!({ "uri": "test://nothing" }), -32002),
        ("prompts/get", json!({ "name": "nothing" }), -32602),
        ("tools/list", json!({ "cursor": "nothing" }), -32602),
    ] {
        let answer = server.ask(&request(4, method, &params)).await;
        assert_eq!(answer["error"]["code"], code, "{method}");
    }
    server.say("{").await;
    assert_eq!(server.hear().await["error"]["code"], -32700);
    let failed = server.ask(&call(5, "fail", &json!({}))).await;
    assert_eq!(failed["result"]["isError"], true);
    let complete = json!({ "ref": {}, "argument": { "name": "name", "value": "Jo" } });
    let complete = server.ask(&request(6, "completion/complete", &complete)).await;
    assert_eq!(complete["result"]["completion"]["values"][0], "Jo…");
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake() {
    let mut server = Process::start(&[]);
    let found = server.ask(&modern(request(1, "server/discover", &json!({})), &json!({}))).await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["result"]["resultType"], "complete");
    assert_eq!(found["result"]["cacheScope"], "public");
    let counted = server.ask(&modern(call(2, "count", &json!({})), &json!({}))).await;
    assert_eq!(counted["result"]["resultType"], "complete");
    let ping = server.ask(&modern(request(3, "ping", &json!({})), &json!({}))).await;
    assert_eq!(ping["error"]["code"], -32601);
    let mut future = modern(request(4, "tools/list", &json!({})), &json!({}));
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let future = server.ask(&future).await;
    assert_eq!(future["error"]["code"], -32022);
    assert_eq!(future["error"]["data"]["supported"], json!(["2026-07-28"]));
}

#[tokio::test]
async fn an_era_is_refused_where_it_is_not_spoken_and_where_it_is_locked() {
    let mut server = Process::start(&["--era", "modern"]);
    let refused = server.ask(&initialize(&json!({}))).await;
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));

    let discover = modern(request(1, "server/discover", &json!({})), &json!({}));
    let mut server = Process::start(&["--lock-era"]);
    assert!(server.ask(&discover).await["result"].is_object());
    assert_eq!(server.ask(&initialize(&json!({}))).await["error"]["code"], -32022);

    let mut server = Process::start(&["--lock-era"]);
    server.initialize().await;
    assert_eq!(server.ask(&discover).await["error"]["code"], -32600);
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_a_cancelled_call_has_none() {
    let mut server = Process::start(&[]);
    server.initialize().await;
    let mut slow = call(1, "slow", &json!({ "ms": 20, "steps": 2 }));
    slow["params"]["_meta"] = json!({ "progressToken": "p" });
    server.say(&slow.to_string()).await;
    for step in 0..=2 {
        let progress = server.hear().await;
        assert_eq!(progress["params"]["progressToken"], "p");
        assert_eq!(progress["params"]["progress"], step);
    }
    assert_eq!(text(&server.hear().await), "done");

    server.say(&call(2, "slow", &json!({ "ms": 3_600_000 })).to_string()).await;
    let cancel = json!({ "requestId": 2 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    server.say(&cancel.to_string()).await;
    let stats = server.ask(&call(3, "stats", &json!({}))).await;
    assert_eq!(stats["id"], 3);
    assert_eq!(stats["result"]["structuredContent"]["cancels"], 1);
    assert_eq!(stats["result"]["structuredContent"]["calls"], 3);
}

#[tokio::test]
async fn a_tool_asks_the_client_in_the_middle_of_a_call() {
    let mut server = Process::start(&[]);
    server.ask(&initialize(&json!({ "elicitation": {}, "roots": {} }))).await;
    let asked = server.ask(&call(1, "elicit", &json!({ "message": "Who?" }))).await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "Who?");
    let said = json!({ "action": "accept", "content": { "name": "Jo" } });
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": said });
    assert_eq!(server.ask(&answer).await["result"]["structuredContent"], said);
    let asked = server.ask(&call(2, "roots", &json!({}))).await;
    assert_eq!(asked["method"], "roots/list");
    let error = json!({ "code": -32601, "message": "no" });
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
    assert_eq!(server.ask(&answer).await["result"]["isError"], true);
    let sampled = server.ask(&call(3, "sample", &json!({}))).await;
    assert_eq!(sampled["result"]["isError"], true, "the client cannot sample");
}

#[tokio::test]
async fn changes_are_told_to_whoever_subscribed() {
    let mut server = Process::start(&[]);
    server.initialize().await;
    server.ask(&request(1, "resources/subscribe", &json!({ "uri": "test://count" }))).await;
    let changed = server.ask(&call(2, "notify", &json!({}))).await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(server.hear().await["params"]["uri"], "test://count");
    assert_eq!(server.hear().await["id"], 2);
    server.ask(&request(3, "logging/setLevel", &json!({ "level": "error" }))).await;
    assert_eq!(server.ask(&call(4, "log", &json!({ "n": 2 }))).await["id"], 4);
    server.ask(&request(5, "logging/setLevel", &json!({ "level": "info" }))).await;
    assert_eq!(
        server.ask(&call(6, "log", &json!({ "n": 1 }))).await["method"],
        "notifications/message"
    );
}

#[tokio::test]
async fn lists_come_in_pages() {
    let mut server = Process::start(&["--page", "8"]);
    server.initialize().await;
    let (mut seen, mut cursor) = (0, json!({}));
    for _ in 0..3 {
        let page = server.ask(&request(1, "tools/list", &cursor)).await;
        seen += page["result"]["tools"].as_array().unwrap().len();
        cursor = json!({ "cursor": page["result"]["nextCursor"] });
    }
    assert_eq!(cursor, json!({ "cursor": null }));
    assert_eq!(seen, 21);
}

#[tokio::test]
async fn a_process_ends_with_its_input_or_as_it_is_asked_to() {
    let mut server = Process::start(&[]);
    server.stdin = None;
    assert_eq!(server.exit().await, Some(0));

    let mut server = Process::start(&["--exit-at-once", "7"]);
    assert_eq!(server.exit().await, Some(7));

    for (tool, arguments, code) in [("crash", json!({}), 3), ("exit", json!({ "code": 9 }), 9)] {
        let mut server = Process::start(&[]);
        server.initialize().await;
        server.say(&call(1, tool, &arguments).to_string()).await;
        assert_eq!(server.line().await, None);
        assert_eq!(server.exit().await, Some(code));
    }
}

/// E25: what a keeper of processes has to end the hard way.
#[tokio::test]
async fn a_stubborn_process_ignores_the_end_of_its_input_and_term() {
    let mut server = Process::start(&["--ignore-eof", "--ignore-term"]);
    server.initialize().await;
    let pid = server.child.id().unwrap();
    let killed = Command::new("kill").args(["-s", "TERM", &pid.to_string()]).status().await;
    assert!(killed.unwrap().success());
    // The signal was there before this came.
    assert_eq!(server.ask(&request(1, "ping", &json!({}))).await["id"], 1);
    server.stdin = None;
    // Not a proof, as an end takes its time; but a server that ends fails here most of the time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(processes::is_alive(pid));
    server.child.kill().await.unwrap();
}

/// E25: a grandchild in another session, which a signal to the group does not reach.
#[tokio::test]
async fn a_daemon_leaves_its_parent_but_not_its_mark() {
    let mark = format!("mark-{}-", std::process::id());
    let mut command = Command::new(program("stayput-testserver"));
    command.args(["stdio", "--daemonize"]).env("TEST_MARK", &mark).kill_on_drop(true);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    let server = child.id().unwrap();
    let mut daemon = None;
    // Whoever starts it carries the mark, too, and is there for a moment.
    let sleeps = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep"))
    };
    until(async || {
        daemon = processes::with_token(&mark).into_iter().find(sleeps);
        daemon.is_some() && processes::descendants(server).is_empty()
    })
    .await;
    let daemon = daemon.unwrap();
    let killed = Command::new("kill").args(["-s", "KILL", &daemon.to_string()]).status().await;
    assert!(killed.unwrap().success());
    until(async || !processes::is_alive(daemon)).await;
}

#[tokio::test]
async fn noise_is_made_as_it_is_asked_for() {
    let mut server = Process::start(&["--invalid-lines", "--long-line", "100000"]);
    server.say(&initialize(&json!({})).to_string()).await;
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("serverInfo")) {
        lines.push(server.line().await.unwrap());
    }
    assert!(lines.iter().any(|line| line == "this is not JSON"));
    assert_eq!(lines.iter().filter(|line| line.len() == 100_000).count(), 1);

    let mut server = Process::start(&["--stderr-flood"]);
    let mut stderr = server.child.stderr.take().unwrap();
    let mut flood = vec![0; 4_000_000];
    soon(stderr.read_exact(&mut flood)).await.unwrap();
}

#[tokio::test]
async fn messages_and_starts_are_noted_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let (log, starts) = (folder.path().join("log"), folder.path().join("starts"));
    let (log, starts) = (log.to_str().unwrap(), starts.to_str().unwrap());
    let mut server =
        Process::start(&["--silent", "--log", log, "--starts", starts, "--startup-ms", "1"]);
    let said = r#"{ "jsonrpc":"2.0","id":1.0e1 , "method":"ping"}"#;
    server.say(said).await;
    until(async || fs::read_to_string(log).is_ok_and(|text| text == format!("{said}\n"))).await;
    let pid = server.child.id().unwrap();
    assert_eq!(fs::read_to_string(starts).unwrap(), format!("{pid}\n"));
}

#[tokio::test]
async fn the_process_tells_about_itself() {
    let mut server = Process::start(&["--memory-mb", "64"]);
    server.initialize().await;
    let pid = server.child.id().unwrap();
    assert_eq!(text(&server.ask(&call(1, "pid", &json!({}))).await), pid.to_string());
    let path = server.ask(&call(2, "env", &json!({ "name": "PATH" }))).await;
    assert_eq!(text(&path), std::env::var("PATH").unwrap());
    let cwd = server.ask(&call(3, "cwd", &json!({}))).await;
    assert_eq!(text(&cwd), std::env::current_dir().unwrap().to_str().unwrap());
    assert!(processes::memory(pid) > 64 << 20);
    assert!(processes::open_files(pid) >= 3);
    server.ask(&call(5, "stderr", &json!({ "text": "oh dear" }))).await;
    let mut said = [0; 8];
    soon(server.child.stderr.as_mut().unwrap().read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"oh dear\n");
    let big = server.ask(&call(4, "big", &json!({ "bytes": 300_000 }))).await;
    assert_eq!(text(&big).len(), 300_000);
}
