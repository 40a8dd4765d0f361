//! What the tests of links share: links on real processes, and words for what is done with them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of it, and a test stops at the first surprise"
)]

pub(crate) mod keeping;
pub(crate) mod relay;
pub(crate) mod remote;

use std::{sync::Arc, time::Duration};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_testkit::program;
use stayput_upstream::{
    Answer, Asking, CallError, CallOptions, EraChoice, Folders, Held, Hello, Limits, Link,
    LinkSettings, Links, OpenError, Options, Place, Server, Stdio, Transport, process::Processes,
};
use tokio::runtime::Handle;

/// Long enough for everything on a busy machine; nothing that goes well waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Links on child processes of this test.
pub(crate) fn links() -> Links {
    links_with(Limits::default())
}

pub(crate) fn links_with(limits: Limits) -> Links {
    let processes = Processes::local(Handle::current());
    let folders = Folders::temporary().unwrap();
    let settings = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
    Links::new(settings, Handle::current())
}

/// A new session of `owner`.
pub(crate) fn place_of(owner: &str) -> Place {
    let id = SessionId::generate(Timestamp::from_millis(1_000));
    Place::new(Owner::verified("test", owner).unwrap(), id)
}

/// A new session.
pub(crate) fn place() -> Place {
    place_of("ann")
}

pub(crate) fn stdio(args: &[&str]) -> Stdio {
    let mut all = vec!["stdio"];
    all.extend(args);
    Stdio::new(program("stayput-testserver").to_str().unwrap()).args(all)
}

/// The test server as a legacy child process.
pub(crate) fn legacy(args: &[&str]) -> Server {
    server(stdio(args), EraChoice::Legacy)
}

pub(crate) fn server(transport: impl Into<Transport>, era: EraChoice) -> Server {
    server_with(transport, Options { era, ..Options::default() })
}

pub(crate) fn server_with(transport: impl Into<Transport>, options: Options) -> Server {
    Server::with("test", transport, options).unwrap()
}

pub(crate) async fn open(links: &Links, server: &Server, place: &Place) -> Held {
    try_open(links, server, place).await.unwrap()
}

pub(crate) async fn try_open(
    links: &Links,
    server: &Server,
    place: &Place,
) -> Result<Held, Arc<OpenError>> {
    let asking = Asking { hello: Hello::named("test", "1"), ..Asking::default() };
    tokio::time::timeout(LONG, links.open(server, place, &asking)).await.unwrap()
}

/// The parameters of a call of a tool.
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

/// The text that a tool gave.
pub(crate) async fn call(link: &Link, tool: &str, arguments: &str) -> String {
    text(&try_call(link, tool, arguments).await.unwrap())
}

/// The first text of a result.
pub(crate) fn text(answer: &Answer) -> String {
    let result = answer.result().unwrap_or_else(|| panic!("{:?}", answer.error()));
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Waits for something to become true.
pub(crate) async fn until(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen in 20 seconds: {what}");
}

/// Nothing is left after this.
pub(crate) async fn close(links: &Links) {
    let closed = links.close(LONG).await;
    assert_eq!(closed.left, 0);
    assert_eq!(links.used().links, 0);
}
