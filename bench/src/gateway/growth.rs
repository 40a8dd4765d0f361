//! Cost of a call with many sessions.

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

const CALLERS: usize = 5;
const MANY: usize = 10_000;
/// More than one for each caller, so that, as with many, no call uses the session of the previous one.
const FEW: usize = 2 * CALLERS;
/// Enough that the times of last use are written in between, for each session.
const ROUNDS: usize = 48;
const TURN: Duration = Duration::from_millis(400);
const TARGET: f64 = 1.1;

/// Callers of one gateway, and the costs of their turns.
struct Crowd<'a> {
    running: &'a Running,
    callers: Vec<Caller>,
    turns: Vec<Took>,
}

impl<'a> Crowd<'a> {
    /// Opens this many sessions.
    async fn of(running: &'a Running, sessions: usize) -> io::Result<Self> {
        let mut callers = load::callers(running, CALLERS).await?;
        if sessions == FEW {
            for caller in &mut callers {
                caller.grow(&running.target, FEW / CALLERS).await?;
            }
        } else {
            callers = load::grow(running, callers, sessions).await?;
        }
        Ok(Self { running, callers, turns: Vec::with_capacity(ROUNDS) })
    }

    async fn turn(&mut self) -> io::Result<()> {
        let callers = std::mem::take(&mut self.callers);
        let (callers, took) = load::run(self.running, callers, TURN).await?;
        self.callers = callers;
        self.turns.push(took);
        Ok(())
    }

    /// Returns the cost of a call over all turns together, because periodic work for the sessions belongs to it.
    fn cpu(&self) -> f64 {
        Took::cpu_of_all(&self.turns)
    }
}

/// Runs the measurement.
pub(super) async fn run() {
    head(&format!("CPU per call with {MANY} live sessions, of that with {FEW}; {ROUNDS} turns"));
    let server = HttpServer::start();
    let over = Over::Http(&server.url);
    let (many, few) = (contenders::stayput(over).await, contenders::stayput(over).await);
    let nginx = contenders::nginx(&server.url).await;
    match (many, few, nginx) {
        (Ok(many), Ok(few), Ok(nginx)) => match measure([&many, &few, &nginx, &nginx]).await {
            Ok(grown) => show(grown),
            Err(why) => println!("  not measured: {why}"),
        },
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => println!("  not measured: {why}"),
    }
}

/// Returns the cost of a call with many sessions relative to that with few, through Stayput and through nginx. All
/// have their turns right after each other.
async fn measure([many, few, bare, same]: [&Running; 4]) -> io::Result<[f64; 2]> {
    let mut crowds = [
        Crowd::of(many, MANY).await?,
        Crowd::of(few, FEW).await?,
        Crowd::of(bare, MANY).await?,
        Crowd::of(same, FEW).await?,
    ];
    for _ in 0..ROUNDS {
        for crowd in &mut crowds {
            crowd.turn().await?;
        }
    }
    let [many, few, bare, same] = crowds.each_ref().map(Crowd::cpu);
    Ok([many / few, bare / same])
}

/// Prints the results. The client and the counter have as many sessions, too, and use more of the shared caches. nginx
/// has no sessions, so its ratio shows the cost of that alone.
fn show([ours, nginx]: [f64; 2]) {
    line("stayput", &format!("{ours:.2}"), Some(("≤ 1.1", ours <= TARGET)));
    line("nginx, which has no sessions", &format!("{nginx:.2}"), None);
}
