//! Peers as servers, and their processes.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stayput_process::{Processes, WardenCommand};
use stayput_testkit::{
    peers::Peer,
    processes::{descendants, is_alive, with_token},
};
use stayput_upstream::{
    CallOptions, ClientCapabilities, ClientInfo, EraChoice, Incoming, Isolation, Link,
    LinkOpenOptions, LinkOwner, LinkSettings, Links, Options, PooledLink, Server, SessionDirs,
    Stdio, TransportConfig,
};
use tokio::{runtime::Handle, time::timeout};

use crate::support::LONG;

/// Parent of the child processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Local,
    Wardened,
}

impl Way {
    pub(crate) fn links(self) -> Links {
        let runtime = Handle::current();
        let processes = match self {
            Self::Local => Processes::local(runtime.clone()),
            Self::Wardened => {
                let me = std::env::current_exe().unwrap();
                let args = ["--exact", "the_warden", "--nocapture", "--test-threads=1"];
                Processes::wardened(WardenCommand::new(me, args), runtime.clone())
            }
        };
        Links::new(LinkSettings::new(processes, SessionDirs::temporary().unwrap()), runtime)
    }
}

/// Token in the environment of the processes of one test. Dropping it kills these processes, so that a failed test
/// leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Token(String);

static TOKENS: AtomicU32 = AtomicU32::new(0);

impl Token {
    pub(crate) fn new() -> Self {
        let count = TOKENS.fetch_add(1, Ordering::Relaxed);
        Self(format!("peer-{}-{count}-of-a-test", std::process::id()))
    }

    /// Wraps the token of another process.
    pub(crate) fn of(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// Configures a peer as a child process with this token.
    pub(crate) fn stdio(&self, peer: &Peer, args: &[&str]) -> Stdio {
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let mut stdio = Stdio::new(text(&peer.program))
            .args(peer.args.iter().map(|arg| text(arg)))
            .args(args.iter().copied())
            .env("STAYPUT_TEST_TOKEN", &self.0);
        for (name, value) in &peer.env {
            stdio = stdio.env(*name, value.to_str().unwrap());
        }
        stdio
    }

    /// Returns the processes with the token and all their descendants, because some remove it from their environment.
    pub(crate) fn tree(&self) -> Vec<u32> {
        let mut all = with_token(&self.0);
        let below: Vec<u32> = all.iter().flat_map(|pid| descendants(*pid)).collect();
        all.extend(below);
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        for pid in self.tree() {
            kill_hard(pid);
        }
    }
}

pub(crate) fn kill_hard(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Stops a process with SIGSTOP, so that it does not react and does not exit by itself.
pub(crate) fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // The process may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

/// Returns the arguments of a process as one line.
pub(crate) fn arguments(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Filters the processes that are running.
pub(crate) fn alive(pids: &[u32]) -> Vec<(u32, String)> {
    let alive = pids.iter().filter(|pid| is_alive(**pid));
    alive.map(|pid| (*pid, arguments(*pid))).collect()
}

/// Server with a link for each session.
pub(crate) fn kept(name: &str, transport: impl Into<TransportConfig>, era: EraChoice) -> Server {
    let isolation = Some(Isolation::PerSession);
    Server::with(name, transport, Options { era, isolation, ..Options::default() }).unwrap()
}

/// Opens a link for a client with all capabilities.
pub(crate) async fn open(links: &Links, server: &Server, place: &LinkOwner) -> PooledLink {
    let capabilities = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#;
    let client_info = ClientInfo::new(r#"{"name":"test","version":"1"}"#, capabilities).unwrap();
    let asking = LinkOpenOptions { client_info, ..LinkOpenOptions::default() };
    let opened = timeout(LONG, links.open(server, place, &asking)).await.unwrap();
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Capabilities of the client of [`open`].
pub(crate) fn everything() -> ClientCapabilities {
    ClientCapabilities { roots: true, sampling: true, elicitation: true }
}

/// Sends a request that has to succeed.
pub(crate) async fn ask(link: &Link, method: &str, params: &Value) -> Value {
    let call = link.call(method, Some(&params.to_string()), CallOptions::default()).await;
    let answer = timeout(LONG, call.unwrap().answer()).await.unwrap().unwrap();
    let result = answer.result().unwrap_or_else(|| panic!("{method}: {:?}", answer.error()));
    serde_json::from_str(result).unwrap()
}

/// Calls a tool and returns all its text.
pub(crate) async fn tool(link: &Link, name: &str, arguments: &Value) -> String {
    let result = ask(link, "tools/call", &json!({ "name": name, "arguments": arguments })).await;
    assert_ne!(result["isError"], true, "{name}: {result}");
    texts(&result)
}

fn texts(result: &Value) -> String {
    let content = result["content"].as_array().unwrap_or_else(|| panic!("{result}"));
    let texts: Vec<&str> = content.iter().filter_map(|one| one["text"].as_str()).collect();
    texts.join("\n")
}

/// Messages before an answer.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// Text of the answer.
    pub(crate) text: String,
    /// Notifications of the server.
    pub(crate) told: Vec<Value>,
    /// Requests of the server.
    pub(crate) asked: Vec<String>,
}

/// Calls a tool, answers its requests with `reply`, and records its notifications.
pub(crate) async fn talk(link: &Link, params: &Value, reply: &Value) -> Talk {
    let options = CallOptions { capabilities: everything(), ..CallOptions::default() };
    let params = params.to_string();
    let mut call = link.call("tools/call", Some(&params), options).await.unwrap();
    let mut talk = Talk::default();
    loop {
        match timeout(LONG, call.next()).await.unwrap().unwrap() {
            Incoming::Notification(text) => talk.told.push(serde_json::from_slice(&text).unwrap()),
            Incoming::Request(asked) => {
                talk.asked.push(asked.method().to_owned());
                asked.reply(&reply.to_string());
            }
            Incoming::Answer(answer) => {
                let answer = answer.unwrap();
                let result = answer.result().unwrap_or_else(|| panic!("{:?}", answer.error()));
                talk.text = texts(&serde_json::from_str(result).unwrap());
                return talk;
            }
            other => panic!("{other:?}"),
        }
    }
}
