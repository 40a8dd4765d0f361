//! Cost of an idle link.

use std::time::Duration;

use stayput_testkit::processes::own_open_files;
use stayput_upstream::{Links, PooledLink, Server};

use super::{
    load::Tool,
    ours::{self, Host},
};
use crate::{
    HEAP,
    report::{head, line},
    server::HttpServer,
};

/// Runs the measurements.
pub(super) async fn run() {
    head("Idle links, each after one call: heap of this process, and its descriptors");
    let stdio = ours::over_stdio(0);
    for (host, name) in [(Host::Warden, "of a warden"), (Host::Local, "of our own")] {
        let links = ours::links(host);
        let cost = hold(&links, &stdio, 200).await;
        show(&format!("stdio, children {name}"), &cost, (6 << 10, 3.0));
        ours::close(&links).await;
    }
    let server = HttpServer::start();
    let links = ours::links(Host::Local);
    let cost = hold(&links, &ours::over_http(&server.url), 1_000).await;
    show("HTTP", &cost, (1 << 10, 0.0));
    ours::close(&links).await;
}

/// Cost per link.
struct Cost {
    bytes: usize,
    descriptors: f64,
}

/// Opens this many links, and returns the cost of each. Shared data exists before the measurement.
async fn hold(links: &Links, server: &Server, count: usize) -> Cost {
    let first = used(links, server).await;
    let mut all = Vec::with_capacity(count);
    settle().await;
    let (heap, files) = (HEAP.allocated(), own_open_files());
    for _ in 0..count {
        all.push(used(links, server).await);
    }
    settle().await;
    let bytes = HEAP.allocated().saturating_sub(heap) / count;
    let descriptors = (own_open_files() as f64 - files as f64) / count as f64;
    drop((first, all));
    Cost { bytes, descriptors }
}

/// Opens a link and calls it once.
async fn used(links: &Links, server: &Server) -> PooledLink {
    let link = ours::open(links, server).await;
    ours::call(&link, Tool::Small).await;
    link
}

/// Waits until background work is finished.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

fn show(what: &str, cost: &Cost, (bytes, descriptors): (usize, f64)) {
    let target = format!("≤ {bytes}");
    let met = cost.bytes <= bytes;
    line(&format!("{what}: bytes"), &cost.bytes.to_string(), Some((&target, met)));
    let target = format!("≤ {descriptors}");
    // One connection more or less in the shared pool is no descriptor of a link.
    let met = cost.descriptors <= descriptors + 0.05;
    line(
        &format!("{what}: descriptors"),
        &format!("{:.2}", cost.descriptors),
        Some((&target, met)),
    );
}
