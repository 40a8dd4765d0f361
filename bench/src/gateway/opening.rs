//! Sessions on stdio opened a second: hands shaken, a process started, one call made.

use std::{io, time::Instant};

use super::{
    contenders::{self, Over},
    load::{self, Caller},
    running::Running,
};
use crate::report::{head, line};

/// Sessions of one turn, and how many are being opened at once.
const SESSIONS: usize = 64;
const AT_ONCE: usize = 8;
const ROUNDS: usize = 5;

/// Runs the measurements.
pub(super) async fn run() {
    head("Sessions on stdio opened a second, each with a process of its own and one call");
    // Only who starts a process for each session does the same work.
    let mut all: Vec<(Running, f64, f64)> = Vec::new();
    for started in contenders::all(Over::Stdio).await {
        match started {
            Ok(it) if matches!(it.name, "stayput" | "supergateway") => {
                all.push((it, 0.0, f64::INFINITY));
            }
            Ok(_) => {}
            Err(why) => println!("  not measured: {why}"),
        }
    }
    for _ in 0..ROUNDS {
        for (running, rate, cpu) in &mut all {
            match turn(running).await {
                Ok((opened, cost)) => (*rate, *cpu) = (rate.max(opened), cpu.min(cost)),
                Err(error) => println!("  {} fails: {error}", running.name),
            }
        }
    }
    let rate = |name: &str| all.iter().find(|(it, ..)| it.name == name).map(|it| it.1);
    if let (Some(ours), Some(peer)) = (rate("stayput"), rate("supergateway")) {
        let times = ours / peer;
        line("opened, times supergateway's", &format!("{times:.1}"), Some(("≥ 5", times >= 5.0)));
    }
    for (running, rate, cpu) in &all {
        let name = running.name;
        line(&format!("{name}: opened a second"), &format!("{rate:.0}"), None);
        line(&format!("{name}: ms of CPU each"), &format!("{:.2}", cpu * 1e3), None);
    }
}

/// How many were opened a second, and the seconds of processor time that each took.
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
    let sessions = SESSIONS as f64;
    Ok((sessions / time.as_secs_f64(), cpu.as_secs_f64() / sessions))
}
