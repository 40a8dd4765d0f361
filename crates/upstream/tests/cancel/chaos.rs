//! All operations at once, at random, many times.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use stayput_core::Generation;
use stayput_upstream::{
    CallOptions, EraChoice, Limits, LinkOpenError, LinkOwner, Links, LossReason, Options, Server,
    SpareOptions,
};
use tokio::runtime::Handle;

use crate::{
    ALONE,
    support::{
        LONG, alive, close, links_with, params, place, quick, server_with, stdio, text, token,
        try_open, until,
    },
};

/// Pseudo-random numbers, reproducible by seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(u64::try_from(from.len()).unwrap());
        &from[usize::try_from(at).unwrap()]
    }
}

/// Identity of a state: server, session, incarnation of the session, generation.
type State = (usize, usize, u64, Generation);

/// Process of each state, and its last count.
#[derive(Default)]
struct Seen(Mutex<HashMap<State, (u32, u64)>>);

impl Seen {
    /// Checks that each count belongs to one process and only increases.
    fn count(&self, of: State, pid: u32, count: u64) {
        let mut seen = self.0.lock().unwrap();
        for (other, (held, _)) in seen.iter() {
            assert!(*held != pid || *other == of, "{of:?} and {other:?} share process {pid}");
        }
        let (held, last) = seen.entry(of).or_insert((pid, 0));
        assert_eq!(*held, pid, "{of:?} changed its process");
        *last = (*last).max(count);
    }

    fn last(&self, of: State) -> u64 {
        self.0.lock().unwrap().get(&of).map_or(0, |(_, last)| *last)
    }
}

struct World {
    links: Links,
    servers: Vec<Server>,
    places: Vec<LinkOwner>,
    /// Number of ends of each session. Each end begins a new incarnation.
    lives: Mutex<HashMap<usize, u64>>,
    seen: Seen,
    token: String,
    seed: u64,
}

impl World {
    fn new(seed: u64, token: String) -> Self {
        let mut dice = Dice(seed);
        let limits = Limits {
            processes: usize::try_from(3 + dice.below(6)).unwrap(),
            wait: Duration::from_secs(2),
            ..Limits::default()
        };
        let warm = SpareOptions {
            count: usize::try_from(dice.below(3)).unwrap(),
            ..SpareOptions::default()
        };
        let stdio = |args: &[&str]| stdio(args).env("TOKEN", token.as_str());
        let eras = [EraChoice::Legacy, EraChoice::Auto, EraChoice::Legacy];
        let servers = vec![
            server_with(stdio(&[]), Options { era: eras[0], warm, ..quick() }),
            server_with(
                stdio(&["--invalid-lines"]).env("D", "${session.dir}"),
                Options { era: eras[1], ..quick() },
            ),
            server_with(
                stdio(&["--ignore-eof", "--startup-ms", "30"]),
                Options { era: eras[2], ..quick() },
            ),
        ];
        let links = links_with(limits);
        links.warm(&servers[0]);
        let places = (0..3).map(|_| place()).collect();
        Self { links, servers, places, lives: Mutex::default(), seen: Seen::default(), token, seed }
    }

    fn life(&self, session: usize) -> u64 {
        self.lives.lock().unwrap().get(&session).copied().unwrap_or_default()
    }

    async fn run(&self, task: u64, steps: usize) {
        let mut dice = Dice(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (task + 1));
        dice.below(2);
        for _ in 0..steps {
            let step = self.step(&mut dice);
            tokio::time::timeout(LONG, step).await.unwrap_or_else(|_| {
                panic!("seed {}: task {task} hangs", self.seed);
            });
        }
    }

    async fn step(&self, dice: &mut Dice) {
        let (server, session) =
            (usize::try_from(dice.below(3)).unwrap(), usize::try_from(dice.below(3)).unwrap());
        match dice.below(20) {
            0..10 => self.count(server, session).await,
            10..13 => {
                let pause = Duration::from_millis(dice.below(60));
                let _ = tokio::time::timeout(pause, self.count(server, session)).await;
            }
            13..15 => self.slow(server, session, dice.below(30)).await,
            15 => self.kill(dice),
            16 => {
                let end = self.end(session);
                let pause = Duration::from_millis(dice.below(100));
                let _ = tokio::time::timeout(pause, end).await;
            }
            17 => self.end(session).await,
            18 => {
                let (server, place) = (&self.servers[server], &self.places[session]);
                self.links.restart(server, place, LossReason::Restarted).await;
            }
            _ => {
                self.links.close_idle(Duration::from_millis(dice.below(50)));
            }
        }
    }

