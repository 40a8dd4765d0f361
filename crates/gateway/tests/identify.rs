//! Sessions of HTTP clients, identified end to end: real clients, real servers, processes counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "identify/ends.rs"]
mod ends;
mod support;

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{mcp::send, processes};
use support::{Client, Gateway, LONG, gone, mark, stdio, until};

/// Calls a tool with these headers, arguments and `_meta`.
async fn call(
    gateway: &Gateway,
    client: &Client,
    headers: &[(&str, &str)],
    (tool, arguments, meta): (&str, Value, Value),
) -> Value {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let id = format!("{tool}-{}", next());
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let mut all = vec![("mcp-session-id", &*client.id)];
    all.extend_from_slice(headers);
    let answer = gateway.post(&client.server, &all, &body.to_string()).await;
    assert_eq!(answer.status, 200);
    let answer = tokio::time::timeout(LONG, answer.message()).await.unwrap();
    assert_eq!(answer["id"], id);
    answer
}

/// Returns an unused id.
fn next() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

async fn count(
    gateway: &Gateway,
    client: &Client,
    headers: &[(&str, &str)],
    meta: Value,
) -> String {
    text(&call(gateway, client, headers, ("count", json!({}), meta)).await).to_owned()
}

/// Returns the count after a loss. The loss is acknowledged after the answer is sent, so it may be reported once more.
async fn count_after_a_loss(gateway: &Gateway, client: &Client, meta: &Value) -> String {
    let next = async || {
        let answer = call(gateway, client, &[], ("count", json!({}), meta.clone())).await;
        (answer["result"]["isError"] != true).then(|| text(&answer).to_owned())
    };
    stayput_testkit::until_some("the loss is reported no more", next).await
}

/// Returns the server entry with these options.
fn with(mut server: Value, choices: Value) -> Value {
    server["stayput"] = choices;
    server
}

/// R146, R168: a host that sends all its chats over one connection gets a session for each chat.
#[tokio::test]
async fn each_chat_of_one_connection_has_its_own_state() {
    let mark = mark("chats");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let hints = [
        json!({ "vscode.conversationId": "a" }),
        json!({ "vscode.conversationId": "b" }),
        json!({ "openai/session": "a" }),
        json!({ "threadId": "a" }),
        json!({ "sessionID": "a" }),
        json!({ "agent-session-id": "a" }),
        json!({ "baggage": "gen_ai.conversation.id=a" }),
        json!({}),
    ];
    for n in 1..=2 {
        for hint in &hints {
            let counted = count(&gateway, &client, &[], hint.clone()).await;
            assert_eq!(counted, n.to_string(), "{hint}");
        }
    }
    assert_eq!(processes::with_token(&mark).len(), hints.len());
    // The chat continues over another connection. `DELETE` on the first connection does not end it.
    let other = gateway.client("test").await;
    assert_eq!(count(&gateway, &other, &[], hints[0].clone()).await, "3");
    assert_eq!(client.delete(&gateway).await, 200);
    assert_eq!(count(&gateway, &other, &[], hints[0].clone()).await, "4");
    assert_eq!(count(&gateway, &other, &[], json!({})).await, "1", "its own session is new");
}

/// R019, invariant 4: parallel first calls of one chat start one process, on one connection and on several.
#[tokio::test]
async fn parallel_first_calls_of_a_chat_start_one_process() {
    let mark = mark("meet");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let clients = [gateway.client("test").await, gateway.client("test").await];
    let hint = json!({ "openai/session": "v1/chat" });
    let calls = (0..40).map(|n| count(&gateway, &clients[n % 2], &[], hint.clone()));
    let mut counted: Vec<u32> =
        join_all(calls).await.iter().map(|count| count.parse().unwrap()).collect();
    counted.sort_unstable();
    assert_eq!(counted, (1..=40).collect::<Vec<_>>());
    assert_eq!(processes::with_token(&mark).len(), 1);
}

