//! `/admin/status`: the process itself.

use http::Response;
use serde::Serialize;
use stayput_core::{Clock as _, SystemClock};

use super::json;
use crate::{house::House, moment, reply::Reply};

#[derive(Serialize)]
struct Status {
    version: &'static str,
    pid: u32,
    started: String,
    uptime_seconds: u64,
    /// The same as `/readyz`.
    ready: bool,
    /// Why it is not.
    problem: Option<&'static str>,
    /// Sessions that this process holds.
    sessions: usize,
    connections: usize,
    servers: usize,
    links: usize,
    processes: usize,
    /// Those in line for a place.
    waiting: usize,
    in_flight: usize,
}

pub(super) fn show(house: &House) -> Response<Reply> {
    let (used, started) = (house.links.used(), house.health.since());
    let problem = house.health.problem();
    json(&Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        started: moment::text(started),
        uptime_seconds: SystemClock.now().since(started).as_secs(),
        ready: problem.is_none(),
        problem,
        sessions: house.sessions.count(),
        connections: house.connections.len(),
        servers: house.servers.len(),
        links: used.links,
        processes: used.processes,
        waiting: used.waiting,
        in_flight: house.links.status().iter().map(|link| link.in_flight).sum(),
    })
}
