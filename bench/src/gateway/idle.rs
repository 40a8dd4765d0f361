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
    let over = Over::Http(&server.url);
    let http = kib(contenders::stayput(over).await, over).await;
    show(&format!("HTTP: KiB of each of {MOST}"), &http, 4.0);
    let stdio = kib(contenders::stayput(Over::Stdio).await, Over::Stdio).await;
    show(&format!("stdio: KiB of each of {PROCESSES}, beside its process"), &stdio, 10.0);
    for (name, over, ours) in [("HTTP", over, http), ("stdio", Over::Stdio, stdio)] {
        let Some(other) = contenders::other(over).await else { continue };
        match (kib(other, over).await, ours) {
            (Ok(other), Ok(ours)) => {
                let ratio = ours / other;
                let what = format!("{name}: memory, of the other build's {other:.2} KiB");
                line(&what, &format!("{ratio:.3}"), Some(("≤ 1.0", ratio <= 1.0)));
            }
            (Err(why), _) | (_, Err(why)) => println!("  not measured: {why}"),
        }
    }
}

fn show(what: &str, each: &Result<f64, String>, most: f64) {
    match each {
        Ok(each) => {
            line(what, &format!("{each:.2}"), Some((&format!("≤ {most:.0}"), *each <= most)));
        }
        Err(why) => println!("  not measured: {why}"),
    }
}

/// Returns the KiB of each idle session.
async fn kib(running: Result<Running, String>, over: Over<'_>) -> Result<f64, String> {
    let running = running?;
    let grown = match over {
        Over::Http(_) => grow(&running, FIRST, MOST).await,
        Over::Stdio => grow(&running, CALLERS + OPENERS, CALLERS + OPENERS + PROCESSES).await,
    };
    grown.map_err(|error| error.to_string())
}

/// Opens `first` sessions, so that shared data exists before the measurement, including the space for the openers of
/// sessions; then opens them up to `most`, and returns the KiB of each of the later ones.
async fn grow(running: &Running, first: usize, most: usize) -> io::Result<f64> {
    let callers = load::callers(running, CALLERS).await?;
    let callers = load::grow(running, callers, first).await?;
    settle().await;
    let before = running.memory();
    let callers = load::grow(running, callers, most).await?;
    settle().await;
    let alone = callers.iter().all(Caller::is_alone);
    line("each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok((running.memory() - before) as f64 / 1024.0 / (most - first) as f64)
}

/// Waits until background work is finished.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}
