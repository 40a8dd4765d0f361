//! Third-party client under control of a test.

use std::process::Stdio;

use serde_json::{Value, json};
use stayput_testkit::peers::Peer;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::support::LONG;

/// Running client with any number of sessions. Dropping it kills the process.
pub(crate) struct Driven {
    stdin: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    /// Killed on drop.
    _child: Child,
}

impl Driven {
    /// Starts a client of `peers/clients`, or one with the same commands, with these arguments.
    pub(crate) fn start(peer: &Peer, args: &[&str]) -> Self {
        let mut command = Command::from(peer.command());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin, said, _child: child }
    }

    async fn tell(&mut self, command: &Value) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let said = timeout(LONG, self.said.next_line()).await.expect("an answer in time");
        let said = said.unwrap().expect("the client lives");
        let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        assert!(said["error"].is_null(), "{command}: {said}");
        said
    }

    /// Opens a session and returns the negotiated protocol version.
    pub(crate) async fn open(&mut self, name: &str) -> String {
        self.open_with(name, json!({})).await
    }

    /// Opens a session with headers on every request.
    pub(crate) async fn open_with(&mut self, name: &str, headers: Value) -> String {
        let said = self.tell(&json!({ "open": name, "headers": headers })).await;
        said["version"].as_str().unwrap().to_owned()
    }

    /// Calls a tool and returns its result.
    pub(crate) async fn call(&mut self, name: &str, tool: &str) -> Value {
        self.call_with(name, tool, json!({}), Value::Null).await
    }

    /// Calls a tool with arguments and `_meta`.
    pub(crate) async fn call_with(
        &mut self,
        name: &str,
        tool: &str,
        arguments: Value,
        meta: Value,
    ) -> Value {
        let mut call = json!({ "call": name, "tool": tool, "arguments": arguments });
        if !meta.is_null() {
            call["meta"] = meta;
        }
        self.tell(&call).await["result"].take()
    }

    /// Increments the counter of a session and returns its value.
    pub(crate) async fn count(&mut self, name: &str) -> u64 {
        let result = self.call(name, "count").await;
        let text = result["content"][0]["text"].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{result}"))
    }

    /// Closes a session in the regular way of the client.
    pub(crate) async fn close(&mut self, name: &str) {
        assert_eq!(self.tell(&json!({ "close": name })).await["closed"], name);
    }
}