/// Explicit names: header, `_meta`, path and a configured header. Each finds the session that another one opened.
#[tokio::test]
async fn name_identifies_its_session_by_every_source() {
    let mark = mark("names");
    let settings = json!({ "identify": { "custom": ["header:X-Chat", "meta:chat"] } });
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let client = gateway.client("test").await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    let header = [("stayput-session", "key:my chat")];
    assert_eq!(count(&gateway, &client, &header, json!({})).await, "1");
    let meta = json!({ "dev.stayput/session": "key:my chat" });
    assert_eq!(count(&gateway, &client, &[], meta.clone()).await, "2");
    let on_path =
        Client { server: "test/~my%20chat".into(), id: client.id.clone(), greeting: json!({}) };
    assert_eq!(count(&gateway, &on_path, &[], json!({})).await, "3");
    let arguments = ("count", json!({ "session_id": "key:my chat" }), json!({}));
    assert_eq!(text(&call(&gateway, &client, &[], arguments).await), "4");
    // A connection opened on such a path uses that session by default, also without the path.
    let named = gateway.client("test/~my%20chat").await;
    let plain = Client { server: "test".into(), id: named.id.clone(), greeting: json!({}) };
    assert_eq!(count(&gateway, &plain, &[], json!({})).await, "5");
    assert_eq!(named.delete(&gateway).await, 200);
    assert_eq!(count(&gateway, &client, &header, json!({})).await, "6", "its name outlives it");
    // Conversation ids from the configured sources.
    for n in ["1", "2"] {
        assert_eq!(count(&gateway, &client, &[("x-chat", "7")], json!({})).await, n);
        assert_eq!(count(&gateway, &client, &[], json!({ "chat": "7" })).await, n);
    }
    assert_eq!(
        count(&gateway, &client, &[("x-chat", "")], json!({})).await,
        "2",
        "empty is nothing"
    );
    // An explicit name takes precedence over a hint, and a hint over the connection.
    let both = json!({ "threadId": "t", "dev.stayput/session": "key:my chat" });
    assert_eq!(count(&gateway, &client, &[], both).await, "7");
    let refused =
        call(&gateway, &client, &header, ("count", json!({}), json!({ "chat": "7" }))).await;
    assert_eq!(refused["result"]["isError"], true);
    assert!(text(&refused).contains("two different sessions"), "{refused}");
    let refused = json!({ "threadId": "t", "sessionID": "u" });
    let refused = call(&gateway, &client, &[], ("count", json!({}), refused)).await;
    assert!(text(&refused).contains("two different conversations"), "{refused}");
    assert_eq!(processes::with_token(&mark).len(), 4, "what is refused starts nothing");
}

/// E39: the session name does not reach the server. All other bytes reach it unchanged.
#[tokio::test]
async fn server_gets_only_its_own_arguments() {
    let mark = mark("bytes");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    for (sent, seen) in [
        (r#"{"a":1.10, "session_id":"key:x","b":1.0e+2}"#, r#"{"a":1.10, "b":1.0e+2}"#),
        (r#"{"session_id":"","c":[ ]}"#, r#"{"c":[ ]}"#),
        (
            r#"{"session_id":"theirs","n":12345678901234567890}"#,
            r#"{"session_id":"theirs","n":12345678901234567890}"#,
        ),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{sent},"_meta":{{"dev.stayput/session":"key:x"}}}}}}"#
        );
        let answer = client.send(&gateway, &body).await.message().await;
        assert_eq!(text(&answer), seen);
    }
}

/// E30, R149: a handle that was never issued is answered with a tool error, and starts nothing.
#[tokio::test]
async fn unknown_session_is_a_tool_error_with_advice() {
    let mark = mark("unknown");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    let waiting = processes::with_token(&mark);
    let handle = format!("sp_{}", "a".repeat(32));
    let arguments = ("count", json!({ "session_id": handle }), json!({}));
    let refused = call(&gateway, &client, &[], arguments).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(text(&refused).contains("Call `session_start`"), "{refused}");
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": { "name": "x" } });
    let headers = [("mcp-session-id", &*client.id), ("stayput-session", &*handle)];
    let refused = gateway.post("test", &headers, &body.to_string()).await.message().await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(processes::with_token(&mark), waiting, "nothing was started");
    for path in ["test/~", "test/~%ff", "test/~a%0Ab"] {
        assert_eq!(gateway.post(path, &[], "{}").await.status, 400, "{path}");
    }
}

