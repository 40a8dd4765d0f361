//! Seeded faults at random points of open, call, answer and DELETE: no call runs twice, no loss is silent, no client sees
//! the state of another one, and no process stays.
//!
//! `make chaos SEED=7 TRIALS=1000` runs many trials.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;
#[path = "support/writer.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod writer;

use std::{path::Path, time::Duration};

use serde_json::json;
use stayput_testkit::{Random, processes, redis::Redis};
use support::{Gateway, LONG, gone, mark, stdio};
use tokio::time::{Instant, sleep, timeout};
use writer::{Answers, Writer};

/// Time after which no process of a killed gateway may run (invariant 5).
const ORPHAN_LIMIT: Duration = Duration::from_secs(2);

/// Time for which clients send while a fault happens, in milliseconds.
const WINDOW: u64 = 150;

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillGateway,
    StopGateway,
    KillWarden,
    KillChild,
    RestartStore,
}

const FAULTS: [Fault; 5] = [
    Fault::KillGateway,
    Fault::StopGateway,
    Fault::KillWarden,
    Fault::KillChild,
    Fault::RestartStore,
];

/// Counts of all trials.
#[derive(Debug, Default)]
struct Totals {
    trials: usize,
    faults: [usize; FAULTS.len()],
    answers: Answers,
    deletes: usize,
}

/// Gateway under test, with its store.
struct Stage {
    gateway: Gateway,
    redis: Redis,
    mark: String,
}

impl Stage {
    async fn new() -> Self {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let mark = mark("chaos");
        let settings = json!({ "store": redis.url(), "lease": "5s" });
        let servers = json!({ "test": stdio(&mark, &[]) });
        let mut gateway = Gateway::with(servers, settings).await;
        gateway.kill();
        gateway.restart_in_place().await;
        Self { gateway, redis, mark }
    }

    /// Process of the test server or of the warden, below the gateway.
    fn process(&self, program: &str, word: &str) -> Option<u32> {
        processes::descendants(self.gateway.pid()).into_iter().find(|pid| {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let named = line.split(|byte| *byte == 0).any(|it| it == word.as_bytes());
            exe.file_name() == Path::new(program).file_name() && named
        })
    }

    /// Injects a fault, and mends it.
    async fn inject(&mut self, fault: Fault, pause: Duration, trial: &str) {
        match fault {
            Fault::KillGateway => {
                self.gateway.kill();
                let gone = timeout(ORPHAN_LIMIT, processes::wait_until_gone(&self.mark)).await;
                assert!(gone.is_ok(), "{trial}: a process was left behind");
                self.gateway.restart().await;
            }
            Fault::StopGateway => {
                self.gateway.signal("-STOP");
                sleep(pause).await;
                self.gateway.signal("-CONT");
            }
            Fault::KillWarden => kill(self.process("stayput", "warden")),
            Fault::KillChild => kill(self.process("stayput-testserver", &self.mark)),
            Fault::RestartStore => {
                self.redis.kill();
                sleep(pause).await;
                self.redis.start_again();
            }
        }
    }
}

fn kill(process: Option<u32>) {
    if let Some(pid) = process {
        let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |it| it.parse().unwrap())
}

/// Runs one trial: two clients send, one of which deletes its session and opens another, while a fault happens.
async fn run_trial(
    stage: &mut Stage,
    clients: &mut [Writer; 2],
    random: &mut Random,
    totals: &mut Totals,
) {
    let (number, fault) = (totals.trials, FAULTS[random.below(FAULTS.len())]);
    let delay = Duration::from_millis(random.below(usize::try_from(WINDOW).unwrap()) as u64);
    let pause = Duration::from_millis(random.below(400) as u64);
    let moment = Duration::from_millis(random.below(usize::try_from(WINDOW).unwrap()) as u64);
    let trial = format!("trial {number} ({fault:?} after {delay:?})");
    let urls = [stage.gateway.at("test")];
    let end = Instant::now() + Duration::from_millis(WINDOW);
    let [first, second] = clients;
    let mut replaced = Answers::default();
    let writing = async {
        while Instant::now() < end {
            first.write(&urls[0]).await;
        }
    };
    let replacing = async {
        second.write(&urls[0]).await;
        sleep(moment).await;
        second.delete(&urls).await;
        let new = Writer::open(&urls, format!("w{number}")).await;
        replaced = std::mem::replace(second, new).answers;
        second.write(&urls[0]).await;
    };
    let fault_task = async {
        sleep(delay).await;
        stage.inject(fault, pause, &trial).await;
    };
    tokio::join!(writing, replacing, fault_task);
    for client in [&mut *first, &mut *second] {
        client.verify(&urls, &trial).await;
        totals.answers.add(&std::mem::take(&mut client.answers));
    }
    totals.answers.add(&replaced);
    let ended = async {
        while let servers = servers(&stage.mark)
            && servers.len() > 2
        {
            processes::wait_for_exit(&servers).await;
        }
    };
    assert!(timeout(LONG, ended).await.is_ok(), "{trial}: a process of an ended session stays");
    totals.trials += 1;
    totals.faults[fault as usize] += 1;
    totals.deletes += 1;
}

/// Returns the test servers that run.
fn servers(mark: &str) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| exe.ends_with("stayput-testserver"))
    };
    processes::with_token(mark).into_iter().filter(is_server).collect()
}

/// Invariants 1, 2, 3 and 5 under `kill -9` and SIGSTOP of the gateway, `kill -9` of its warden and of its children, and
/// restarts of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the totals are the result of a long run")]
async fn faults_at_random_points_break_no_promise() {
    let (seed, trials) = (number("STAYPUT_CHAOS_SEED", 1), number("STAYPUT_CHAOS_TRIALS", 40));
    let mut random = Random::new(seed);
    let mut stage = Stage::new().await;
    let urls = [stage.gateway.at("test")];
    let mut clients =
        [Writer::open(&urls, "w-a".to_owned()).await, Writer::open(&urls, "w-b".to_owned()).await];
    let mut totals = Totals::default();
    let start = Instant::now();
    for _ in 0..trials {
        run_trial(&mut stage, &mut clients, &mut random, &mut totals).await;
    }
    let Totals { trials, faults, answers, deletes } = totals;
    let Answers { acknowledged, uncertain, losses, .. } = answers;
    println!(
        "seed {seed}: {trials} trials in {:?}, {faults:?} of {FAULTS:?}; {acknowledged} calls acknowledged, \
         {uncertain} uncertain, {losses} losses reported, {deletes} sessions deleted; 0 ran twice, 0 lost silently, \
         0 foreign, 0 processes left",
        start.elapsed()
    );
    assert!(stage.gateway.stop().success());
    gone(&stage.mark).await;
}
