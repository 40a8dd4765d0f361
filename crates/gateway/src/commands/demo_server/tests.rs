//! Tests of the demo server over each transport.

use std::net::{Ipv4Addr, SocketAddr};

use ::http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Answer, send};
use stayput_wire::meta;
use tokio::task::AbortHandle;

use super::{answer::Peer, http::Server, *};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize",
    "params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

fn call(name: &str, arguments: &Value) -> String {
    request("tools/call", &json!({ "name": name, "arguments": arguments }))
}

fn asked(peer: &mut Peer, message: &str) -> Value {
    serde_json::from_str(&peer.answer(message.as_bytes()).unwrap()).unwrap()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

fn initialized_peer() -> Peer {
    let mut peer = Peer::default();
    asked(&mut peer, HELLO);
    peer
}

#[test]
fn notebook_keeps_its_notes() {
    let mut peer = initialized_peer();
    assert_eq!(text(&asked(&mut peer, &call("note_list", &json!({})))), "There are no notes.");
    for note in ["milk", "bread"] {
        let added = asked(&mut peer, &call("note_add", &json!({ "text": note })));
        assert_eq!(added["result"]["isError"], false);
    }
    assert_eq!(text(&asked(&mut peer, &call("note_list", &Value::Null))), "1. milk\n2. bread");
    for count in ["1", "2"] {
        assert_eq!(text(&asked(&mut peer, &call("count", &json!({})))), count);
    }
    let process = format!("process {}", std::process::id());
    assert_eq!(text(&asked(&mut peer, &call("whoami", &json!({})))), process);
}

#[test]
fn invalid_note_is_a_tool_error() {
    let mut peer = initialized_peer();
    let long = "x".repeat(5_000);
    for arguments in
        [json!({}), json!({ "text": 1 }), json!({ "text": " " }), json!({ "text": long })]
    {
        let answer = asked(&mut peer, &call("note_add", &arguments));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    for at in 1..=1_000 {
        assert!(peer.notebook.add("x").is_ok(), "{at}");
    }
    assert!(peer.notebook.add("x").unwrap_err().contains("full"));
}

#[test]
fn tools_have_descriptions() {
    let answer = asked(&mut initialized_peer(), &request("tools/list", &json!({})));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["note_add", "note_list", "count", "whoami"]);
    for tool in tools {
        assert!(tool["description"].as_str().unwrap().len() > 40, "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
}

#[test]
fn errors_have_json_rpc_codes() {
    let mut fresh = Peer::default();
    assert_eq!(asked(&mut fresh, &request("ping", &json!({})))["result"], json!({}));
    assert_eq!(asked(&mut fresh, &call("count", &json!({})))["error"]["code"], -32600);
    let mut peer = initialized_peer();
    for (message, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (&request("resources/list", &json!({})), -32601),
        (&request("server/discover", &json!({})), -32601),
        (&call("nothing", &json!({})), -32602),
        (&call("count", &json!([])), -32602),
        (&request("tools/call", &json!({})), -32602),
        (&request("tools/list", &json!({ "cursor": "x" })), -32602),
        (&request("initialize", &json!({})), -32602),
    ] {
        assert_eq!(asked(&mut peer, message)["error"]["code"], code, "{message}");
    }
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(peer.answer(told.as_bytes()), None);
    assert_eq!(peer.answer(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#), None);
}

#[test]
fn legacy_version_of_the_client_is_accepted() {
    for (asked_for, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let hello = request("initialize", &json!({ "protocolVersion": asked_for }));
        let answer = asked(&mut Peer::default(), &hello);
        assert_eq!(answer["result"]["protocolVersion"], given);
    }
}

/// Only 2025-03-26 has batches.
#[test]
fn batch_is_answered_as_a_batch() {
    let batch = format!("[{},{}]", call("count", &json!({})), call("count", &json!({})));
    assert_eq!(asked(&mut initialized_peer(), &batch)["error"]["code"], -32600);
    let mut peer = Peer::default();
    asked(&mut peer, &request("initialize", &json!({ "protocolVersion": "2025-03-26" })));
    let answers = asked(&mut peer, &batch);
    assert_eq!((text(&answers[0]), text(&answers[1])), ("1", "2"));
    let told = r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#;
    assert_eq!(peer.answer(told.as_bytes()), None);
}

#[test]
fn modern_request_needs_no_handshake() {
    let mut peer = Peer::default();
    let meta =
        |version: &str| json!({ meta::PROTOCOL_VERSION: version, meta::CLIENT_CAPABILITIES: {} });
    let discover = |version| request("server/discover", &json!({ "_meta": meta(version) }));
    let found = asked(&mut peer, &discover("2026-07-28"));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["result"]["resultType"], "complete");
    assert_eq!(found["result"]["_meta"][meta::SERVER_INFO]["name"], "stayput-demo");
    let params = json!({ "name": "count", "_meta": meta("2026-07-28") });
    for count in ["1", "2"] {
        assert_eq!(text(&asked(&mut peer, &request("tools/call", &params))), count);
    }
    let refused = asked(&mut peer, &discover("2030-01-01"));
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    let bare = json!({ "_meta": { meta::PROTOCOL_VERSION: "2026-07-28" } });
    let refused = asked(&mut peer, &request("server/discover", &bare));
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test]
async fn stdio_lines_are_answered_in_order_until_the_input_ends() {
    let long = "x".repeat(MESSAGE_LIMIT + 1);
    let last = call("count", &json!({}));
    let input = format!("{}\n\n{long}\nnonsense\n{}\n{last}", HELLO.replace('\n', ""), last);
    let mut output = Vec::new();
    stdio::serve(input.as_bytes(), &mut output).await.unwrap();
    let lines: Vec<Value> = output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!((&lines[1]["error"]["code"], &lines[1]["id"]), (&json!(-32600), &Value::Null));
    assert_eq!(lines[2]["error"]["code"], -32700);
    assert_eq!((text(&lines[3]), text(&lines[4])), ("1", "2"));
}

/// Server over HTTP. Dropping it stops it.
struct Running(String, AbortHandle);

impl Running {
    async fn start(state: Option<&Path>) -> Self {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), state).await.unwrap();
        let url = server.url();
        let task = tokio::runtime::Handle::current().spawn(server.serve());
        Self(url, task.abort_handle())
    }

    async fn send(&self, method: Method, headers: &[(&str, &str)], body: &str) -> Answer {
        send(method, &self.0, headers, body.to_owned()).await.unwrap()
    }

    async fn post(&self, session: &str, body: &str) -> Answer {
        let json = ("content-type", "application/json");
        let accept = ("accept", "application/json, text/event-stream");
        let session = ("mcp-session-id", session);
        let headers = [json, accept, session];
        let used = if session.1.is_empty() { 2 } else { 3 };
        self.send(Method::POST, &headers[..used], body).await
    }

    async fn begin(&self) -> String {
        let answer = self.post("", HELLO).await;
        assert_eq!(answer.status, 200);
        let id = answer.header("mcp-session-id").to_owned();
        assert_eq!(id.len(), 32, "{id}");
        id
    }

    async fn count(&self, session: &str) -> String {
        let answer = self.post(session, &call("count", &json!({}))).await.json().await;
        text(&answer).to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.1.abort();
    }
}

#[tokio::test]
async fn http_sessions_have_separate_notebooks() {
    let server = Running::start(None).await;
    let (ann, bob) = (server.begin().await, server.begin().await);
    assert_ne!(ann, bob);
    assert_eq!(server.count(&ann).await, "1");
    assert_eq!(server.count(&ann).await, "2");
    assert_eq!(server.count(&bob).await, "1");
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(server.post(&ann, told).await.status, 202);
    let id = [("mcp-session-id", ann.as_str())];
    assert_eq!(server.send(Method::DELETE, &id, "").await.status, 204);
    assert_eq!(server.send(Method::DELETE, &id, "").await.status, 404);
    let gone = server.post(&ann, &call("count", &json!({}))).await;
    assert_eq!(gone.status, 404);
    assert_eq!(gone.json().await["error"]["message"], "Session not found");
    assert_eq!(server.count(&bob).await, "2");
}

#[tokio::test]
async fn invalid_requests_have_http_status_codes() {
    let server = Running::start(None).await;
    let id = server.begin().await;
    let json = ("content-type", "application/json");
    let session = ("mcp-session-id", id.as_str());
    let ping = request("ping", &json!({}));
    let post = Method::POST;
    for (method, headers, body, status) in [
        (post.clone(), &[json, session][..], ping.as_str(), 200),
        (post.clone(), &[session], &ping, 415),
        (post.clone(), &[json, session, ("accept", "text/html")], &ping, 406),
        (post.clone(), &[json, session, ("origin", "https://evil.example.com")], &ping, 403),
        (post.clone(), &[json, session, ("origin", "http://localhost:1")], &ping, 200),
        (post.clone(), &[json, session, ("origin", "null")], &ping, 403),
        (post.clone(), &[json, session, ("mcp-protocol-version", "2025-11-25")], &ping, 200),
        (post.clone(), &[json, session, ("mcp-protocol-version", "2026-07-28")], &ping, 400),
        (post.clone(), &[json, session, ("mcp-protocol-version", "x")], &ping, 400),
        (post.clone(), &[json], &ping, 400),
        (post.clone(), &[json], "{", 400),
        (post.clone(), &[json, session], "{", 400),
        (post.clone(), &[json, ("mcp-session-id", "x")], &ping, 404),
        (post, &[json, session], &"x".repeat(MESSAGE_LIMIT + 1), 413),
        (Method::GET, &[session, ("accept", "text/event-stream")], "", 405),
        (Method::DELETE, &[], "", 400),
    ] {
        let answer = server.send(method, headers, body).await;
        assert_eq!(answer.status, status, "{headers:?} {body:.40}");
    }
    let elsewhere = server.0.replace("/mcp", "/other");
    assert_eq!(send(Method::GET, &elsewhere, &[], "").await.unwrap().status, 404);
}

/// Refuses a page whose own host name resolves to this machine (DNS rebinding).
#[tokio::test]
async fn foreign_host_is_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Running::start(None).await;
    let authority = server.0.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    for (host, status) in [("evil.example.com", "403"), ("localhost:1", "400")] {
        let mut socket = tokio::net::TcpStream::connect(&authority).await.unwrap();
        let head = format!("DELETE /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
    }
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let refused = Server::bind(everywhere, None).await.err().unwrap();
    assert!(refused.to_string().contains("127.0.0.1"), "{refused}");
}

#[tokio::test]
async fn state_file_restores_sessions_after_a_restart() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let server = Running::start(Some(&file)).await;
    let (ann, bob) = (server.begin().await, server.begin().await);
    assert_eq!(server.count(&ann).await, "1");
    server.send(Method::DELETE, &[("mcp-session-id", &bob)], "").await;
    drop(server);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let server = Running::start(Some(&file)).await;
    assert_eq!(server.count(&ann).await, "2");
    assert_eq!(server.post(&bob, &call("count", &json!({}))).await.status, 404);
    drop(server);
    std::fs::write(&file, "{").unwrap();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let refused = Server::bind(local, Some(&file)).await.err().unwrap();
    assert!(refused.to_string().contains("state.json"), "{refused}");
}

/// A change that cannot be stored is undone.
#[tokio::test]
async fn change_that_cannot_be_stored_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inner/state.json");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let server = Running::start(Some(&file)).await;
    let id = server.begin().await;
    let aside = folder.path().join("aside");
    std::fs::rename(file.parent().unwrap(), &aside).unwrap();
    assert_eq!(server.post(&id, &call("count", &json!({}))).await.status, 500);
    std::fs::rename(&aside, file.parent().unwrap()).unwrap();
    assert_eq!(server.count(&id).await, "1");
}
