//! First call on a spare.

use std::time::{Duration, Instant};

use stayput_upstream::Links;

use super::{
    bare::Pipes,
    load::Tool,
    ours::{self, Host},
};
use crate::report::{head, line, middle};

const ROUNDS: usize = 41;

/// Runs the measurements.
pub(super) async fn run() {
    head(
        "First call on a warm spare, beside handshake and call on a process that runs: ms, medians",
    );
    let links = ours::links(Host::Local);
    let server = ours::over_stdio(1);
    links.warm(&server);
    let (mut spare, mut running) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let pipes = Pipes::start();
        ready(&links, round).await;
        spare.push(
            timed(async {
                let link = ours::open(&links, &server).await;
                ours::call(&link, Tool::Small).await;
            })
            .await,
        );
        // The next spare is being started now, which must not disturb the other process.
        ready(&links, round + 1).await;
        running.push(
            timed(async {
                pipes.greet().await;
                pipes.call(Tool::Small).await;
            })
            .await,
        );
    }
    ours::close(&links).await;
    let (spare, running) = (middle(spare), middle(running));
    line("open and call on a warm spare", &format!("{spare:.2}"), None);
    line(
        "handshake and call on a process that runs, by a bare client",
        &format!("{running:.2}"),
        None,
    );
    let more = spare - running;
    line("difference", &format!("{more:.2}"), Some(("≤ 2", more <= 2.0)));
}

/// Waits until this many processes were started, and a moment until they wait for their first message.
async fn ready(links: &Links, processes: usize) {
    for _ in 0..2_000 {
        if links.used().processes >= processes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn timed(what: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    what.await;
    start.elapsed().as_secs_f64() * 1e3
}