    /// Opens a link, counts, and checks which state that was.
    async fn count(&self, server: usize, session: usize) {
        let life = self.life(session);
        let opened = try_open(&self.links, &self.servers[server], &self.places[session]).await;
        let link = match opened {
            Ok(link) => link,
            Err(error) => return self.excuse(&error),
        };
        let of = (server, session, life, link.generation());
        let before = self.seen.last(of);
        let params = params("stats", "{}");
        let answers = async {
            let count = crate::support::params("count", "{}");
            let count = link.call("tools/call", Some(&count), CallOptions::default()).await?;
            let count = count.answer().await?;
            let stats = link.call("tools/call", Some(&params), CallOptions::default()).await?;
            Ok((text(&count), text(&stats.answer().await?)))
        };
        let answers: Result<_, stayput_upstream::CallError> = answers.await;
        // If the session ended meanwhile, the incarnation of the answer is unknown.
        if let Ok((count, stats)) = answers
            && life == self.life(session)
        {
            let (count, stats): (u64, serde_json::Value) =
                (count.parse().unwrap(), serde_json::from_str(&stats).unwrap());
            assert_eq!(stats["initialize"], 1, "seed {}", self.seed);
            assert!(count > before, "seed {}: {of:?} went back to {count}", self.seed);
            let pid = u32::try_from(stats["pid"].as_u64().unwrap()).unwrap();
            self.seen.count(of, pid, count);
        }
    }

    /// Starts a call and drops it before its end.
    async fn slow(&self, server: usize, session: usize, millis: u64) {
        let opened = try_open(&self.links, &self.servers[server], &self.places[session]).await;
        let Ok(link) = opened else { return };
        let slow = params("slow", r#"{"ms":60000}"#);
        if let Ok(call) = link.call("tools/call", Some(&slow), CallOptions::default()).await {
            let _ = tokio::time::timeout(Duration::from_millis(millis), call.answer()).await;
        }
    }

    fn kill(&self, dice: &mut Dice) {
        let alive = alive(&self.token);
        if !alive.is_empty() {
            let pid = rustix::process::Pid::from_raw(i32::try_from(*dice.pick(&alive)).unwrap());
            let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
        }
    }

    async fn end(&self, session: usize) {
        *self.lives.lock().unwrap().entry(session).or_default() += 1;
        let kept = self.links.end(self.places[session].session).await;
        *self.lives.lock().unwrap().entry(session).or_default() += 1;
        assert!(kept.is_empty(), "seed {}: {kept}", self.seed);
    }

    /// Accepts the errors that are expected.
    fn excuse(&self, error: &LinkOpenError) {
        let expected = matches!(
            error,
            LinkOpenError::Ended { .. }
                | LinkOpenError::BackingOff { .. }
                | LinkOpenError::Exited { .. }
                | LinkOpenError::AtCapacity(_)
        );
        assert!(expected, "seed {}: {error}", self.seed);
    }
}

async fn chaos(seed: u64) {
    let token = token();
    let support = Arc::new(World::new(seed, token.clone()));
    let tasks = (0..4).map(|task| {
        let support = support.clone();
        Handle::current().spawn(async move { support.run(task, 25).await })
    });
    for task in join_all(tasks).await {
        task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    close(&support.links).await;
    assert!(alive(&token).is_empty(), "seed {seed}: a process is left");
    assert_eq!(support.links.used().waiting, 0, "seed {seed}");
    drop(support);
    until("all tasks are done", || Handle::current().metrics().num_alive_tasks() == 0).await;
}

/// R019, R034, E01, E02, E13, E20, E22, invariants 3, 4, 6. `STAYPUT_TEST_SEED` repeats a run, or the first of
/// `STAYPUT_TEST_SEEDS` runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_use_isolates_states_and_leaves_nothing() {
    let _alone = ALONE.lock().await;
    let number = |name: &str| std::env::var(name).ok().and_then(|seed| seed.parse::<u64>().ok());
    let first = number("STAYPUT_TEST_SEED");
    let seeds = number("STAYPUT_TEST_SEEDS").unwrap_or(if first.is_some() { 1 } else { 3 });
    let first = first.unwrap_or(1).max(1);
    for seed in first..first + seeds {
        chaos(seed).await;
    }
}
