//! Peers as servers, and what runs of them.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stayput_testkit::{
    peers::Peer,
    processes::{descendants, is_alive, with_token},
};
use stayput_upstream::{
    Asking, CallOptions, Declares, EraChoice, Folders, Hello, Incoming, Isolation, Link, LinkOwner,
    LinkSettings, Links, Options, PooledLink, Server, Stdio, Transport,
    process::{Processes, WardenCommand},
};
use tokio::{runtime::Handle, time::timeout};

use crate::world::LONG;

/// Who starts the children.
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
        Links::new(LinkSettings::new(processes, Folders::temporary().unwrap()), runtime)
    }
}

/// A word that only the processes of one test have in their environment. Dropped, it kills what has
/// it: a test that fails leaves nothing behind either.
#[derive(Debug)]
pub(crate) struct Token(String);

static TOKENS: AtomicU32 = AtomicU32::new(0);

impl Token {
    pub(crate) fn new() -> Self {
        let count = TOKENS.fetch_add(1, Ordering::Relaxed);
        Self(format!("peer-{}-{count}-of-a-test", std::process::id()))
    }

    /// The word that another process made.
    pub(crate) fn of(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// A peer as a child process that has this word.
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

    /// What has the word and all that descends from it: some take it out of their environment.
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

/// Stops a process where it is. It hears nothing any more, and does not go by itself.
pub(crate) fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // It may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

/// The arguments of a process, in one line.
pub(crate) fn arguments(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Those of them that run.
pub(crate) fn alive(pids: &[u32]) -> Vec<(u32, String)> {
    let alive = pids.iter().filter(|pid| is_alive(**pid));
    alive.map(|pid| (*pid, arguments(*pid))).collect()
}

/// A server of which each session has its own link.
pub(crate) fn kept(name: &str, transport: impl Into<Transport>, era: EraChoice) -> Server {
    let isolation = Some(Isolation::PerSession);
    Server::with(name, transport, Options { era, isolation, ..Options::default() }).unwrap()
}

/// Opens a link for a client that can be asked everything.
pub(crate) async fn open(links: &Links, server: &Server, place: &LinkOwner) -> PooledLink {
    let capabilities = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#;
    let hello = Hello::new(r#"{"name":"test","version":"1"}"#, capabilities).unwrap();
    let asking = Asking { hello, ..Asking::default() };
    let opened = timeout(LONG, links.open(server, place, &asking)).await.unwrap();
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// What the client of [`open`] can be asked.
pub(crate) fn everything() -> Declares {
    Declares { roots: true, sampling: true, elicitation: true }
}

/// Asks for something that has to go well.
pub(crate) async fn ask(link: &Link, method: &str, params: &Value) -> Value {
    let call = link.call(method, Some(&params.to_string()), CallOptions::default()).await;
    let answer = timeout(LONG, call.unwrap().answer()).await.unwrap().unwrap();
    let result = answer.result().unwrap_or_else(|| panic!("{method}: {:?}", answer.error()));
    serde_json::from_str(result).unwrap()
}

/// All text of what a tool gave.
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

/// What happened on the way to an answer.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// The text of the answer.
    pub(crate) text: String,
    /// What the server told.
    pub(crate) told: Vec<Value>,
    /// What the server asked.
    pub(crate) asked: Vec<String>,
}

/// Calls a tool, answers what it asks with `reply`, and keeps what it tells.
pub(crate) async fn talk(link: &Link, params: &Value, reply: &Value) -> Talk {
    let options = CallOptions { declares: everything(), ..CallOptions::default() };
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
