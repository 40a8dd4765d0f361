//! Clients that do no more than they are told.

use std::{process::Stdio, time::Duration};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{
    mcp::{Answer, TestServer, send},
    program,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Longer than anything takes that is going to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for what is going to happen.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it does not happen")
}

/// Waits until it is so.
pub(crate) async fn until(mut so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A stdio server and its pipes.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(program("stayput-testserver"));
        command.arg("stdio").args(options);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin: child.stdin.take(), child, lines }
    }

    pub(crate) async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        soon(self.lines.next_line()).await.unwrap()
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("it has ended")).unwrap()
    }

    pub(crate) async fn ask(&mut self, message: &Value) -> Value {
        self.say(&message.to_string()).await;
        self.hear().await
    }

    /// Asks, and lets pass what comes before the answer.
    pub(crate) async fn answer_to(&mut self, message: &Value) -> Value {
        self.say(&message.to_string()).await;
        loop {
            let said = self.hear().await;
            if said["id"] == message["id"] && said["method"].is_null() {
                return said;
            }
        }
    }

    pub(crate) async fn initialize(&mut self) {
        let answer = self.ask(&initialize(&json!({}))).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    }

    /// Exit of the server.
    pub(crate) async fn exit(&mut self) -> Option<i32> {
        soon(self.child.wait()).await.unwrap().code()
    }
}

pub(crate) fn initialize(capabilities: &Value) -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

pub(crate) fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A request of the modern era, of a client that can do this.
pub(crate) fn modern(mut request: Value, capabilities: &Value) -> Value {
    request["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    request
}

/// The text of a tool's result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// A legacy client over HTTP.
pub(crate) struct Client {
    pub(crate) url: String,
    pub(crate) session: String,
}

const BASE: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

impl Client {
    pub(crate) async fn open(server: &TestServer, capabilities: &Value) -> Self {
        let answer = post(server.url(), &[], &initialize(capabilities)).await;
        assert_eq!(answer.status, 200);
        let session = answer.header("mcp-session-id").to_owned();
        assert!(answer.message().await["result"]["serverInfo"].is_object());
        let client = Self { url: server.url().to_owned(), session };
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&note).await.status, 202);
        client
    }

    pub(crate) fn headers(&self) -> [(&str, &str); 2] {
        [("mcp-session-id", &self.session), ("mcp-protocol-version", "2025-11-25")]
    }

    pub(crate) async fn post(&self, message: &Value) -> Answer {
        post(&self.url, &self.headers(), message).await
    }

    pub(crate) async fn call(&self, id: u64, tool: &str, arguments: &Value) -> Value {
        soon(self.post(&call(id, tool, arguments)).await.message()).await
    }

    pub(crate) async fn get(&self, headers: &[(&str, &str)]) -> Answer {
        let accept = [("accept", "text/event-stream")];
        let headers = [&self.headers()[..], &accept, headers].concat();
        soon(send(Method::GET, &self.url, &headers, "")).await.unwrap()
    }

    pub(crate) async fn delete(&self) -> Answer {
        soon(send(Method::DELETE, &self.url, &self.headers(), "")).await.unwrap()
    }
}

pub(crate) async fn post(url: &str, headers: &[(&str, &str)], message: &Value) -> Answer {
    try_post(url, headers, message).await.unwrap()
}

pub(crate) async fn try_post(
    url: &str,
    headers: &[(&str, &str)],
    message: &Value,
) -> std::io::Result<Answer> {
    let headers = [&BASE[..], headers].concat();
    soon(send(Method::POST, url, &headers, message.to_string())).await
}

/// Sends a modern request with the headers it must have.
pub(crate) async fn post_modern(url: &str, message: &Value) -> Answer {
    let method = message["method"].as_str().unwrap();
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    let name = ["name", "uri"].iter().find_map(|name| message["params"][*name].as_str());
    headers.extend(name.map(|name| ("mcp-name", name)));
    post(url, &headers, message).await
}
