//! Link, compared with the client of the official SDK and with a hand-written minimal one.

mod bare;
mod first;
mod idle;
pub(crate) mod load;
pub(crate) mod ours;
pub(crate) mod sdk;

use std::sync::Arc;

use stayput_upstream::{Links, PooledLink};
use tokio::runtime::{Builder, Runtime};

use self::{
    bare::{Pipes, Posts},
    load::{Load, Took, Tool, measure},
    ours::Host,
    sdk::Sdk,
};
use crate::{
    report::{head, line},
    server::HttpServer,
};

const ROUNDS: usize = 9;

/// Runs the measurements.
pub(crate) fn run() {
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    compare(&one, "one thread");
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    compare(&many, "two worker threads");
    many.block_on(async {
        idle::run().await;
        first::run().await;
    });
}

/// Transport of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Stdio,
    Http,
}

fn compare(runtime: &Runtime, threads: &str) {
    for over in [Over::Stdio, Over::Http] {
        let name = if over == Over::Stdio { "stdio" } else { "HTTP" };
        head(&format!(
            "Calls over {name}, {threads}: client CPU per call of a link, for one of the SDK's client \
             (rmcp) and of a bare one"
        ));
        let three = runtime.block_on(Three::open(over));
        for (tool, at_once) in
            [(Tool::Small, 1), (Tool::Small, 32), (Tool::Large, 1), (Tool::Large, 32)]
        {
            let all = if tool == Tool::Small { 4_096 } else { 512 };
            let load = Load { tool, at_once, each: all / at_once };
            show(load, runtime.block_on(three.measure(load)));
        }
        runtime.block_on(three.close());
    }
}

/// The same server behind three clients.
struct Three {
    links: Links,
    link: Arc<PooledLink>,
    sdk: Arc<Sdk>,
    bare: Bare,
    _server: Option<HttpServer>,
}

enum Bare {
    Stdio(Arc<Pipes>),
    Http(Box<Posts>),
}

impl Bare {
    async fn run(&self, load: Load) {
        match self {
            Self::Stdio(pipes) => pipes.run(load).await,
            Self::Http(posts) => posts.run(load).await,
        }
    }
}

impl Three {
    async fn open(over: Over) -> Self {
        let links = ours::links(Host::Local);
        match over {
            Over::Stdio => {
                let link = ours::open(&links, &ours::over_stdio(0)).await;
                let pipes = Pipes::start();
                pipes.greet().await;
                let sdk = sdk::over_stdio().await;
                let bare = Bare::Stdio(Arc::new(pipes));
                Self { links, link: Arc::new(link), sdk: Arc::new(sdk), bare, _server: None }
            }
            Over::Http => {
                let server = HttpServer::start();
                let link = ours::open(&links, &ours::over_http(&server.url)).await;
                let bare = Bare::Http(Box::new(Posts::open(&server.url).await));
                let sdk = Arc::new(sdk::over_http(&server.url).await);
                Self { links, link: Arc::new(link), sdk, bare, _server: Some(server) }
            }
        }
    }

    /// Measures in turns, so that all see the same machine.
    async fn measure(&self, load: Load) -> [Took; 3] {
        let mut best = [Took::WORST; 3];
        for _ in 0..ROUNDS {
            let ((), ours) = measure(load, ours::run(&self.link, load)).await;
            let ((), sdk) = measure(load, sdk::run(&self.sdk, load)).await;
            let ((), bare) = measure(load, self.bare.run(load)).await;
            for (best, took) in best.iter_mut().zip([ours, sdk, bare]) {
                *best = best.best(took);
            }
        }
        best
    }

    async fn close(self) {
        drop(self.link);
        ours::close(&self.links).await;
        if let Ok(sdk) = Arc::try_unwrap(self.sdk) {
            let _ = sdk.cancel().await;
        }
    }
}

fn show(load: Load, [ours, sdk, bare]: [Took; 3]) {
    let many = if load.at_once == 1 { "one at a time" } else { "32 at once" };
    let what =
        format!("{} results, {many}", if load.tool == Tool::Small { "small" } else { "100 kB" });
    let cpu = |took: Took| format!("{:.1}", took.cpu);
    line(
        &format!("{what}: µs of link, rmcp, bare"),
        &format!("{} {} {}", cpu(ours), cpu(sdk), cpu(bare)),
        None,
    );
    let rate = |took: Took| format!("{:.0}", took.rate);
    line(
        "  calls/s of link, rmcp, bare",
        &format!("{} {} {}", rate(ours), rate(sdk), rate(bare)),
        None,
    );
    for (beside, other, most) in [("rmcp", sdk, 0.5), ("bare client", bare, 1.3)] {
        let ratio = ours.cpu / other.cpu;
        let target = format!("≤ {most}");
        line(
            &format!("  CPU for one of {beside}"),
            &format!("{ratio:.2}"),
            Some((&target, ratio <= most)),
        );
    }
}
