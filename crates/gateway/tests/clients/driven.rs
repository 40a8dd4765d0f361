//! A client of others that does what a test tells it.

use std::process::Stdio;

use serde_json::{Value, json};
use stayput_testkit::peers::Peer;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::world::LONG;

/// A running client, which has as many sessions as it is told to open. Dropped, it is killed.
pub(crate) struct Driven {
    stdin: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    /// Killed when it is dropped.
    _child: Child,
}

impl Driven {
    /// A client of `peers/clients`, or one that speaks like them, with these arguments.
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

    /// Opens a session; says which version of the protocol was agreed on.
    pub(crate) async fn open(&mut self, name: &str) -> String {
        self.open_with(name, json!({})).await
    }

    /// The same, with headers on everything that it sends.
    pub(crate) async fn open_with(&mut self, name: &str, headers: Value) -> String {
        let said = self.tell(&json!({ "open": name, "headers": headers })).await;
        said["version"].as_str().unwrap().to_owned()
    }

    /// The result of a tool.
    pub(crate) async fn call(&mut self, name: &str, tool: &str) -> Value {
        self.call_with(name, tool, json!({}), Value::Null).await
    }

    /// The same, with arguments and `_meta`.
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

    /// Adds one to the count of a session, and says what it is now.
    pub(crate) async fn count(&mut self, name: &str) -> u64 {
        let result = self.call(name, "count").await;
        let text = result["content"][0]["text"].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{result}"))
    }

    /// Closes a session as the client does it when it is asked nicely.
    pub(crate) async fn close(&mut self, name: &str) {
        assert_eq!(self.tell(&json!({ "close": name })).await["closed"], name);
    }
}
