//! Cost of idle sessions.

use std::{io, time::Duration};

use super::{
    contenders::{self, Over},
    load::{self, Caller, OPENERS},
    running::Running,
};
use crate::{
    report::{head, line},
    server::HttpServer,
};

const CALLERS: usize = 5;
const FIRST: usize = 1_005;
const MOST: usize = 50_000;
const PROCESSES: usize = 200;

/// Runs the measurements.
pub(super) async fn run() {
    head("Idle sessions, each after one call, in one process");
    let server = HttpServer::start();
    let http = match contenders::stayput(Over::Http(&server.url)).await {
        Ok(running) => over_http(&running).await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    let stdio = match contenders::stayput(Over::Stdio).await {
        Ok(running) => over_stdio(&running).await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    for why in [http, stdio].into_iter().filter_map(Result::err) {
        println!("  not measured: {why}");
    }
}

async fn over_http(running: &Running) -> io::Result<()> {
    let callers = load::callers(running, CALLERS).await?;
    // Shared data exists before the measurement, including the space for the openers of sessions.
    let callers = load::grow(running, callers, FIRST).await?;
    settle().await;
    let before = running.memory();
    let callers = load::grow(running, callers, MOST).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / (MOST - FIRST) as f64;
    let what = format!("HTTP: KiB of each of {MOST}");
    line(&what, &format!("{each:.2}"), Some(("≤ 4", each <= 4.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("HTTP: each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok(())
}

async fn over_stdio(running: &Running) -> io::Result<()> {
    let callers = load::callers(running, CALLERS).await?;
    let callers = load::grow(running, callers, CALLERS + OPENERS).await?;
    settle().await;
    let before = running.memory();
    let callers = load::grow(running, callers, CALLERS + OPENERS + PROCESSES).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / PROCESSES as f64;
    let what = format!("stdio: KiB of each of {PROCESSES}, beside its process");
    line(&what, &format!("{each:.2}"), Some(("≤ 10", each <= 10.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("stdio: each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok(())
}

/// Waits until background work is finished.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}
