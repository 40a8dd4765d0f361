//! Sessions on stdio opened per second: `initialize`, one process started, one call made.

use std::{io, time::Instant};

use super::{
    contenders::{self, Over},
    load::{self, Caller},
    running::Running,
};
use crate::report::{head, line, middle};

/// Number of sessions in one turn, and of concurrent openings.
const SESSIONS: usize = 256;
const AT_ONCE: usize = 8;
const ROUNDS: usize = 9;

/// Results of one contender in each round, if it succeeded: sessions opened per second, and seconds of processor time
/// for each.
struct Turns {
    running: Running,
    took: Vec<Option<(f64, f64)>>,
}

/// Runs the measurements.
pub(super) async fn run() {
    head("Sessions on stdio opened a second, each with a process of its own and one call");
    // Only programs that start a process for each session do the same work.
    let mut all: Vec<Turns> = Vec::new();
    for started in contenders::all(Over::Stdio).await {
        match started {
            Ok(it) if matches!(it.name, "stayput" | "stayput, other" | "supergateway") => {
                all.push(Turns { running: it, took: Vec::new() });
            }
            Ok(_) => {}
            Err(why) => println!("  not measured: {why}"),
        }
    }
    for _ in 0..ROUNDS {
        for Turns { running, took } in &mut all {
            let turn = turn(running).await;
            took.push(turn.map_err(|error| println!("  {} fails: {error}", running.name)).ok());
        }
    }
    let took = |name: &str| all.iter().find(|it| it.running.name == name).map(|it| &it.took);
    if let (Some(ours), Some(peers)) = (took("stayput"), took("supergateway")) {
        // The speed of the machine varies, so only consecutive measurements are compared.
        let rounds = ours.iter().zip(peers);
        let times = rounds.filter_map(|(ours, peer)| Some((*ours)?.0 / (*peer)?.0)).collect();
        let times = middle(times);
        line("opened, times supergateway's", &format!("{times:.1}"), Some(("≥ 5", times >= 5.0)));
    }
    for Turns { running, took } in &all {
        let name = running.name;
        let rate = middle(took.iter().flatten().map(|took| took.0).collect());
        let cost = middle(took.iter().flatten().map(|took| took.1).collect());
        line(&format!("{name}: opened a second"), &format!("{rate:.0}"), None);
        line(&format!("{name}: ms of CPU each"), &format!("{:.2}", cost * 1e3), None);
    }
}

/// Returns the sessions opened per second, and the seconds of processor time for each.
async fn turn(running: &Running) -> io::Result<(f64, f64)> {
    let (start, cpu) = (Instant::now(), running.cpu());
    let mut tasks = Vec::new();
    for mut caller in load::callers(running, AT_ONCE).await? {
        let running = running.target.clone();
        tasks.push(tokio::spawn(async move {
            caller.call().await?;
            caller.grow(&running, SESSIONS / AT_ONCE).await?;
            io::Result::Ok(caller)
        }));
    }
    let mut callers: Vec<Caller> = Vec::new();
    for task in tasks {
        callers.push(task.await??);
    }
    let (time, cpu) = (start.elapsed(), running.cpu().saturating_sub(cpu));
    for caller in callers {
        caller.end(&running.target).await;
    }
    running.counters_are_gone().await;
    let sessions = SESSIONS as f64;
    Ok((sessions / time.as_secs_f64(), cpu.as_secs_f64() / sessions))
}
