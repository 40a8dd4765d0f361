//! Cost of a call that one replica forwards to another.

use std::{io, time::Duration};

use serde_json::{Value, json};
use stayput_testkit::redis::Redis;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    contenders::{self, Over},
    load::Caller,
    running::Running,
};
use crate::{
    report::{head, line},
    server::{HttpServer, counter},
};

/// Number of sessions, each with a caller.
const SESSIONS: u32 = 20;
/// Calls in a second, of all callers together: far below what the replicas can do.
const RATE: u32 = 800;
const ROUNDS: usize = 12;
const TURN: Duration = Duration::from_secs(1);
const TARGET: f64 = 1.9;

/// Two replicas. The first holds all sessions.
struct Replicas {
    holder: Running,
    other: Running,
    _store: Redis,
}

/// Calls and processor time over several turns.
#[derive(Default)]
struct Cost {
    calls: u32,
    cpu: Duration,
}

impl Cost {
    /// Microseconds of processor time per call.
    fn per_call(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / f64::from(self.calls)
    }
}

/// Runs the measurement.
pub(super) async fn run() {
    let server = HttpServer::start();
    for (name, over) in [("HTTP", Over::Http(&server.url)), ("stdio", Over::Stdio)] {
        head(&format!(
            "CPU of both replicas per forwarded call to a counter over {name}, of that of a local call; {RATE} calls/s, \
             {ROUNDS} turns"
        ));
        let measured = match Replicas::start(over).await {
            Ok(replicas) => measure(&replicas).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        match measured {
            Ok([local, forwarded]) => show(&local, &forwarded),
            // A row that was not measured must not count as met.
            Err(why) => line("CPU per forwarded call", "not measured", Some((&why, false))),
        }
    }
}

fn show(local: &Cost, forwarded: &Cost) {
    line("µs of a local call", &format!("{:.1}", local.per_call()), None);
    line("µs of a forwarded call", &format!("{:.1}", forwarded.per_call()), None);
    let ratio = forwarded.per_call() / local.per_call();
    line("CPU per forwarded call", &format!("{ratio:.2}"), Some(("≤ 1.9", ratio <= TARGET)));
}

impl Replicas {
    async fn start(over: Over<'_>) -> Result<Self, String> {
        let store = Redis::start();
        let config = config(over, &store.url());
        let gateway = contenders::gateway()?;
        let start = async |config| {
            let command = contenders::serving(gateway.clone(), config);
            Running::start("replica", "/mcp/counter", command).await
        };
        let holder = start(config.clone()).await?;
        let other = start(config).await?;
        Ok(Self { holder, other, _store: store })
    }

    fn cpu(&self) -> Duration {
        self.holder.cpu() + self.other.cpu()
    }
}

fn config(over: Over<'_>, store: &str) -> Value {
    let counter = match over {
        Over::Stdio => json!({ "command": counter() }),
        Over::Http(url) => json!({ "url": url }),
    };
    json!({
        "mcpServers": { "counter": counter },
        "stayput": {
            "store": store,
            "seal": "5".repeat(64),
            "cluster": { "listen": "127.0.0.1:0", "key": "the-key-of-the-replicas-of-this-benchmark" },
        },
    })
}

/// Returns the costs of local and of forwarded calls in the same sessions, in turns.
async fn measure(replicas: &Replicas) -> io::Result<[Cost; 2]> {
    let mut callers = Vec::new();
    for _ in 0..SESSIONS {
        let mut caller = Caller::open(&replicas.holder.target).await?;
        // The first call of a session opens its link, at the replica that holds it from then on.
        caller.call().await?;
        callers.push(caller);
    }
    let mut costs = [Cost::default(), Cost::default()];
    for round in 0..=ROUNDS {
        for (cost, at) in costs.iter_mut().zip([&replicas.holder, &replicas.other]) {
            let turn;
            (callers, turn) = self::turn(replicas, callers, at).await?;
            // In the first round, the replicas learn of each other.
            if round > 0 {
                cost.calls += turn.calls;
                cost.cpu += turn.cpu;
            }
        }
    }
    if !callers.iter().all(Caller::is_alone) {
        return Err(io::Error::other("a session lost its count"));
    }
    Ok(costs)
}

/// Lets all callers call one replica, each at its part of the rate.
async fn turn(
    replicas: &Replicas,
    mut callers: Vec<Caller>,
    at: &Running,
) -> io::Result<(Vec<Caller>, Cost)> {
    for caller in &mut callers {
        caller.reconnect(&at.target).await?;
    }
    let (before, end) = (replicas.cpu(), Instant::now() + TURN);
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(pace(caller, end))).collect();
    let mut callers = Vec::with_capacity(tasks.len());
    let mut cost = Cost::default();
    for task in tasks {
        let (caller, calls) = task.await??;
        callers.push(caller);
        cost.calls += calls;
    }
    cost.cpu = replicas.cpu().saturating_sub(before);
    let least = f64::from(RATE) * TURN.as_secs_f64() * 0.9;
    match f64::from(cost.calls) < least {
        true => Err(io::Error::other("this machine is too busy for the rate")),
        false => Ok((callers, cost)),
    }
}

/// Calls at the part of the rate of one caller until `end`.
async fn pace(mut caller: Caller, end: Instant) -> io::Result<(Caller, u32)> {
    let mut ticks = interval(Duration::from_secs(1) * SESSIONS / RATE);
    // A late call is made up for, so that the rate stays.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = 0;
    while Instant::now() < end {
        caller.call().await?;
        calls += 1;
        ticks.tick().await;
    }
    Ok((caller, calls))
}