/// Invariant 3: a chat whose session expired gets an error once and then a new session. An expired handle stays
/// expired.
#[tokio::test]
async fn expired_session_is_reported_for_every_name() {
    let mark = mark("over");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let settings = json!({ "expiry": { "idle": "6s" } });
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let client = gateway.client("test").await;
    let started = call(&gateway, &client, &[], ("session_start", json!({}), json!({}))).await;
    let handle = started["result"]["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    let hint = json!({ "threadId": "t" });
    assert_eq!(count(&gateway, &client, &[], hint.clone()).await, "1");
    let by_handle = ("count", json!({ "session_id": handle }), json!({}));
    assert_eq!(text(&call(&gateway, &client, &[], by_handle.clone()).await), "1");
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    let told = call(&gateway, &client, &[], ("count", json!({}), hint.clone())).await;
    assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    assert_eq!(count_after_a_loss(&gateway, &client, &hint).await, "1");
    let over = call(&gateway, &client, &[], by_handle).await;
    assert_eq!(over["result"]["isError"], true);
    assert!(text(&over).contains("expired after 6 s idle"), "{over}");
}

/// A connection whose session has a name continues with the session that now has that name.
#[tokio::test]
async fn connection_on_a_name_outlives_its_session() {
    let mark = mark("again");
    let settings = json!({ "expiry": { "idle": "6s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let old = gateway.client("test/~chat").await;
    let plain = Client { server: "test".into(), id: old.id.clone(), greeting: json!({}) };
    assert_eq!(count(&gateway, &plain, &[], json!({})).await, "1");
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    let other = gateway.client("test/~chat").await;
    assert_eq!(count_after_a_loss(&gateway, &other, &json!({})).await, "1");
    assert_eq!(count(&gateway, &plain, &[], json!({})).await, "2");
}

/// R150–R155: session tools and handle arguments that a model sees and uses on a legacy connection.
#[tokio::test]
async fn model_starts_uses_and_ends_sessions() {
    let mark = mark("model");
    let server =
        with(stdio(&mark, &[]), json!({ "handles": "always", "tools": { "allow": ["count"] } }));
    let gateway = Gateway::start(json!({ "test": server, "plain": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let listed = client.request(&gateway, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["count", "session_start", "session_info", "session_end"]);
    assert!(tools[0]["inputSchema"]["properties"]["session_id"].is_object(), "{listed}");
    let mut handles = Vec::new();
    for _ in 0..2 {
        let started = call(&gateway, &client, &[], ("session_start", json!({}), json!({}))).await;
        let handle = started["result"]["structuredContent"]["session_id"].as_str().unwrap();
        assert!(text(&started).contains(handle), "{started}");
        handles.push(handle.to_owned());
    }
    for n in 1..=2 {
        for handle in &handles {
            let arguments = ("count", json!({ "session_id": handle }), json!({}));
            assert_eq!(text(&call(&gateway, &client, &[], arguments).await), n.to_string());
        }
    }
    assert_eq!(processes::with_token(&mark).len(), 2);
    let arguments = ("session_end", json!({ "session_id": handles[0] }), json!({}));
    let ended = call(&gateway, &client, &[], arguments).await;
    assert_eq!(ended["result"]["structuredContent"]["ended"], true, "{ended}");
    let over = ("count", json!({ "session_id": handles[0] }), json!({}));
    assert!(text(&call(&gateway, &client, &[], over).await).contains("was ended"));
    // The session of the connection can be ended, too. The connection continues with a new one.
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    call(&gateway, &client, &[], ("session_end", json!({}), json!({}))).await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    // By default, a client whose connection is a conversation sees the server's tools unchanged.
    let plain = gateway.client("plain").await;
    let listed = plain.request(&gateway, "tools/list", json!({})).await.to_string();
    assert!(!listed.contains("session_start") && !listed.contains("session_id"), "{listed}");
}

/// A name that changes the direction of the text around it would forge the rows of `stayput sessions`. The id of a host is
/// hashed then.
#[tokio::test]
async fn name_that_would_forge_a_table_is_refused() {
    let mark = mark("forged");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    let odd = "a\u{202e}b";
    for argument in ["name", "project", "agent"] {
        let mut arguments = json!({ "name": "plain" });
        arguments[argument] = odd.into();
        let refused = ("session_start", arguments, json!({}));
        let refused = call(&gateway, &client, &[], refused).await;
        assert!(text(&refused).contains("printable"), "{argument}: {refused}");
    }
    let named = ("count", json!({ "session_id": format!("key:{odd}") }), json!({}));
    let refused = call(&gateway, &client, &[], named).await;
    assert!(text(&refused).contains("printable"), "{refused}");
    let hint = json!({ "threadId": odd });
    assert_eq!(count(&gateway, &client, &[], hint.clone()).await, "1");
    assert_eq!(count(&gateway, &client, &[], hint).await, "2");
}

/// R154: a connection can be switched to another session. The switch survives a restart.
#[tokio::test]
async fn switched_connection_stays_switched() {
    let mark = mark("switch");
    let settings = json!({ "session_tools": "all" });
    let server =
        stayput_testkit::mcp::TestServer::http(&["--era", "legacy", "--mark", &mark]).await;
    let mut gateway = Gateway::with(json!({ "test": { "url": server.url() } }), settings).await;
    let client = gateway.client("test").await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    let named = json!({ "name": "other" });
    let started = call(&gateway, &client, &[], ("session_start", named, json!({}))).await;
    assert!(text(&started).contains("session_switch"), "{started}");
    let handle = &started["result"]["structuredContent"]["session_id"];
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "2", "not yet");
    let switch = ("session_switch", json!({ "session_id": handle }), json!({}));
    let switched = call(&gateway, &client, &[], switch).await;
    assert!(switched["result"]["isError"].is_null(), "{switched}");
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    let info = call(&gateway, &client, &[], ("session_info", json!({}), json!({}))).await;
    assert_eq!(info["result"]["structuredContent"]["name"], "other", "{info}");
    gateway.kill();
    gateway.restart().await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "2");
    let listed = call(&gateway, &client, &[], ("session_list", json!({}), json!({}))).await;
    let sessions = listed["result"]["structuredContent"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{listed}");
    // R158: one of them is the active one.
    let active: Vec<_> = sessions.iter().filter(|it| it["active"] == true).collect();
    assert_eq!((active.len(), &active[0]["name"]), (1, &json!("other")), "{listed}");
    // Without authentication, any client could ask.
    let id = ("session_list", json!({ "session": sessions[0]["session"] }), json!({}));
    let refused = call(&gateway, &client, &[], id).await;
    assert!(text(&refused).contains("authenticated"), "{refused}");
    assert_eq!(client.delete(&gateway).await, 200);
    let back = gateway.client("test/~other").await;
    assert_eq!(
        count(&gateway, &back, &[], json!({})).await,
        "3",
        "its name outlives the connection"
    );
}

/// `DELETE` ends the sessions that only this connection knew. It does not end sessions with another name.
#[tokio::test]
async fn delete_ends_only_sessions_without_another_name() {
    let mark = mark("goodbye");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let settings = json!({ "session_tools": "all" });
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    assert_eq!(count(&gateway, &ann, &[], json!({})).await, "1");
    assert_eq!(count(&gateway, &bob, &[], json!({})).await, "1");
    let hinted = json!({ "threadId": "t" });
    assert_eq!(count(&gateway, &bob, &[], hinted.clone()).await, "1");
    assert_eq!(processes::with_token(&mark).len(), 3);
    assert_eq!(bob.delete(&gateway).await, 200);
    until("its own session has ended", || processes::with_token(&mark).len() == 2).await;
    assert_eq!(count(&gateway, &ann, &[], hinted).await, "2", "the chat goes on");
    assert_eq!(count(&gateway, &ann, &[], json!({})).await, "2");
    // A session with a handle is not ended either.
    let started = call(&gateway, &ann, &[], ("session_start", json!({}), json!({}))).await;
    let handle = started["result"]["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let headers = [("stayput-session", &*handle)];
    let answer = gateway.post("test", &headers, &hello.to_string()).await;
    let id = answer.header("mcp-session-id").to_owned();
    let eve = Client { server: "test".into(), id, greeting: json!({}) };
    assert_eq!(count(&gateway, &eve, &[], json!({})).await, "1");
    assert_eq!(eve.delete(&gateway).await, 200);
    let by_handle = ("count", json!({ "session_id": handle }), json!({}));
    assert_eq!(text(&call(&gateway, &ann, &[], by_handle).await), "2");
}

/// R156, E29, E40: a call without any name does not run. The answer offers a session, and the offer works.
#[tokio::test]
async fn call_without_a_session_is_offered_one() {
    let mark = mark("offer");
    let settings = json!({ "identify": { "connection": false } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let client = gateway.client("test").await;
    let waiting = processes::with_token(&mark);
    let offer = call(&gateway, &client, &[], ("count", json!({}), json!({}))).await;
    assert_eq!(offer["result"]["isError"], true, "{offer}");
    let handle = offer["result"]["_meta"]["dev.stayput/session"].as_str().unwrap();
    assert!(text(&offer).contains(handle), "{offer}");
    assert_eq!(processes::with_token(&mark), waiting, "nothing was started");
    let arguments = ("count", json!({ "session_id": handle }), json!({}));
    for n in ["1", "2"] {
        assert_eq!(text(&call(&gateway, &client, &[], arguments.clone()).await), n);
    }
    let listed = client.request(&gateway, "tools/list", json!({})).await.to_string();
    assert!(listed.contains("session_start"), "who has no other way gets handles");
    // A method without an argument for a handle runs on an ephemeral process.
    let read = client.request(&gateway, "prompts/get", json!({ "name": "greeting" })).await;
    assert!(read.get("result").or(read.get("error")).is_some(), "{read}");
    until("one process is left", || processes::with_token(&mark).len() == 1).await;
}

/// With `mint` the call runs, and its answer brings the handle, also on a stream.
#[tokio::test]
async fn minted_session_is_returned_with_the_answer() {
    let mark = mark("mint");
    let settings = json!({ "identify": { "connection": false }, "unidentified": "mint" });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let client = gateway.client("test").await;
    for first in [
        ("count", json!({}), json!({})),
        ("slow", json!({ "ms": 50, "steps": 2 }), json!({ "progressToken": 1 })),
    ] {
        let ran = call(&gateway, &client, &[], first).await;
        let handle = ran["result"]["_meta"]["dev.stayput/session"].as_str().unwrap();
        let blocks = ran["result"]["content"].as_array().unwrap();
        assert!(blocks.last().unwrap()["text"].as_str().unwrap().contains(handle), "{ran}");
        let again = ("count", json!({ "session_id": handle }), json!({}));
        let again = call(&gateway, &client, &[], again).await;
        assert!(again["result"]["_meta"].is_null(), "a handle is given once: {again}");
    }
    assert_eq!(processes::with_token(&mark).len(), 2);
}

/// R044–R047: with cookies enabled, a client needs no `Mcp-Session-Id`.
#[tokio::test]
async fn cookie_replaces_the_session_id() {
    let mark = mark("cookie");
    let settings = json!({ "identify": { "cookie": true } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let answer = gateway.post("test", &[], &hello.to_string()).await;
    let line = answer.header("set-cookie").to_owned();
    for flag in ["HttpOnly", "Secure", "SameSite=Strict", "Max-Age=1800"] {
        assert!(line.contains(flag), "{line}");
    }
    let pair = line.split(';').next().unwrap().to_owned();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "count", "arguments": {} } });
    for n in ["1", "2"] {
        let answer = gateway.post("test", &[("cookie", &pair)], &body.to_string()).await;
        assert_eq!(answer.header("set-cookie"), line, "set again with each answer");
        assert_eq!(text(&answer.message().await), n);
    }
    let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = gateway.post("test", &[("cookie", &pair)], &done.to_string()).await;
    assert_eq!((answer.status.as_u16(), answer.header("set-cookie")), (202, &*line));
    let headers = [("cookie", &*pair), ("accept", "text/event-stream")];
    let stream = send(Method::GET, &gateway.at("test"), &headers, "").await.unwrap();
    assert_eq!((stream.status.as_u16(), stream.header("set-cookie")), (200, &*line));
    // Another page can add a cookie in a browser: of two with different values, neither counts.
    let twice = format!("mcp_session_id=sp_other; {pair}");
    assert_eq!(gateway.post("test", &[("cookie", &twice)], &body.to_string()).await.status, 404);
    let nobody = [("cookie", "mcp_session_id=sp_nobody")];
    assert_eq!(gateway.post("test", &nobody, &body.to_string()).await.status, 404);
    assert_eq!(gateway.post("test", &[], &body.to_string()).await.status, 400);
    // With cookies disabled, a cookie is ignored.
    let off = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let answer = off.post("test", &[], &hello.to_string()).await;
    assert_eq!(answer.header("set-cookie"), "");
    let pair = format!("mcp_session_id={}", answer.header("mcp-session-id"));
    assert_eq!(off.post("test", &[("cookie", &pair)], &body.to_string()).await.status, 400);
}

/// Server messages outside of calls reach the connection, whichever of its sessions they belong to.
#[tokio::test]
async fn stream_of_a_connection_gets_messages_of_all_its_chats() {
    let mark = mark("ear");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let mut heard = client.get(&gateway, None).await.events();
    for chat in ["a", "b"] {
        let meta = json!({ "threadId": chat });
        assert_eq!(count(&gateway, &client, &[], meta).await, "1");
    }
    for chat in ["a", "b", "a"] {
        let meta = json!({ "threadId": chat });
        call(&gateway, &client, &[], ("notify", json!({}), meta)).await;
        let said = tokio::time::timeout(LONG, heard.message()).await.unwrap().unwrap();
        assert!(said["method"].as_str().unwrap().starts_with("notifications/"), "{chat}: {said}");
    }
    drop(heard);
    drop(gateway);
    gone(&mark).await;
}

/// A shared server needs no isolation, so no tools or arguments are added.
#[tokio::test]
async fn tools_of_a_shared_server_are_unchanged() {
    let mark = mark("shared");
    let choices = json!({ "isolation": "shared", "handles": "always" });
    let server = with(stdio(&mark, &[]), choices);
    let settings = json!({ "session_tools": "all" });
    let servers = json!({ "test": server, "kept": stdio(&mark, &[]) });
    let gateway = Gateway::with(servers, settings).await;
    let client = gateway.client("test").await;
    let listed = client.request(&gateway, "tools/list", json!({})).await.to_string();
    assert!(!listed.contains("session_start") && !listed.contains("session_id"), "{listed}");
    assert_eq!(count(&gateway, &client, &[], json!({ "threadId": "a" })).await, "1");
    assert_eq!(count(&gateway, &client, &[], json!({ "threadId": "b" })).await, "2");
    let own = json!({ "session_id": "key:theirs" });
    let echo = call(&gateway, &client, &[], ("echo", own, json!({}))).await;
    assert_eq!(text(&echo), r#"{"session_id":"key:theirs"}"#);
    assert_eq!(processes::with_token(&mark).len(), 1);
    let other = gateway.client("kept").await;
    let listed = call(&gateway, &other, &[], ("session_list", json!({}), json!({}))).await;
    let sessions = listed["result"]["structuredContent"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "the two connections', and none for a chat: {listed}");
}
