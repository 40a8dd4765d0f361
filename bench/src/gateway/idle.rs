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
const CALLERS: usize = 5;
const OPENERS: usize = 100;
/// Those that are few: more than one for each caller, so that as with many no call is of the session before.
const FEW: usize = 2 * CALLERS;
const FIRST: usize = 1_005;
const MANY: usize = 10_000;
const MOST: usize = 50_000;
const PROCESSES: usize = 200;
/// So many that times of use are written in between, of each session.
const ROUNDS: usize = 64;
const TURN: Duration = Duration::from_millis(500);

/// Runs the measurements.
pub(super) async fn run() {
    head("Idle sessions, each after one call, in one process");
    let server = HttpServer::start();
    let over = Over::Http(&server.url);
    let mut grown = None;
    match (contenders::stayput(over).await, contenders::stayput(over).await) {
        (Ok(running), Ok(few)) => {
            let ours = over_http(&running, &few).await.unwrap();
            drop((running, few));
            grown = Some(ours);
        }
        (Err(why), _) | (_, Err(why)) => println!("  not measured: {why}"),
    }
    match contenders::stayput(Over::Stdio).await {
        Ok(running) => over_stdio(&running).await.unwrap(),
        Err(why) => println!("  not measured: {why}"),
    }
    if let Some(ours) = grown {
        growth(ours, through_nginx(&server.url).await);
    }
}

/// What a call costs with many sessions, of what it costs with few. The client, the counter and the kernel have
/// as many sessions, and take more of the caches that all share: what that alone costs whoever stands in between
/// shows on nginx, which has no sessions.
fn growth(ours: f64, nginx: Result<f64, String>) {
    head(&format!("CPU per call with {MANY} live sessions, of that with {FEW}"));
    line("stayput", &format!("{ours:.2}"), Some(("≤ 1.1", ours <= 1.1)));
    match nginx {
        Ok(nginx) => line("nginx, which has no sessions", &format!("{nginx:.2}"), None),
        Err(why) => println!("  not measured: nginx: {why}"),
    }
}

async fn through_nginx(url: &str) -> Result<f64, String> {
    let nginx = contenders::nginx(url).await?;
    let measured = async {
        let callers = load::callers(&nginx, CALLERS).await?;
        let callers = grow(&nginx, callers, MANY).await?;
        compare(&nginx, callers, &nginx).await
    };
    measured.await.map(|(_, ratio)| ratio).map_err(|error| error.to_string())
}

/// `few` is one more gateway, that never has more than a few sessions. Gives what a call costs with many, of
/// what it costs with few.
async fn over_http(running: &Running, few: &Running) -> io::Result<f64> {
    let callers = load::callers(running, CALLERS).await?;
    // What all share is there before, the room for whoever opens sessions among it.
    let callers = grow(running, callers, FIRST).await?;
    settle().await;
    let before = running.memory();
    let callers = grow(running, callers, MANY).await?;
    let (callers, ratio) = compare(running, callers, few).await?;
    let callers = grow(running, callers, MOST).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / (MOST - FIRST) as f64;
    let what = format!("HTTP: KiB of each of {MOST}");
    line(&what, &format!("{each:.2}"), Some(("≤ 4", each <= 4.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("HTTP: each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok(ratio)
}

async fn over_stdio(running: &Running) -> io::Result<()> {
    let callers = load::callers(running, CALLERS).await?;
    let callers = grow(running, callers, CALLERS + OPENERS).await?;
    settle().await;
    let before = running.memory();
    let callers = grow(running, callers, CALLERS + OPENERS + PROCESSES).await?;
    settle().await;
    let each = (running.memory() - before) as f64 / 1024.0 / PROCESSES as f64;
    let what = format!("stdio: KiB of each of {PROCESSES}, beside its process");
    line(&what, &format!("{each:.2}"), Some(("≤ 10", each <= 10.0)));
    let alone = callers.iter().all(Caller::is_alone);
    line("stdio: each has its own counter", &alone.to_string(), Some(("true", alone)));
    Ok(())
}

/// What a call costs, of what it costs where there are few sessions: in all turns together, because what is done for
/// the sessions from time to time belongs to it.
async fn compare(
    running: &Running,
    mut callers: Vec<Caller>,
    few: &Running,
) -> io::Result<(Vec<Caller>, f64)> {
    let mut others = load::callers(few, CALLERS).await?;
    for caller in &mut others {
        caller.grow(&few.target, FEW / CALLERS).await?;
    }
    let (mut with_many, mut with_few) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let took;
        (callers, took) = load::run(running, callers, TURN).await?;
        with_many.push(took);
        let took;
        (others, took) = load::run(few, others, TURN).await?;
        with_few.push(took);
    }
    Ok((callers, Took::cpu_of_all(&with_many) / Took::cpu_of_all(&with_few)))
}

/// Opens sessions until there are `count`, and gives each caller its part of them.
async fn grow(
    running: &Running,
    mut callers: Vec<Caller>,
    count: usize,
) -> io::Result<Vec<Caller>> {
    let there: usize = callers.iter().map(Caller::sessions).sum();
    let each = (count - there).div_ceil(OPENERS);
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
