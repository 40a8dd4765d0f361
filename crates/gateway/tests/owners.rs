//! Authentication, and isolation between owners: over real sockets, with a real issuer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "owners/fairness.rs"]
mod fairness;
#[path = "owners/flooding_servers.rs"]
mod flooding_servers;
#[path = "owners/hijack.rs"]
mod hijack;
#[path = "owners/identity.rs"]
mod identity;
#[path = "owners/issuer.rs"]
mod issuer;
#[path = "owners/jwt.rs"]
mod jwt;
#[path = "owners/leaks.rs"]
mod leaks;
#[path = "owners/limits.rs"]
mod limits;
#[path = "owners/poison.rs"]
mod poison;
#[path = "owners/raw.rs"]
mod raw;
#[path = "owners/secrets.rs"]
mod secrets;
#[path = "owners/sharing.rs"]
mod sharing;
#[path = "owners/streams.rs"]
mod streams;
mod support;

use std::process::Command;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Answer, send};
use support::{Gateway, LONG, gone, mark, stdio};

/// Creates a token and its hash with the program itself.
fn token(name: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.args(["token", name, "--json"]).output().unwrap();
    assert!(output.status.success());
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["name"], name);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("token"), text("hash"))
}

/// Client that sends the same headers with every request.
struct Somebody {
    headers: Vec<(String, String)>,
}

impl Somebody {
    fn with(name: &str, value: &str) -> Self {
        Self { headers: vec![(name.to_owned(), value.to_owned())] }
    }

    fn bearer(token: &str) -> Self {
        Self::with("authorization", &format!("Bearer {token}"))
    }

    fn nobody() -> Self {
        Self { headers: Vec::new() }
    }

    /// Returns a copy with one more header.
    fn and(&self, name: &str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push((name.to_owned(), value.to_owned()));
        Self { headers }
    }

    async fn ask(&self, method: Method, url: &str, body: &str) -> Answer {
        let mut all = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        all.extend(self.headers.iter().map(|(name, value)| (&**name, &**value)));
        let sent = send(method, url, &all, body.to_owned());
        tokio::time::timeout(LONG, sent).await.unwrap().unwrap()
    }

    async fn greet(&self, url: &str) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "somebody", "version": "1" },
        }});
        self.ask(Method::POST, url, &body.to_string()).await
    }

    /// Opens a connection and returns its id.
    async fn connect(&self, url: &str) -> String {
        let answer = self.greet(url).await;
        assert_eq!(answer.status, 200);
        answer.header("mcp-session-id").to_owned()
    }

    /// Calls a tool on a connection.
    async fn call(&self, url: &str, connection: &str, tool: &str) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": {} } });
        self.and("mcp-session-id", connection).ask(Method::POST, url, &body.to_string()).await
    }

    async fn text(&self, url: &str, connection: &str, tool: &str) -> String {
        let answer = self.call(url, connection, tool).await;
        assert_eq!(answer.status, 200);
        let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
        let text = message["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{message}")).to_owned()
    }
}

