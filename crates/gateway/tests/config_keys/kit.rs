//! Table of keys, and a gateway that runs with a key and without it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Answer, Events, TestServer, send};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{Gateway, LONG, gone, stdio};

/// Turns rows of keys into tests and into the list `KEYS`.
///
/// A row is `"path.of.key" name_of_the_test |key| { … }`. Its block sets the key and says how each run is seen:
/// `key.set(VALUE).shows(OBSERVER, [WITH, WITHOUT]).await`.
macro_rules! keys {
    ($($path:literal $test:ident |$key:ident| $body:block)*) => {
        /// Keys of this table.
        pub(crate) const KEYS: &[&str] = &[$($path),*];

        $(
            #[tokio::test]
            async fn $test() {
                let $key = crate::kit::Key::new($path, stringify!($test));
                $body
            }
        )*
    };
}

/// Key of the file, with a value that is not its default.
pub(crate) struct Key {
    path: &'static str,
    mark: String,
    file: Value,
    value: Value,
    otherwise: Option<Value>,
}

impl Key {
    /// Key in a file with one server, `test`, which is a process. In `path`, `server` is the entry of that server.
    pub(crate) fn new(path: &'static str, test: &str) -> Self {
        let mark = crate::support::mark(&format!("key-{test}"));
        let stayput = json!({ "listen": "127.0.0.1:0" });
        let file = json!({ "mcpServers": { "test": stdio(&mark, &[]) }, "stayput": stayput });
        Self { path, mark, file, value: Value::Null, otherwise: None }
    }

    /// Merges `patch` into the file of both runs, as RFC 7396 does.
    pub(crate) fn on(mut self, patch: &Value) -> Self {
        merge(&mut self.file, patch);
        self
    }

    /// Merges `patch` into the `stayput` object of the file.
    pub(crate) fn with(self, patch: &Value) -> Self {
        self.on(&json!({ "stayput": patch }))
    }

    /// Starts the server of both runs with these options.
    pub(crate) fn server(mut self, options: &[&str]) -> Self {
        self.file["mcpServers"]["test"] = stdio(&self.mark, options);
        self
    }

    /// Uses a server over HTTP in both runs.
    pub(crate) fn url(mut self, server: &TestServer) -> Self {
        self.file["mcpServers"]["test"] = json!({ "url": server.url() });
        self
    }

    /// Sets the value in the first run.
    pub(crate) fn set(mut self, value: Value) -> Self {
        self.value = value;
        self
    }

    /// Sets the value in the second run. By default the key is absent there.
    pub(crate) fn instead_of(mut self, value: Value) -> Self {
        self.otherwise = Some(value);
        self
    }

    /// Runs the gateway with the key and without it, and checks what `observe` sees of each.
    pub(crate) async fn shows<F>(self, observe: F, expected: [&str; 2])
    where
        F: AsyncFn(Stage) -> String,
    {
        assert_ne!(expected[0], expected[1], "{} has no effect", self.path);
        assert!(!self.value.is_null(), "{} has no value", self.path);
        for (value, expected) in [Some(self.value), self.otherwise].into_iter().zip(expected) {
            let mut file = self.file.clone();
            place(&mut file, self.path, value.clone());
            let stage = Stage { file, folder: TempDir::new().unwrap() };
            let seen = tokio::time::timeout(2 * LONG, observe(stage)).await.unwrap();
            assert_eq!(seen, expected, "with {} = {value:?}", self.path);
            gone(&self.mark).await;
        }
    }
}

/// Sets or removes the value at a path.
fn place(file: &mut Value, path: &str, value: Option<Value>) {
    let path = path.replacen("server.", "mcpServers.test.", 1).replace('*', "ann");
    let mut names: Vec<_> = path.split('.').collect();
    let last = names.pop().unwrap();
    let Some(value) = value else {
        let outer =
            file.pointer_mut(&names.iter().map(|name| format!("/{name}")).collect::<String>());
        drop(outer.and_then(|outer| outer.as_object_mut()?.remove(last)));
        return;
    };
    let outer = names.into_iter().fold(file, |outer, name| &mut outer[name]);
    outer[last] = value;
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}

/// One run: a file and a folder, before the gateway starts.
pub(crate) struct Stage {
    pub(crate) file: Value,
    pub(crate) folder: TempDir,
}

impl Stage {
    /// Starts the gateway, or returns its output if it does not start.
    pub(crate) async fn start(self) -> Result<Gateway, String> {
        Gateway::with_file(self.folder, &self.file).await
    }

    pub(crate) async fn gateway(self) -> Gateway {
        self.start().await.unwrap_or_else(|log| panic!("no start: {log}"))
    }
}

/// Client of the server `test`, which sends these headers with every request.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    pub(crate) headers: Vec<(String, String)>,
}

impl Peer {
    pub(crate) fn with(name: &str, value: &str) -> Self {
        Self::default().and(name, value)
    }

    pub(crate) fn bearer(token: &str) -> Self {
        Self::with("authorization", &format!("Bearer {token}"))
    }

    /// Returns a copy with one more header.
    pub(crate) fn and(&self, name: &str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push((name.to_owned(), value.to_owned()));
        Self { headers }
    }

