//! What idle sessions cost, and whether calls cost more when there are many.

use std::{io, time::Duration};

use super::{
    contenders::{self, Over},
    load::{self, Caller, Took},
    running::Running,
};
use crate::{
    report::{head, line},
    server::HttpServer,
};

/// Who calls, and who opens sessions: these wait for the disk most of the time, so there are more.
const CALLERS: usize = 10;
const OPENERS: usize = 100;
const MANY: usize = 10_000;
const MOST: usize = 50_000;
const PROCESSES: usize = 200;
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(800);

/// Runs the measurements.
pub(super) async fn run() {
    head("Idle sessions, each after one call, in one process");
    let server = HttpServer::start();
    match contenders::stayput(Over::Http(&server.url)).await {
        Ok(running) => over_http(&running).await.unwrap(),
        Err(why) => println!("  not measured: {why}"),
    }
    match contenders::stayput(Over::Stdio).await {
        Ok(running) => over_stdio(&running).await.unwrap(),
        Err(why) => println!("  not measured: {why}"),
    }
}

async fn over_http(running: &Running) -> io::Result<()> {
    let callers = load::callers(running, CALLERS).await?;
    let (callers, few) = cost(running, callers).await?;
    let before = running.memory();
    let callers = grow(running, callers, MANY).await?;
    let (callers, many) = cost(running, callers).await?;
    let callers = grow(running, callers, MOST).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / (MOST - CALLERS) as f64;
    let what = format!("HTTP: KiB of each of {MOST}");
    line(&what, &format!("{each:.2}"), Some(("≤ 4", each <= 4.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("HTTP: each has its own counter", &alone.to_string(), Some(("true", alone)));
    let ratio = many.cpu / few.cpu;
    line(
        &format!("CPU per call with {MANY} live sessions, of that with {CALLERS}"),
        &format!("{ratio:.2}"),
        // What is left is the cache of the processor, and what else runs on this machine.
        Some(("≤ 1.1", ratio <= 1.1)),
    );
    Ok(())
}

async fn over_stdio(running: &Running) -> io::Result<()> {
    let callers = load::callers(running, CALLERS).await?;
    let (callers, _) = cost(running, callers).await?;
    let before = running.memory();
    let callers = grow(running, callers, PROCESSES + CALLERS).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / PROCESSES as f64;
    let what = format!("stdio: KiB of each of {PROCESSES}, beside its process");
    line(&what, &format!("{each:.2}"), Some(("≤ 10", each <= 10.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("stdio: each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok(())
}

async fn cost(running: &Running, mut callers: Vec<Caller>) -> io::Result<(Vec<Caller>, Took)> {
    let mut best = Took::WORST;
    for _ in 0..ROUNDS {
        let took;
        (callers, took) = load::run(running, callers, TURN).await?;
        best = best.best(took);
    }
    Ok((callers, best))
}

/// Opens sessions until there are `count`, and gives each caller its part of them.
async fn grow(
    running: &Running,
    mut callers: Vec<Caller>,
    count: usize,
) -> io::Result<Vec<Caller>> {
    let there: usize = callers.iter().map(Caller::sessions).sum();
    let each = (count - there) / OPENERS;
    let tasks: Vec<_> = (0..OPENERS)
        .map(|_| {
            let target = running.target.clone();
            tokio::spawn(async move {
                let mut opener = Caller::connect(&target).await?;
                opener.grow(&target, each).await?;
                io::Result::Ok(opener)
            })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        callers[n % CALLERS].take_over(task.await??);
    }
    Ok(callers)
}

/// Lets what was begun come to its end.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}
