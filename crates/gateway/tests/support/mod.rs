//! Running gateway and its clients.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "each test file uses a part of it, and a test stops at the first surprise"
)]

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
pub(crate) use stayput_testkit::until;
use stayput_testkit::{
    mcp::{Answer, send},
    processes, program,
};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::TcpStream};

/// Timeout for everything, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Gateway with its own folder. Dropping it kills it with all its processes.
pub(crate) struct Gateway {
    pub(crate) folder: TempDir,
    config: PathBuf,
    child: Option<Child>,
    pub(crate) url: String,
    /// Its stderr so far.
    log: Arc<Mutex<String>>,
    arguments: Vec<&'static str>,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Gateway {
    /// Starts a gateway for these servers, in the form of `mcpServers`.
    pub(crate) async fn start(servers: Value) -> Self {
        Self::with(servers, json!({})).await
    }

    /// Starts a gateway for these servers on an existing store.
    pub(crate) async fn on(servers: Value, store: &str) -> Self {
        Self::with(servers, json!({ "store": store })).await
    }

    pub(crate) async fn with(servers: Value, stayput: Value) -> Self {
        Self::with_arguments(servers, stayput, &[]).await
    }

    /// Starts a gateway with additional arguments. The store is a file unless `stayput` names another.
    pub(crate) async fn with_arguments(
        servers: Value,
        mut stayput: Value,
        arguments: &[&'static str],
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join("stayput.json");
        let store = format!("sqlite:{}", folder.path().join("store.db").display());
        if stayput["store"].is_null() {
            stayput["store"] = json!(store);
        }
        stayput["listen"] = json!("127.0.0.1:0");
        let text = json!({ "mcpServers": servers, "stayput": stayput }).to_string();
        std::fs::write(&config, text).unwrap();
        let (url, log, arguments) = (String::new(), Arc::default(), arguments.to_vec());
        let variables = Vec::new();
        let mut gateway = Self { folder, config, child: None, url, log, arguments, variables };
        gateway.run().await;
        gateway
    }

    /// Starts a gateway on this file, which is written into `folder` as it is. Returns its output if it does not start.
    pub(crate) async fn with_file(folder: TempDir, file: &Value) -> Result<Self, String> {
        let config = folder.path().join("stayput.json");
        std::fs::write(&config, file.to_string()).unwrap();
        let (url, log, arguments) = (String::new(), Arc::default(), Vec::new());
        let variables = Vec::new();
        let mut gateway = Self { folder, config, child: None, url, log, arguments, variables };
        if gateway.try_run().await { Ok(gateway) } else { Err(gateway.log()) }
    }

    /// Starts it again, with one more environment variable.
    pub(crate) async fn restart_with(&mut self, name: &'static str, value: PathBuf) {
        self.variables.push((name, value));
        assert!(self.stop().success());
        self.run().await;
    }

    async fn run(&mut self) {
        assert!(self.try_run().await, "the gateway came up: {}", self.log());
    }

    /// Starts it, and returns whether it listens.
    async fn try_run(&mut self) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        command.args(["serve", "--config"]).arg(&self.config).args(&self.arguments);
        if !self.arguments.contains(&"--log-format") {
            command.args(["--log-format", "text"]);
        }
        command.env("XDG_DATA_HOME", self.folder.path().join("data"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (found, url) = tokio::sync::oneshot::channel();
        let log = self.log.clone();
        let mut capture = capture();
        std::thread::spawn(move || {
            let mut found = Some(found);
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut words = line.split(|c: char| c.is_whitespace() || c == '"');
                let url = words
                    .find(|word| ["http://", "https://"].iter().any(|it| word.starts_with(it)))
                    .filter(|_| line.contains("stayput listens on"));
                if let (Some(url), Some(_)) = (url, &found) {
                    let base = url.split("/mcp").next().unwrap_or(url).trim_end_matches('/');
                    let _ = found.take().unwrap().send(base.to_owned());
                }
                if let Some(capture) = &mut capture {
                    writeln!(capture, "{line}").unwrap();
                }
                let mut log = log.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        self.child = Some(child);
        let found = tokio::time::timeout(LONG, url).await.unwrap();
        found.map(|url| self.url = url).is_ok()
    }

    /// Returns the path of its configuration file.
    pub(crate) fn config(&self) -> &std::path::Path {
        &self.config
    }

    /// Returns the text of that file.
    pub(crate) fn configuration(&self) -> String {
        std::fs::read_to_string(&self.config).unwrap()
    }

    /// Replaces that file like editors do: writes a temporary file and renames it.
    pub(crate) fn write(&self, text: &str) {
        let beside = self.folder.path().join("stayput.json~");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, &self.config).unwrap();
    }

    /// Replaces the servers in that file.
    pub(crate) fn configure(&self, servers: Value) {
        let mut all: Value = serde_json::from_str(&self.configuration()).unwrap();
        all["mcpServers"] = servers;
        self.write(&all.to_string());
    }

    /// Sends it SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    /// Sends it a signal, such as `-STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Returns its stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Largest resident memory so far, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// Kills it with SIGKILL and waits for its exit.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends it SIGTERM and waits for its exit.
    pub(crate) fn stop(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().unwrap();
        let status = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(status.success());
        child.wait().unwrap()
    }

    /// Waits for its exit.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    /// Changes its configuration for the next start.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&self.config, text.replacen(from, to, 1)).unwrap();
    }

    /// Starts it again on the same store.
    pub(crate) async fn restart(&mut self) {
        self.run().await;
    }

    /// Starts it again on the same port, too, for clients that do not know of the restart.
    pub(crate) async fn restart_in_place(&mut self) {
        let before = self.url.clone();
        let address = before.trim_start_matches("http://");
        let text = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, text.replace("127.0.0.1:0", address)).unwrap();
        self.run().await;
        assert_eq!(self.url, before);
    }

    /// Returns the parent of the private folders of sessions.
    pub(crate) fn sessions(&self) -> PathBuf {
        self.folder.path().join("store.db.d/folders/sessions")
    }

    /// Returns the URL of a server, or of all servers if the name is empty.
    pub(crate) fn at(&self, server: &str) -> String {
        format!("{}/mcp/{server}", self.url).trim_end_matches('/').to_owned()
    }

    /// Returns the address of its HTTP listener.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Opens a connection without an HTTP client.
    pub(crate) async fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address()).await.unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    pub(crate) async fn post(&self, server: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let url = self.at(server);
        let mut all = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        all.extend_from_slice(headers);
        let sent = send(Method::POST, &url, &all, body.to_owned());
        tokio::time::timeout(LONG, sent).await.unwrap().unwrap()
    }

