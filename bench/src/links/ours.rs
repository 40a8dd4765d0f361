//! Link client.

use std::{sync::Arc, time::Duration};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_process::{Processes, WardenCommand};
use stayput_upstream::{
    CallOptions, EraChoice, Http, Isolation, Limits, Link, LinkOpenOptions, LinkOwner,
    LinkSettings, Links, Options, PerOwner, PooledLink, Server, SessionDirs, SpareOptions, Stdio,
    TransportConfig,
};
use tokio::runtime::Handle;

use super::load::{Load, Tool, at_once};
use crate::server::{counter, program};

/// Timeout for everything, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Parent of the child processes.
#[derive(Clone, Copy)]
pub(crate) enum Host {
    Local,
    Warden,
}

/// Creates a pool without limits that a benchmark could reach.
pub(crate) fn links(host: Host) -> Links {
    let runtime = Handle::current();
    let processes = match host {
        Host::Local => Processes::local(runtime.clone()),
        Host::Warden => {
            Processes::wardened(WardenCommand::new(program(), ["warden"]), runtime.clone())
        }
    };
    let most = 100_000;
    let per_owner = PerOwner { processes: most, links: most };
    let limits = Limits { processes: most, links: most, per_owner, ..Limits::default() };
    let settings = LinkSettings::new(processes, SessionDirs::temporary().unwrap());
    Links::new(LinkSettings { limits, ..settings }, runtime)
}

/// Ends all links.
pub(crate) async fn close(links: &Links) {
    assert_eq!(links.close(LONG).await.left, 0, "links were left");
}

/// Counter as a child process.
pub(crate) fn over_stdio(warm: usize) -> Server {
    let warm = SpareOptions { count: warm, ..SpareOptions::default() };
    server(Stdio::new(counter()), warm)
}

/// Counter at `url`.
pub(crate) fn over_http(url: &str) -> Server {
    server(Http::new(url), SpareOptions::default())
}

fn server(transport: impl Into<TransportConfig>, warm: SpareOptions) -> Server {
    let isolation = Some(Isolation::PerSession);
    let options = Options { era: EraChoice::Legacy, isolation, warm, ..Options::default() };
    Server::with("bench", transport, options).unwrap()
}

/// Returns a new session.
pub(crate) fn place() -> LinkOwner {
    let owner = Owner::verified("https://id.example.com", "ann").unwrap();
    LinkOwner::new(owner, SessionId::generate(Timestamp::from_millis(1_000)))
}

pub(crate) async fn open(links: &Links, server: &Server) -> PooledLink {
    links.open(server, &place(), &LinkOpenOptions::default()).await.unwrap()
}

/// Makes one call. The caller owns the result.
pub(super) async fn call(link: &Link, tool: Tool) {
    let params = tool.params();
    let call = link.call("tools/call", Some(&params), CallOptions::default()).await.unwrap();
    let answer = call.answer().await.unwrap();
    assert!(tool.fits(answer.result().unwrap().len()), "not the answer of this tool");
}

pub(crate) async fn run(link: &Arc<PooledLink>, load: Load) {
    at_once(load.at_once, || {
        let link = link.clone();
        async move {
            for _ in 0..load.each {
                call(&link, load.tool).await;
            }
        }
    })
    .await;
}