/// A client without a valid token learns only how to authenticate. A new token for a name finds the sessions of that
/// name. Health is public.
#[tokio::test]
async fn client_without_a_token_is_refused() {
    let mark = mark("tokens");
    let ((ann, hash), (again, second)) = (token("ann"), token("ann"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("# people\n\nann {second}\n")).unwrap();
    let auth = json!({ "tokens": { "ann": hash }, "tokens_file": file.path() });
    let servers = json!({ "test": stdio(&mark, &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let url = gateway.at("test");
    for (stranger, error) in [
        (Somebody::nobody(), false),
        (Somebody::with("authorization", "Basic YTpi"), false),
        (Somebody::bearer("stp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), true),
        (Somebody::bearer(""), false),
        (Somebody::bearer(&ann[..ann.len() - 1]), true),
        (Somebody::bearer(&ann).and("authorization", "Bearer other"), true),
    ] {
        let answer = stranger.greet(&url).await;
        assert_eq!(answer.status, 401);
        let challenge = answer.header("www-authenticate").to_owned();
        assert!(challenge.starts_with("Bearer realm=\"stayput\""), "{challenge}");
        assert_eq!(challenge.contains("error=\"invalid_token\""), error, "{challenge}");
        let body = answer.json().await.to_string();
        assert!(!body.contains(&ann), "{body}");
    }
    for (path, status) in [("/healthz", 200), ("/metrics", 401), ("/sse/test", 401)] {
        let answer =
            Somebody::nobody().ask(Method::GET, &format!("{}{path}", gateway.url), "").await;
        assert_eq!(answer.status, status, "{path}");
    }
    let (old, new) = (Somebody::bearer(&ann), Somebody::bearer(&again));
    let connection = old.connect(&url).await;
    assert_eq!(old.text(&url, &connection, "count").await, "1");
    assert_eq!(new.text(&url, &connection, "count").await, "2");
    assert!(!gateway.log().contains(&ann), "{}", gateway.log());
    drop(gateway);
    gone(&mark).await;
}

/// The user header of a proxy counts only if it comes from the proxy's address and is there once.
#[tokio::test]
async fn proxy_header_names_the_owner() {
    let mark = mark("proxy");
    let servers = json!({ "test": stdio(&mark, &[]) });
    let proxy = json!({ "header": "X-Forwarded-User", "from": ["127.0.0.0/8"] });
    let gateway = Gateway::with(servers.clone(), json!({ "auth": { "proxy": proxy } })).await;
    let url = gateway.at("test");
    let (ann, bob) =
        (Somebody::with("x-forwarded-user", "ann"), Somebody::with("x-forwarded-user", "bob"));
    let connection = ann.connect(&url).await;
    assert_eq!(ann.text(&url, &connection, "count").await, "1");
    assert_eq!(bob.call(&url, &connection, "count").await.status, 404);
    assert_eq!(ann.and("x-forwarded-user", "bob").greet(&url).await.status, 401);
    assert_eq!(Somebody::nobody().greet(&url).await.status, 401);
    let elsewhere = json!({ "header": "X-Forwarded-User", "from": ["10.0.0.7"] });
    let other = Gateway::with(servers, json!({ "auth": { "proxy": elsewhere } })).await;
    assert_eq!(ann.greet(&other.at("test")).await.status, 401);
    drop((gateway, other));
    gone(&mark).await;
}

/// A gateway without authentication listens only on loopback, unless its operator allows more.
#[tokio::test]
async fn public_address_without_authentication_has_to_be_allowed() {
    let servers = json!({ "test": stdio(&mark("open"), &[]) });
    let arguments = ["--listen", "0.0.0.0:0", "--open-to-all"];
    let gateway = Gateway::with_arguments(servers.clone(), json!({}), &arguments).await;
    assert!(gateway.log().contains("can be reached from other machines"), "{}", gateway.log());
    let auth = json!({ "tokens": { "ann": token("ann").1 } });
    let arguments = ["--listen", "0.0.0.0:0"];
    let gateway = Gateway::with_arguments(servers, json!({ "auth": auth }), &arguments).await;
    assert!(!gateway.log().contains("can be reached from other machines"), "{}", gateway.log());
}

/// Mistakes are reported with their place. The message contains no hash and no token.
#[test]
fn invalid_auth_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("stayput.json");
    let hash = token("x").1;
    for (auth, expected) in [
        (json!({}), "no client could authenticate"),
        (json!({ "tokens": { "ann": "secret" } }), "a hash of a token"),
        (json!({ "tokens": { "ann": hash, "bob": hash } }), "also that of another name"),
        (json!({ "tokens_file": "none" }), "does not exist"),
        (json!({ "jwt": { "issuer": "https://id.example.com" } }), "\"audience\""),
        (json!({ "jwt": { "issuer": "http://id.example.com", "audience": "x" } }), "https"),
        (json!({ "jwt": { "isuer": "https://id.example.com" } }), "\"issuer\""),
        (json!({ "proxy": { "header": "X-User", "from": ["10.0.0.0/40"] } }), "a network"),
    ] {
        let text = json!({ "mcpServers": {}, "stayput": { "auth": auth } }).to_string();
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        let output = command.args(["serve", "--config"]).arg(&config).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{auth}: {said}");
        assert!(said.contains("stayput.auth") && !said.contains(&hash), "{said}");
    }
}
