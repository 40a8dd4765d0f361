//! Test server over HTTP as a child of the test.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use http::Method;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::client;

/// Running `stayput-testserver http` or `sse`. Dropping it kills its process group; it also ends when its test is
/// killed.
#[derive(Debug)]
pub struct TestServer {
    program: &'static str,
    options: Vec<String>,
    url: String,
    child: Option<Child>,
}

impl TestServer {
    /// Starts a Streamable HTTP server with these options of the program.
    pub async fn http(options: &[&str]) -> Self {
        Self::start("stayput-testserver", &[&["http"], options].concat()).await
    }

    /// Starts an HTTP+SSE server of 2024-11-05 with these options of the program.
    pub async fn sse(options: &[&str]) -> Self {
        Self::start("stayput-testserver", &[&["sse"], options].concat()).await
    }

    /// Starts the server of the conformance suite, which has neither statistics nor scripts.
    #[cfg(feature = "conformance")]
    pub async fn conformance() -> Self {
        Self::start("stayput-conformance-server", &[]).await
    }

    async fn start(program: &'static str, options: &[&str]) -> Self {
        let options = options.iter().map(ToString::to_string).collect();
        let mut server = Self { program, options, url: String::new(), child: None };
        server.run(0).await;
        server
    }

    async fn run(&mut self, port: u16) {
        let mut command = Command::new(crate::program(self.program));
        command.args(&self.options).args(["--exit-with-stdin", "--port", &port.to_string()]);
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        self.child = Some(child);
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        self.url = line.await.unwrap().unwrap().trim_end().to_owned();
        assert!(self.url.starts_with("http://"), "{command:?} did not come up");
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok()).unwrap()
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Returns its counters since its start; see `GET /stats`.
    pub async fn stats(&self) -> Value {
        let url = format!("http://127.0.0.1:{}/stats", self.port());
        client::send(Method::GET, &url, &[], "").await.unwrap().json().await
    }

    /// Returns one of the counters of [`TestServer::stats`], by its name or by a path such as `tools/count`.
    pub async fn counted(&self, name: &str) -> u64 {
        let stats = self.stats().await;
        let found = match name.split_once('/') {
            Some((group, name)) if !stats[group].is_null() => &stats[group][name],
            _ if !stats[name].is_null() => &stats[name],
            _ => &stats["methods"][name],
        };
        found.as_u64().unwrap_or(0)
    }

    /// Sets the faults from now on; an empty list removes them.
    pub async fn script(&self, script: &Value) {
        let url = format!("http://127.0.0.1:{}/script", self.port());
        let answer = client::send(Method::POST, &url, &[], script.to_string()).await.unwrap();
        let status = answer.status;
        let said = answer.bytes().await.unwrap();
        assert!(status.is_success(), "{}", String::from_utf8_lossy(&said));
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal_group(&child, Signal::KILL);
            let _ = child.wait();
        }
    }

    /// Kills it, if it still runs, and starts it again on the same port without its state.
    pub async fn restart(&mut self) {
        let port = self.port();
        self.kill();
        self.run(port).await;
    }

    /// Freezes it until [`TestServer::wake`]: connections stay open, but get no answer.
    pub fn freeze(&self) {
        signal_group(self.child.as_ref().unwrap(), Signal::STOP);
    }

    /// Resumes it after [`TestServer::freeze`].
    pub fn wake(&self) {
        signal_group(self.child.as_ref().unwrap(), Signal::CONT);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal_group(child: &Child, signal: Signal) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = group.map(|group| kill_process_group(group, signal));
}
