//! Helpers of the link tests: links on real processes, and operations on them.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of it, and a test stops at the first surprise"
)]

pub(crate) mod attachment_sinks;
pub(crate) mod remote;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_process::Grace;
use stayput_process::Processes;
pub(crate) use stayput_testkit::until;
use stayput_testkit::{processes, program};
use stayput_upstream::{
    Answer, CallError, CallOptions, ClientInfo, EraChoice, Limits, Link, LinkOpenError,
    LinkOpenOptions, LinkOwner, LinkSettings, Links, Options, PooledLink, Server, SessionDirs,
    Stdio, TransportConfig,
};
use tokio::runtime::Handle;

/// Timeout for everything, even on a busy machine. A passing test never waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Creates a pool with child processes of this test.
pub(crate) fn links() -> Links {
    links_with(Limits::default())
}

pub(crate) fn links_with(limits: Limits) -> Links {
    let processes = Processes::local(Handle::current());
    let folders = SessionDirs::temporary().unwrap();
    let settings = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
    Links::new(settings, Handle::current())
}

/// Returns a new session of `owner`.
pub(crate) fn place_of(owner: &str) -> LinkOwner {
    let id = SessionId::generate(Timestamp::from_millis(1_000));
    LinkOwner::new(Owner::verified("test", owner).unwrap(), id)
}

/// Returns a new session.
pub(crate) fn place() -> LinkOwner {
    place_of("ann")
}

pub(crate) fn stdio(args: &[&str]) -> Stdio {
    let mut all = vec!["stdio"];
    all.extend(args);
    Stdio::new(program("stayput-testserver").to_str().unwrap()).args(all)
}

/// Test server as a legacy child process.
pub(crate) fn legacy(args: &[&str]) -> Server {
    server(stdio(args), EraChoice::Legacy)
}

pub(crate) fn server(transport: impl Into<TransportConfig>, era: EraChoice) -> Server {
    server_with(transport, Options { era, ..Options::default() })
}

pub(crate) fn server_with(transport: impl Into<TransportConfig>, options: Options) -> Server {
    Server::with("test", transport, options).unwrap()
}

pub(crate) async fn open(links: &Links, server: &Server, place: &LinkOwner) -> PooledLink {
    try_open(links, server, place).await.unwrap()
}

pub(crate) async fn try_open(
    links: &Links,
    server: &Server,
    place: &LinkOwner,
) -> Result<PooledLink, Arc<LinkOpenError>> {
    let asking = LinkOpenOptions {
        client_info: ClientInfo::named("test", "1"),
        ..LinkOpenOptions::default()
    };
    tokio::time::timeout(LONG, links.open(server, place, &asking)).await.unwrap()
}

/// Returns the parameters of a tool call.
pub(crate) fn params(tool: &str, arguments: &str) -> String {
    format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#)
}

pub(crate) async fn try_call(
    link: &Link,
    tool: &str,
    arguments: &str,
) -> Result<Answer, CallError> {
    let params = params(tool, arguments);
    let call = link.call("tools/call", Some(&params), CallOptions::default()).await?;
    tokio::time::timeout(LONG, call.answer()).await.unwrap()
}

/// Calls a tool and returns its text.
pub(crate) async fn call(link: &Link, tool: &str, arguments: &str) -> String {
    text(&try_call(link, tool, arguments).await.unwrap())
}

/// Returns the first text of a result.
pub(crate) fn text(answer: &Answer) -> String {
    let result = answer.result().unwrap_or_else(|| panic!("{:?}", answer.error()));
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Closes the pool and checks that nothing is left.
pub(crate) async fn close(links: &Links) {
    let closed = links.close(LONG).await;
    assert_eq!(closed.left, 0);
    assert_eq!(links.used().links, 0);
}

/// Returns a token that no other test has. In the environment of a child, it identifies the child and all its
/// descendants.
pub(crate) fn token() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("token-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the processes with this token in their environment.
pub(crate) fn alive(token: &str) -> Vec<u32> {
    processes::with_token(token)
}

/// Waits until no process has this token.
pub(crate) async fn none_alive(token: &str) {
    until("all processes are gone", || alive(token).is_empty()).await;
}

/// Kills all processes with this token with SIGKILL.
pub(crate) fn kill(token: &str) {
    for pid in alive(token) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Options of a legacy server with a short grace period.
pub(crate) fn quick() -> Options {
    let pause = Duration::from_millis(200);
    let grace = Grace { quit: pause, term: pause };
    Options { era: EraChoice::Legacy, grace, ..Options::default() }
}

/// Legacy server that is a shell script.
pub(crate) fn shell(script: &str, token: &str) -> Server {
    server_with(Stdio::new("sh").args(["-c", script]).env("TOKEN", token), quick())
}

/// Shell code that answers `initialize`. `take` reads a message into `$line` and its id into `$id`; `answer` takes an
/// id and a result.
pub(crate) const SHAKE: &str = r#"
take() { read -r line; id=${line#*\"id\":}; id=${id%%[!0-9]*}; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
take
answer $id '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
read -r line
"#;

/// Legacy server that answers `initialize` and then runs a script.
pub(crate) fn scripted(script: &str, token: &str) -> Server {
    shell(&format!("{SHAKE}{script}"), token)
}

/// Returns the counters of the test server.
pub(crate) async fn stats(link: &Link) -> serde_json::Value {
    serde_json::from_str(&call(link, "stats", "{}").await).unwrap()
}
