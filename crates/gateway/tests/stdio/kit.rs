//! Windows of an IDE, each with its own `stayput stdio`.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use stayput_testkit::{processes, program};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::support::{LONG, until};

/// User with an empty data folder.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Folder of the process that holds the sessions of this user.
    pub(crate) fn data(&self) -> PathBuf {
        self.0.path().join("data/stayput/stayput.db.d")
    }

    /// Returns the daemons that hold sessions of this user.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        let mut found = processes::with_token(self.0.path().to_str().unwrap());
        found.retain(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"--begun")
        });
        found
    }

    /// Waits until no daemon holds sessions of this user, and its socket is removed.
    pub(crate) async fn deserted(&self) {
        until("end of the daemon", || self.daemons().is_empty()).await;
        assert!(!self.data().join("socket").exists());
    }

    /// Returns the command of `stayput` for this user.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        command.env("XDG_DATA_HOME", self.0.path().join("data")).current_dir(self.0.path());
        command
    }

    /// Starts `stayput stdio` with these arguments.
    pub(crate) fn window(&self, arguments: &[&str]) -> Window {
        let mut command = self.command();
        command.arg("stdio").args(arguments);
        Window::start(command)
    }

    /// Starts a standalone process in front of the test server.
    pub(crate) fn alone(&self, mark: &str, arguments: &[&str]) -> Window {
        let mut all = vec!["--no-daemon"];
        all.extend(arguments);
        self.in_front(mark, &all)
    }

    /// Starts a window in front of the test server with these arguments.
    pub(crate) fn in_front(&self, mark: &str, arguments: &[&str]) -> Window {
        let server = program("stayput-testserver");
        let mut all = arguments.to_vec();
        all.extend(["--", server.to_str().unwrap()]);
        all.extend(["stdio", "--era", "legacy", "--mark", mark]);
        self.window(&all)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for pid in self.daemons() {
            let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}

/// Running `stayput stdio`. Killed on drop.
pub(crate) struct Window {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Option<Lines<BufReader<ChildStdout>>>,
    log: Arc<Mutex<String>>,
    logging: tokio::task::JoinHandle<()>,
    next: u64,
    /// Messages that were not answers.
    pub(crate) heard: Vec<Value>,
}

impl Window {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Self::of(child, Some(stderr))
    }

    /// Starts a window whose stderr is not read.
    pub(crate) fn start_unread(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(command.kill_on_drop(true).spawn().unwrap(), None)
    }

    fn of(mut child: Child, stderr: Option<ChildStderr>) -> Self {
        let log = Arc::new(Mutex::new(String::new()));
        let (kept, mut capture) = (log.clone(), crate::support::capture());
        let logging = tokio::runtime::Handle::current().spawn(async move {
            let Some(stderr) = stderr else { return };
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(capture) = &mut capture {
                    std::io::Write::write_all(capture, format!("{line}\n").as_bytes()).unwrap();
                }
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let stdin = child.stdin.take();
        let said = child.stdout.take().map(|output| BufReader::new(output).lines());
        Self { child, stdin, said, log, logging, next: 1, heard: Vec::new() }
    }

    /// Returns its stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Writes a line.
    pub(crate) async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        if self.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.is_err() {
            let ended = self.wait().await;
            panic!("it ended, {ended}: {}", self.log());
        }
    }

    /// Returns the next line, which must be a message.
    pub(crate) async fn hear(&mut self) -> Value {
        let line = timeout(LONG, self.said.as_mut().unwrap().next_line()).await;
        let line = line.expect("a line in time").unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended: {}", self.log()));
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.say(&request.to_string()).await;
        id
    }

    /// Returns the answer to a request. Keeps the other messages.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.hear().await;
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Sends `initialize`.
    pub(crate) async fn greet(&mut self) -> Value {
        self.greet_with(json!({})).await
    }

    pub(crate) async fn greet_with(&mut self, capabilities: Value) -> Value {
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "ide", "version": "1" } });
        let greeting = self.ask("initialize", hello).await;
        assert!(greeting["result"]["serverInfo"].is_object(), "{greeting}");
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        greeting
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn text(&mut self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments).await)
    }

    /// Increments the counter of the session and returns its value.
    pub(crate) async fn count(&mut self) -> String {
        self.text("count", json!({})).await
    }

    /// Returns the count after a loss. The loss is acknowledged after the answer is sent, so it may be reported once
    /// more.
    pub(crate) async fn count_after_a_loss(&mut self) -> String {
        for _ in 0..1_500 {
            let answer = self.call("count", json!({})).await;
            if answer["result"]["isError"] != true {
                return text(&answer);
            }
        }
        panic!("the loss is told without end");
    }

    /// Closes its input and waits until it exits.
    pub(crate) async fn close(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.wait().await
    }

    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let ended = timeout(LONG, self.child.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).unwrap();
        timeout(LONG, &mut self.logging).await.expect("nobody else has its log").unwrap();
        ended
    }

    /// Returns all remaining lines until it closes its output.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        drop(self.stdin.take());
        let mut all = Vec::new();
        let said = self.said.as_mut().unwrap();
        while let Some(line) = timeout(LONG, said.next_line()).await.unwrap().unwrap() {
            all.push(line);
        }
        all
    }

    /// Stops reading its output.
    pub(crate) fn stop_reading(&mut self) {
        self.said = None;
    }

    pub(crate) fn kill(&self, signal: &str) {
        kill(self.pid(), signal);
    }
}

pub(crate) fn kill(pid: u32, signal: &str) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

pub(crate) fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Counts the running servers with this mark on their command line.
pub(crate) fn servers(mark: &str) -> usize {
    let is_server = |pid: &u32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.ends_with("stayput-testserver"))
    };
    processes::with_token(mark).iter().filter(|pid| is_server(pid)).count()
}
