//! Messages that must not reach a server, because the server could read them differently from the gateway: calls
//! without an id, notifications with one, and methods and names that implementations compare differently. Each is
//! refused and audited on every transport.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "stdio/kit.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod kit;
mod support;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use http::Method;
use kit::Home;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Answer, Events, send};
use support::{Gateway, LONG, gone, mark, stdio, until};
use tempfile::TempDir;

/// Marker in every message that must not reach the server.
const WORD: &str = "SMUGGLED";

/// Marker in the message after them, which reaches the server.
const BEHIND: &str = "BEHIND";

/// Messages without an id. `@` stands for the prefix of the tools.
const WITHOUT_ID: [(&str, &str); 9] = [
    ("tools/call", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#),
    (r"tools\/call", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#),
    (r"\u0074ools/call", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#),
    ("tools/call ", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#),
    (r"notifications/x\u0000", r#"{"name":"SMUGGLED"}"#),
    ("Notifications/x", r#"{"name":"SMUGGLED"}"#),
    ("tools/list", r#"{"cursor":"SMUGGLED"}"#),
    ("resources/read", r#"{"uri":"test://SMUGGLED"}"#),
    ("prompts/get", r#"{"name":"@SMUGGLED"}"#),
];

/// Requests, each with the code of its error answer.
const WITH_ID: [(&str, &str, i64); 24] = [
    ("notifications/message", r#"{"data":"SMUGGLED"}"#, -32600),
    (r"notifications\/progress", r#"{"progressToken":"SMUGGLED"}"#, -32600),
    ("notifications/cancelled", r#"{"requestId":"SMUGGLED"}"#, -32600),
    ("tools/call ", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    (" tools/call", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    (r"tools/call\u0000", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    (r"tools\u0000/call", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    (r"tools/call\n", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    (r"tools/call\ufeff", r#"{"name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32600),
    ("tools/call", r#"{"name":"@env ","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@ env","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@\u00a0env","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@\ufeffenv","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("prompts/get", r#"{"name":"@ SMUGGLED"}"#, -32602),
    ("tools/call", r#"{"name":"@env\u0000","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@env\u0000x","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@env\t","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@env\u0085","arguments":{"name":"SMUGGLED"}}"#, -32602),
    (r"tools\/call", r#"{"name":"@env\u00a0","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@count","name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"name":"@count","Name":"@env","arguments":{"name":"SMUGGLED"}}"#, -32602),
    ("tools/call", r#"{"n\u0061me":"@env","name":"@count","arguments":{"x":"SMUGGLED"}}"#, -32602),
    ("prompts/get", r#"{"name":"@SMUGGLED\u0000"}"#, -32602),
    ("prompts/get", r#"{"name":"@SMUGGLED "}"#, -32602),
];

/// One of the messages above as it is sent.
struct Attack {
    text: String,
    has_id: bool,
    code: i64,
}

/// Returns all of them. `meta` is the `_meta` of each, if any.
fn attacks(prefix: &str, meta: Option<&Value>) -> Vec<Attack> {
    let without = WITHOUT_ID.map(|(method, params)| (method, params, false, -32600));
    let with = WITH_ID.map(|(method, params, code)| (method, params, true, code));
    let all = without.into_iter().chain(with).enumerate();
    let written = all.map(|(at, (method, params, has_id, code))| {
        let id = if has_id { format!(r#""id":"a{at}","#) } else { String::new() };
        let meta = meta.map(|meta| format!(r#"{{"_meta":{meta},"#));
        let mut params = params.replace('@', prefix);
        params.replace_range(..1, meta.as_deref().unwrap_or("{"));
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#);
        Attack { text, has_id, code }
    });
    written.collect()
}

impl Attack {
    fn expect_refusal(&self, answer: &Value) {
        let sent: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!(answer["id"], sent["id"], "{}: {answer}", self.text);
        assert_eq!(answer["error"]["code"], self.code, "{}: {answer}", self.text);
    }

    async fn expect_refused(&self, answer: Answer) {
        let status = if self.code == -32600 { 400 } else { 200 };
        assert_eq!(answer.status, status, "{}", self.text);
        self.expect_refusal(&tokio::time::timeout(LONG, answer.json()).await.unwrap());
    }
}

/// Server with a denied tool, a log of its messages, and an audit.
struct Scene {
    folder: TempDir,
    mark: String,
}

impl Scene {
    fn new(name: &str) -> Self {
        Self { folder: TempDir::new().unwrap(), mark: mark(name) }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn servers(&self) -> Value {
        let mut server = stdio(&self.mark, &["--log", self.log().to_str().unwrap()]);
        server["stayput"] = json!({ "tools": { "deny": ["env"] } });
        json!({ "test": server })
    }

    fn settings(&self) -> Value {
        json!({ "audit": { "to": self.folder.path().join("audit.jsonl") } })
    }

    async fn gateway(&self) -> Gateway {
        Gateway::with(self.servers(), self.settings()).await
    }

    /// Checks that only the message after the attacks reached the server, and that the audit has each attack.
    async fn expect_refusals(&self, attacks: &[Attack]) {
        let log = std::fs::read_to_string(self.log()).unwrap();
        assert!(log.contains(BEHIND), "{log}");
        let reached: Vec<_> = log.lines().filter(|line| line.contains(WORD)).collect();
        assert!(reached.is_empty(), "{reached:#?}");
        let path = self.folder.path().join("audit.jsonl");
        until("audit line for each", || denied(&path).len() >= attacks.len()).await;
        let noted: Vec<_> = denied(&path).iter().map(|it| it["method"].clone()).collect();
        let sent =
            attacks.iter().map(|attack| serde_json::from_str::<Value>(&attack.text).unwrap());
        let sent: Vec<_> = sent.map(|message| message["method"].clone()).collect();
        assert_eq!(noted, sent);
    }
}

fn denied(audit: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(audit).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["outcome"] == "denied").collect()
}

fn echo(prefix: &str) -> Value {
    json!({ "name": format!("{prefix}echo"), "arguments": { "x": BEHIND } })
}

/// Covers the path of one server and the path of all servers.
#[tokio::test]
async fn posted_message_is_refused_and_audited() {
    for (server, prefix) in [("test", ""), ("", "test__")] {
        let scene = Scene::new("admission-post");
        let gateway = scene.gateway().await;
        let client = gateway.client(server).await;
        // A notification goes only to a server that was already started.
        client.request(&gateway, "tools/call", echo(prefix)).await;
        let attacks = attacks(prefix, None);
        for attack in &attacks {
            attack.expect_refused(client.send(&gateway, &attack.text).await).await;
        }
        let known = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
        assert_eq!(client.send(&gateway, &known.to_string()).await.status, 202);
        client.request(&gateway, "tools/call", echo(prefix)).await;
        scene.expect_refusals(&attacks).await;
        let log = std::fs::read_to_string(scene.log()).unwrap();
        assert!(log.contains("notifications/roots/list_changed"), "{log}");
        let page = send(Method::GET, &format!("{}/metrics", gateway.url), &[], "").await.unwrap();
        let page = String::from_utf8(page.bytes().await.unwrap().to_vec()).unwrap();
        let line = format!("refused_total{{reason=\"invalid_message\"}} {}\n", attacks.len());
        assert!(page.contains(&line), "{page}");
        drop(gateway);
        gone(&scene.mark).await;
    }
}

/// Covers messages of a batch.
#[tokio::test]
async fn message_of_a_batch_is_refused_and_audited() {
    let scene = Scene::new("admission-batch");
    let gateway = scene.gateway().await;
    let client = gateway.client_with("test", "2025-03-26", json!({})).await;
    client.request(&gateway, "tools/call", echo("")).await;
    let attacks = attacks("", None);
    let texts: Vec<_> = attacks.iter().map(|attack| &*attack.text).collect();
    let answers = client.send(&gateway, &format!("[{}]", texts.join(","))).await.json().await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), attacks.len(), "{answers:?}");
    for (attack, answer) in attacks.iter().zip(answers) {
        attack.expect_refusal(answer);
    }
    client.request(&gateway, "tools/call", echo("")).await;
    scene.expect_refusals(&attacks).await;
    drop(gateway);
    gone(&scene.mark).await;
}

/// A second `initialize` in a batch does not reach the server, whose link other clients may share.
#[tokio::test]
async fn initialize_in_a_batch_does_not_reach_the_server() {
    let scene = Scene::new("admission-initialize");
    let gateway = scene.gateway().await;
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "AGAIN", "version": "1" },
        } },
        { "jsonrpc": "2.0", "id": 2, "method": "ping" },
    ]);
    for (server, prefix) in [("test", ""), ("", "test__")] {
        let client = gateway.client_with(server, "2025-03-26", json!({})).await;
        let counted = client.request(&gateway, "tools/call", echo(prefix)).await;
        assert!(counted["result"].is_object(), "{counted}");
        let answers = client.send(&gateway, &batch.to_string()).await.json().await;
        assert_eq!(answers[0]["error"]["code"], -32600, "{answers}");
        assert_eq!(answers[1]["result"], json!({}), "{answers}");
    }
    let log = std::fs::read_to_string(scene.log()).unwrap();
    assert!(!log.contains("AGAIN"), "{log}");
    drop(gateway);
    gone(&scene.mark).await;
}

fn meta() -> Value {
    json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} })
}

/// Returns the headers that repeat method and name of a modern request, in an encoding for any text.
fn in_headers(text: &str) -> Vec<(&'static str, String)> {
    let message: Value = serde_json::from_str(text).unwrap();
    let quote = |value: &Value| {
        let coded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap());
        format!("=?base64?{coded}?=")
    };
    let mut all = vec![
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", quote(&message["method"])),
        ("stayput-session", "key:one".to_owned()),
    ];
    let named = ["tools/call", "prompts/get"].contains(&message["method"].as_str().unwrap());
    all.extend(named.then(|| ("mcp-name", quote(&message["params"]["name"]))));
    all
}

/// Covers clients of the modern era.
#[tokio::test]
async fn modern_message_is_refused_and_audited() {
    for (server, prefix) in [("test", ""), ("", "test__")] {
        let scene = Scene::new("admission-modern");
        let gateway = scene.gateway().await;
        let post = async |text: &str| {
            let headers = in_headers(text);
            let headers: Vec<_> = headers.iter().map(|(name, it)| (*name, &**it)).collect();
            gateway.post(server, &headers, text).await
        };
        let attacks = attacks(prefix, Some(&meta()));
        for attack in &attacks {
            attack.expect_refused(post(&attack.text).await).await;
        }
        let mut params = echo(prefix);
        params["_meta"] = meta();
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = post(&call.to_string()).await;
        assert_eq!(answer.status, 200);
        let answer = answer.message().await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        scene.expect_refusals(&attacks).await;
        drop(gateway);
        gone(&scene.mark).await;
    }
}

/// Returns the next message on a stream.
async fn hear(events: &mut Events) -> Value {
    let event = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
    serde_json::from_slice(event.data()).unwrap()
}

/// Covers clients of 2024-11-05. A message with an id is answered on the stream.
#[tokio::test]
async fn message_beside_a_stream_is_refused_and_audited() {
    let scene = Scene::new("admission-sse");
    let gateway = scene.gateway().await;
    let (url, accept) = (format!("{}/sse/test", gateway.url), ("accept", "text/event-stream"));
    let mut events = send(Method::GET, &url, &[accept], "").await.unwrap().events();
    let first = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
    let endpoint = format!("{}{}", gateway.url, String::from_utf8_lossy(first.data()));
    let post = async |text: &str| {
        let headers = [("content-type", "application/json")];
        send(Method::POST, &endpoint, &headers, text.to_owned()).await.unwrap()
    };
    let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" } });
    let call = |method, params| {
        json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params }).to_string()
    };
    for text in [call("initialize", hello), call("tools/call", echo(""))] {
        assert_eq!(post(&text).await.status, 202);
        let answer = hear(&mut events).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    let attacks = attacks("", None);
    for attack in &attacks {
        let answer = post(&attack.text).await;
        if attack.has_id {
            assert_eq!(answer.status, 202);
            attack.expect_refusal(&hear(&mut events).await);
        } else {
            attack.expect_refused(answer).await;
        }
    }
    post(&call("tools/call", echo(""))).await;
    let answer = hear(&mut events).await;
    assert!(answer["result"].is_object(), "{answer}");
    scene.expect_refusals(&attacks).await;
    drop(gateway);
    gone(&scene.mark).await;
}

/// Covers stdio in both eras, in front of one server and of all.
#[tokio::test]
async fn stdio_line_is_refused_and_audited() {
    let meta = meta();
    for (more, prefix, meta) in [
        (&["--server", "test"][..], "", None),
        (&["--server", "test"], "", Some(&meta)),
        (&[], "test__", None),
        (&[], "test__", Some(&meta)),
    ] {
        let (scene, home) = (Scene::new("admission-stdio"), Home::new());
        let file = scene.folder.path().join("team.json");
        let mut servers = scene.servers();
        servers["other"] = stdio(&scene.mark, &[]);
        let text = json!({ "mcpServers": servers, "stayput": scene.settings() });
        std::fs::write(&file, text.to_string()).unwrap();
        let mut arguments = vec!["--no-daemon", "--config", file.to_str().unwrap()];
        arguments.extend(more);
        let mut window = home.window(&arguments);
        if meta.is_none() {
            window.greet().await;
        }
        let mut params = echo(prefix);
        if let Some(meta) = meta {
            params["_meta"] = meta.clone();
        }
        let first = window.ask("tools/call", params.clone()).await;
        assert!(first["result"].is_object(), "{first}");
        let attacks = attacks(prefix, meta);
        for attack in &attacks {
            window.say(&attack.text).await;
            attack.expect_refusal(&window.hear().await);
        }
        let last = window.ask("tools/call", params).await;
        assert!(last["result"].is_object(), "{last}");
        scene.expect_refusals(&attacks).await;
        assert!(window.close().await.success());
        gone(&scene.mark).await;
    }
}
