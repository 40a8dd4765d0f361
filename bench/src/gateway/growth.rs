//! Whether a call costs more when there are many sessions.

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
/// More than one for each caller, so that as with many no call is of the session before.
const FEW: usize = 2 * CALLERS;
/// So many that times of use are written in between, of each session.
const ROUNDS: usize = 48;
const TURN: Duration = Duration::from_millis(400);
const TARGET: f64 = 1.1;

/// Callers of one gateway, and what their turns took.
struct Crowd<'a> {
    running: &'a Running,
    callers: Vec<Caller>,
    turns: Vec<Took>,
}

impl<'a> Crowd<'a> {
    /// With so many sessions.
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

    /// What a call costs, in all turns together: what is done for the sessions from time to time belongs to it.
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

/// What a call costs with many sessions, of what it costs with few: through Stayput and through nginx. All have their
/// turns right behind each other.
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

/// The client and the counter have as many sessions, too, and take more of the caches that all share. What that alone
/// costs whoever stands in between shows on nginx, which has no sessions.
fn show([ours, nginx]: [f64; 2]) {
    line("stayput", &format!("{ours:.2}"), Some(("≤ 1.1", ours <= TARGET)));
    line("nginx, which has no sessions", &format!("{nginx:.2}"), None);
}
