//! Built-in demo server as a program, alone and behind links.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use stayput_core::{Owner, SessionId, Timestamp};
use stayput_process::Processes;
use stayput_testkit::processes;
use stayput_upstream::{
    CallError, CallOptions, Http, LinkOpenOptions, LinkOwner, LinkSettings, Links, PooledLink,
    Server, SessionDirs,
};
use tokio::runtime::Handle;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stayput");

fn links() -> Links {
    let processes = Processes::local(Handle::current());
    Links::new(LinkSettings::new(processes, SessionDirs::temporary().unwrap()), Handle::current())
}

fn place() -> LinkOwner {
    LinkOwner::new(Owner::local(), SessionId::generate(Timestamp::from_millis(0)))
}

async fn call(link: &PooledLink, name: &str, arguments: &str) -> String {
    try_call(link, name, arguments).await.unwrap()
}

async fn try_call(link: &PooledLink, name: &str, arguments: &str) -> Result<String, CallError> {
    let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
    let call = link.call("tools/call", Some(&params), CallOptions::default()).await?;
    let answer = call.answer().await?;
    let result: Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    Ok(result["content"][0]["text"].as_str().unwrap().to_owned())
}

/// Demo server over HTTP. Dropping it kills the process.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start(address: &str, state: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["demo-server", "--http", address, "--state"]).arg(state);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim_end().to_owned() }
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn two_sessions_have_two_processes_and_two_notebooks() {
    let links = links();
    let notes = stayput_upstream::Stdio::new(PROGRAM).args(["demo-server"]);
    let notes = Server::new("notes", notes).unwrap();
    let (one, two) = (place(), place());
    let ann = links.open(&notes, &one, &LinkOpenOptions::default()).await.unwrap();
    let bob = links.open(&notes, &two, &LinkOpenOptions::default()).await.unwrap();
    call(&ann, "note_add", r#"{"text":"milk"}"#).await;
    assert_eq!(call(&ann, "note_list", "{}").await, "1. milk");
    assert_eq!(call(&bob, "note_list", "{}").await, "There are no notes.");
    assert_eq!(call(&ann, "count", "{}").await, "1");
    assert_eq!(call(&ann, "count", "{}").await, "2");
    assert_eq!(call(&bob, "count", "{}").await, "1");
    let mut pids = Vec::new();
    for link in [&ann, &bob] {
        let said = call(link, "whoami", "{}").await;
        pids.push(said.trim_start_matches("process ").parse::<u32>().unwrap());
    }
    assert_ne!(pids[0], pids[1]);
    drop((ann, bob));
    let _ = links.end(one.session).await;
    let _ = links.end(two.session).await;
    links.close(Duration::from_secs(20)).await;
    assert!(pids.iter().all(|pid| !processes::is_alive(*pid)), "{pids:?} are left");
}

/// A server that was killed and restarted continues with its stored state.
#[tokio::test]
async fn http_session_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let mut server = Running::start("127.0.0.1:0", &state);
    let links = links();
    let notes = Server::new("notes", Http::new(&server.url)).unwrap();
    let chat = place();
    let link = links.open(&notes, &chat, &LinkOpenOptions::default()).await.unwrap();
    assert_eq!(call(&link, "count", "{}").await, "1");
    let before = call(&link, "whoami", "{}").await;
    let address = server.address().to_owned();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let again = Running::start(&address, &state);
    assert_eq!(again.url, server.url);
    // A pooled connection to the old process may still exist. A read-only call can be repeated.
    let mut after = Err(String::new());
    for _ in 0..10 {
        after = try_call(&link, "whoami", "{}").await.map_err(|error| error.to_string());
        if after.is_ok() {
            break;
        }
    }
    assert_ne!(after.unwrap(), before);
    assert_eq!(call(&link, "count", "{}").await, "2");
    drop(link);
    let _ = links.end(chat.session).await;
    links.close(Duration::from_secs(20)).await;
    assert_eq!(
        std::fs::read_to_string(&state).unwrap(),
        "{}",
        "the session was deleted at its end"
    );
}

#[test]
fn wrong_command_line_is_reported_on_stderr_with_code_2() {
    for arguments in [&["serve", "--listen", "here"][..], &["nonsense"], &[]] {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("demo-server"), "{help}");
    let version = Command::new(PROGRAM).arg("--version").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("stayput "));
}

#[test]
fn demo_server_that_cannot_run_reports_the_reason() {
    let refused =
        Command::new(PROGRAM).args(["demo-server", "--http", "0.0.0.0:0"]).output().unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("on this machine only"), "{said}");
}