    /// Opens a new client of `server`.
    pub(crate) async fn client(&self, server: &str) -> Client {
        self.client_with(server, "2025-11-25", json!({})).await
    }

    pub(crate) async fn client_with(
        &self,
        server: &str,
        version: &str,
        capabilities: Value,
    ) -> Client {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        }});
        let answer = self.post(server, &[], &body.to_string()).await;
        assert_eq!(answer.status, 200);
        let id = answer.header("mcp-session-id").to_owned();
        let greeting = answer.message().await;
        assert!(greeting["result"].is_object(), "{greeting}");
        let client = Client { server: server.to_owned(), id, greeting };
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.send(self, &done.to_string()).await.status, 202);
        client
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Client after `initialize`.
pub(crate) struct Client {
    pub(crate) server: String,
    pub(crate) id: String,
    pub(crate) greeting: Value,
}

impl Client {
    pub(crate) async fn send(&self, gateway: &Gateway, body: &str) -> Answer {
        gateway.post(&self.server, &[("mcp-session-id", &self.id)], body).await
    }

    /// Sends a request and returns its answer.
    pub(crate) async fn request(&self, gateway: &Gateway, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let answer = self.send(gateway, &body.to_string()).await;
        assert_eq!(answer.status, 200);
        tokio::time::timeout(LONG, answer.message()).await.unwrap()
    }

    pub(crate) async fn call(&self, gateway: &Gateway, tool: &str, arguments: Value) -> Value {
        self.request(gateway, "tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn text(&self, gateway: &Gateway, tool: &str) -> String {
        let answer = self.call(gateway, tool, json!({})).await;
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    pub(crate) async fn get(&self, gateway: &Gateway, last: Option<&str>) -> Answer {
        let url = gateway.at(&self.server);
        let mut headers = vec![("accept", "text/event-stream"), ("mcp-session-id", &*self.id)];
        headers.extend(last.map(|last| ("last-event-id", last)));
        tokio::time::timeout(LONG, send(Method::GET, &url, &headers, "")).await.unwrap().unwrap()
    }

    pub(crate) async fn delete(&self, gateway: &Gateway) -> u16 {
        let url = gateway.at(&self.server);
        let headers = [("mcp-session-id", &*self.id)];
        send(Method::DELETE, &url, &headers, "").await.unwrap().status.as_u16()
    }
}

/// File for the output of a gateway under test. `scripts/secrets` searches it after the tests.
pub(crate) fn capture() -> Option<std::fs::File> {
    let folder = PathBuf::from(std::env::var_os("STAYPUT_TEST_CAPTURES")?);
    std::fs::create_dir_all(&folder).unwrap();
    let (_, path) = tempfile::Builder::new()
        .prefix("gateway-")
        .suffix(".log")
        .tempfile_in(folder)
        .unwrap()
        .keep()
        .unwrap();
    Some(std::fs::File::create(path).unwrap())
}

/// Entry of the test server as a child process, which is found by `mark`.
pub(crate) fn stdio(mark: &str, more: &[&str]) -> Value {
    let mut args = vec!["stdio", "--era", "legacy", "--mark", mark];
    args.extend(more);
    json!({ "command": program("stayput-testserver"), "args": args })
}

/// Reads a connection to its end.
pub(crate) async fn read_to_end(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(3 * LONG, socket.read_to_end(&mut bytes)).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    read.unwrap_or_else(|_| panic!("the connection stays open after {text}")).unwrap();
    text
}

/// Returns a mark that no other test uses.
pub(crate) fn mark(name: &str) -> String {
    format!("gateway-{name}-{}", std::process::id())
}

/// Waits until no process has this mark on its command line.
pub(crate) async fn gone(mark: &str) {
    let gone = tokio::time::timeout(LONG, processes::wait_until_gone(mark)).await;
    assert!(gone.is_ok(), "still there: {:?}", processes::with_token(mark));
}