    pub(crate) async fn post(&self, gateway: &Gateway, path: &str, body: &Value) -> Answer {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        gateway.post(path, &headers, &body.to_string()).await
    }

    /// Sends `initialize`. Returns the client with the id of its connection, or the status.
    pub(crate) async fn connect(&self, gateway: &Gateway) -> Result<Self, String> {
        let answer = self.post(gateway, "test", &hello()).await;
        if answer.status != 200 {
            return Err(answer.status.as_str().to_owned());
        }
        let id = answer.header("mcp-session-id").to_owned();
        let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
        if message["result"].is_null() {
            Err("error".to_owned())
        } else {
            Ok(self.and("mcp-session-id", &id))
        }
    }

    /// Calls a tool and returns its text, `error`, or the status.
    pub(crate) async fn call(&self, gateway: &Gateway, tool: &str, arguments: Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments });
        let body =
            json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": params });
        outcome(self.post(gateway, "test", &body).await).await
    }

    /// Returns the names of the tools.
    pub(crate) async fn tools(&self, gateway: &Gateway) -> Vec<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" });
        let answer = self.post(gateway, "test", &body).await.message().await;
        answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }
}

/// Returns the text of a tool's answer, `error`, or the status.
pub(crate) async fn outcome(answer: Answer) -> String {
    if answer.status != 200 {
        return answer.status.as_str().to_owned();
    }
    let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
    let text = message["result"]["content"][0]["text"].as_str();
    match (&message["result"]["isError"], text) {
        (Value::Bool(true), _) | (_, None) => "error".to_owned(),
        (_, Some(text)) => text.to_owned(),
    }
}

pub(crate) fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "keys", "version": "1" } } })
}

/// Observer: calls a tool once and returns its text, `error`, the status, or `no start`.
pub(crate) async fn call(stage: Stage, tool: &str, arguments: Value) -> String {
    call_as(stage, &Peer::default(), tool, arguments).await
}

/// Observer: calls a tool as this client.
pub(crate) async fn call_as(stage: Stage, peer: &Peer, tool: &str, arguments: Value) -> String {
    let Ok(gateway) = stage.start().await else { return "no start".to_owned() };
    match peer.connect(&gateway).await {
        Ok(client) => client.call(&gateway, tool, arguments).await,
        Err(status) => status,
    }
}

/// Observer: calls the counter once.
pub(crate) async fn count(stage: Stage) -> String {
    call(stage, "count", json!({})).await
}

/// Observer: status of `initialize`.
pub(crate) async fn greet(stage: Stage) -> String {
    greet_as(stage, &Peer::default()).await
}

/// Observer: status of `initialize` of this client.
pub(crate) async fn greet_as(stage: Stage, peer: &Peer) -> String {
    let gateway = stage.gateway().await;
    peer.post(&gateway, "test", &hello()).await.status.as_str().to_owned()
}

/// Observer: status of a GET of this path of the gateway.
pub(crate) async fn get(gateway: &Gateway, path: &str, peer: &Peer) -> Answer {
    let url = format!("{}{path}", gateway.url);
    let headers: Vec<_> = peer.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    tokio::time::timeout(LONG, send(Method::GET, &url, &headers, "")).await.unwrap().unwrap()
}

/// Calls `slow` on a connection, and returns its events after the first progress: the server has the call then.
pub(crate) async fn occupy(gateway: &Gateway, client: &Peer, ms: u64) -> Events {
    let arguments = json!({ "ms": ms, "steps": ms / 100 });
    let params = json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let body = json!({ "jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": params });
    let mut events = client.post(gateway, "test", &body).await.events();
    let first = tokio::time::timeout(LONG, events.message()).await.unwrap();
    let progress = first.is_some_and(|it| it["method"] == "notifications/progress");
    assert!(progress, "the call does not run: {}", gateway.log());
    events
}

/// Returns how the call of these events ended: `done`, `error` or `cut off`.
pub(crate) async fn end_of(mut events: Events) -> String {
    while let Some(message) = tokio::time::timeout(LONG, events.message()).await.unwrap() {
        if message["id"] == "slow" {
            let failed = message["result"]["isError"] == true || message["result"].is_null();
            return if failed { "error" } else { "done" }.to_owned();
        }
    }
    "cut off".to_owned()
}

pub(crate) fn address(gateway: &Gateway) -> &str {
    gateway.url.trim_start_matches("http://")
}

/// Sends bytes on a new socket. Returns the status, or how no answer came within three seconds.
pub(crate) async fn raw(gateway: &Gateway, bytes: &[u8], limit: Duration) -> String {
    let mut socket = TcpStream::connect(address(gateway)).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut said = [0; 12];
    let read = socket.read_exact(&mut said);
    match tokio::time::timeout(limit, read).await {
        Err(_) => "silence".to_owned(),
        Ok(Err(_)) => "closed".to_owned(),
        Ok(Ok(_)) => String::from_utf8_lossy(&said).replace("HTTP/1.1 ", ""),
    }
}

/// Creates a token and its hash with the program itself.
pub(crate) fn token(name: &str) -> (String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.args(["token", name, "--json"]).output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("token"), text("hash"))
}
