//! `/admin/status`: state of the process.

use http::Response;
use serde::Serialize;
use stayput_core::{Clock as _, Holder, SystemClock};

use super::json;
use crate::{cluster::Contact, reply::Reply, state::AppState};

#[derive(Serialize)]
struct Status {
    version: &'static str,
    pid: u32,
    /// Whether it is `stayput serve`, or the background process of `stayput stdio`.
    role: &'static str,
    /// URL of its HTTP listener.
    url: Option<String>,
    started: String,
    uptime_seconds: u64,
    /// Same as `/readyz`.
    ready: bool,
    /// Reason why it is not ready.
    problem: Option<&'static str>,
    /// Sessions that this process holds.
    sessions: usize,
    connections: usize,
    servers: usize,
    links: usize,
    processes: usize,
    /// Requests that wait for a free link or process.
    waiting: usize,
    in_flight: usize,
    /// Open pages of the dashboard, and the tasks that take samples for them.
    pages: usize,
    sampling_tasks: usize,
    /// Whether other gateways on the store can hold sessions.
    cluster: bool,
    /// Id of this process as a holder of sessions.
    holder: String,
    /// Other gateways of the cluster that live.
    replicas: Vec<Replica>,
}

/// Other gateway of the cluster.
#[derive(Serialize)]
struct Replica {
    holder: String,
    address: String,
    #[serde(flatten)]
    contact: Contact,
}

pub(super) fn show(app: &AppState) -> Response<Reply> {
    let (used, started) = (app.links.used(), app.health.since());
    let problem = app.health.problem();
    let (pages, sampling_tasks) = app.recent.samples.counts();
    let scheme = if app.rules.tls.is_some() { "https" } else { "http" };
    let url = app.health.address().map(|address| format!("{scheme}://{address}"));
    let replicas = app.cluster.iter().flat_map(|cluster| cluster.contacts());
    let replica = |(holder, contact): (Holder, Contact)| Replica {
        holder: holder.id.to_string(),
        address: holder.address,
        contact,
    };
    json(&Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        role: if url.is_some() { "serve" } else { "background" },
        url,
        started: started.to_rfc3339(),
        uptime_seconds: SystemClock.now().since(started).as_secs(),
        ready: problem.is_none(),
        problem,
        sessions: app.sessions.count(),
        connections: app.connections.len(),
        servers: app.servers.len(),
        links: used.links,
        processes: used.processes,
        waiting: used.waiting,
        in_flight: app.links.status().iter().map(|link| link.in_flight).sum(),
        pages,
        sampling_tasks,
        cluster: app.cluster.is_some(),
        holder: app.sessions.holder().id.to_string(),
        replicas: replicas.map(replica).collect(),
    })
}
