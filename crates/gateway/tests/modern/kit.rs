//! Client of the modern era.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::until_some;
use stayput_testkit::{
    mcp::{Answer, send},
    program,
};

use crate::support::{Gateway, LONG};

pub(crate) const VERSION: &str = "2026-07-28";

/// Returns the `_meta` of every request.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "7" },
    })
}

/// Returns a valid request. The `_meta` of `params` is merged into the default one.
pub(crate) fn request(id: &Value, method: &str, mut params: Value) -> Value {
    let mut all = meta();
    if let Some(more) = params["_meta"].as_object() {
        all.as_object_mut().unwrap().extend(more.clone());
    }
    params["_meta"] = all;
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Returns the headers of a valid request.
pub(crate) fn headers(request: &Value) -> Vec<(String, String)> {
    let method = request["method"].as_str().unwrap();
    let mut all = vec![
        ("mcp-protocol-version".to_owned(), VERSION.to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    let source = named_by(method).and_then(|name| request["params"][name].as_str());
    all.extend(source.map(|name| ("mcp-name".to_owned(), name.to_owned())));
    all
}

fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

/// Posts a body with these headers and the ones that HTTP requires.
pub(crate) async fn post(url: &str, headers: &[(String, String)], body: &str) -> Answer {
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let replaced = |name: &str| headers.iter().any(|(other, _)| other == name);
    all.retain(|(name, _)| !replaced(name));
    all.extend(headers.iter().map(|(name, value)| (&**name, &**value)));
    tokio::time::timeout(LONG, send(Method::POST, url, &all, body.to_owned()))
        .await
        .unwrap()
        .unwrap()
}

/// Modern client of one server of a gateway, or of the server itself.
pub(crate) struct Modern {
    pub(crate) url: String,
    more: Vec<(String, String)>,
}

impl Modern {
    pub(crate) fn of(gateway: &Gateway, server: &str) -> Self {
        Self { url: gateway.at(server), more: Vec::new() }
    }

    pub(crate) fn direct(url: &str) -> Self {
        Self { url: url.to_owned(), more: Vec::new() }
    }

    /// Returns a copy for a session of this name.
    pub(crate) fn named(&self, name: &str) -> Self {
        self.with("stayput-session", &format!("key:{name}"))
    }

    /// Returns a copy with one more header.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut more = self.more.clone();
        more.push((name.to_owned(), value.to_owned()));
        Self { url: self.url.clone(), more }
    }

    /// Sends a valid request.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Answer {
        self.send(&request(&json!("q/1"), method, params)).await
    }

    pub(crate) async fn send(&self, request: &Value) -> Answer {
        let mut all = headers(request);
        all.extend(self.more.clone());
        post(&self.url, &all, &request.to_string()).await
    }

    /// Sends a request and returns its successful result. Checks that no answer of this era has an `Mcp-Session-Id`.
    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("mcp-session-id"), "");
        let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
        assert_eq!(message["id"], "q/1", "{message}");
        assert!(message["result"]["resultType"].is_string(), "{message}");
        message["result"].clone()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn text(&self, tool: &str) -> String {
        let result = self.call(tool, json!({})).await;
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    /// Sends a request that is refused, and returns status, code and message.
    pub(crate) async fn refused(&self, method: &str, params: Value) -> (u16, i64, Value) {
        refusal(self.ask(method, params).await).await
    }

    /// Waits until a counter of the server is at least this high.
    pub(crate) async fn until(&self, counter: &str, least: u64) {
        let reached = async || {
            let stats: Value = serde_json::from_str(&self.text("stats").await).unwrap();
            let count = stats.pointer(counter).and_then(Value::as_u64).unwrap_or(0);
            (count >= least).then_some(())
        };
        until_some(&format!("{counter} is at least {least}"), reached).await;
    }
}

/// Returns status, code and whole message of a refusal.
pub(crate) async fn refusal(answer: Answer) -> (u16, i64, Value) {
    let status = answer.status.as_u16();
    assert_eq!(answer.header("mcp-session-id"), "");
    let message = answer.json().await;
    let code = message["error"]["code"].as_i64().unwrap_or_else(|| panic!("{message}"));
    (status, code, message)
}

/// Entry of a modern server as a process, which all sessions share.
pub(crate) fn modern_stdio(mark: &str, more: &[&str]) -> Value {
    let mut args = vec!["stdio", "--era", "modern", "--mark", mark];
    args.extend(more);
    json!({ "command": program("stayput-testserver"), "args": args })
}
