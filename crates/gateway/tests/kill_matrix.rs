//! Seeded faults at random points of open, call, answer and DELETE: no call runs twice, no loss is silent, no client sees
//! the state of another one, and no process stays.
//!
//! `make chaos SEED=7 TRIALS=1000` runs many trials.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{path::Path, time::Duration};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{Random, mcp::send, processes, redis::Redis};
use support::{Gateway, LONG, gone, mark, stdio};
use tokio::time::{Instant, sleep, timeout};

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
    acknowledged: usize,
    uncertain: usize,
    losses: usize,
    deletes: usize,
}

/// Outcome of one request, as its client knows it.
enum Outcome {
    /// The result of a call that ran.
    Ran(Value),
    /// The state was lost before, or with, this call.
    Lost,
    /// The call did not run.
    Refused,
    /// The client cannot know.
    Uncertain,
}

/// Client with what it knows of its notes.
struct Writer {
    name: String,
    id: String,
    /// Notes that were acknowledged since the last loss.
    notes: Vec<String>,
    /// Notes that may have been written since.
    uncertain: Vec<String>,
    next: usize,
}

async fn post(url: &str, id: Option<&str>, body: &Value) -> Option<(u16, String, Value)> {
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(id.map(|id| ("mcp-session-id", id)));
    let answer = async {
        let answer = send(Method::POST, url, &headers, body.to_string()).await.ok()?;
        let (status, id) = (answer.status.as_u16(), answer.header("mcp-session-id").to_owned());
        let bytes = answer.bytes().await.ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        Some((status, id, serde_json::from_str(last.unwrap_or(&text)).unwrap_or(Value::Null)))
    };
    timeout(LONG, answer).await.ok().flatten()
}

impl Writer {
    /// Opens a client. Tries until it succeeds, because nothing is known of a failed attempt that could matter later.
    async fn open(url: &str, name: String) -> Self {
        let client = json!({ "name": "chaos", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let start = Instant::now();
        loop {
            if let Some((200, id, _)) = post(url, None, &body).await {
                return Self { name, id, notes: Vec::new(), uncertain: Vec::new(), next: 0 };
            }
            assert!(start.elapsed() < LONG, "{name} cannot open");
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn call(&self, url: &str, tool: &str, arguments: Value) -> Outcome {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let Some((status, _, answer)) = post(url, Some(&self.id), &body).await else {
            return Outcome::Uncertain;
        };
        assert_ne!(status, 404, "{}: a known connection was forgotten: {answer}", self.name);
        let result = &answer["result"];
        if result["_meta"]["dev.stayput/state"]["state"] == "lost" {
            return Outcome::Lost;
        }
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        match result["isError"] == true || result.is_null() {
            _ if text.contains("may or may not") => Outcome::Uncertain,
            true if status == 200 || status == 503 => Outcome::Refused,
            true => Outcome::Uncertain,
            false => Outcome::Ran(result.clone()),
        }
    }

    fn lose(&mut self, totals: &mut Totals) {
        totals.losses += 1;
        self.notes.clear();
        self.uncertain.clear();
    }

    /// Writes one note.
    async fn write(&mut self, url: &str, totals: &mut Totals) {
        let note = format!("{}-{}", self.name, self.next);
        self.next += 1;
        match self.call(url, "note_add", json!({ "text": note })).await {
            Outcome::Ran(_) => {
                totals.acknowledged += 1;
                self.notes.push(note);
            }
            Outcome::Lost => self.lose(totals),
            Outcome::Refused => {}
            Outcome::Uncertain => {
                totals.uncertain += 1;
                self.uncertain.push(note);
            }
        }
    }

    /// Compares the notes of the server with what the client knows.
    async fn verify(&mut self, url: &str, totals: &mut Totals, trial: &str) {
        let start = Instant::now();
        loop {
            match self.call(url, "note_list", json!({})).await {
                Outcome::Ran(result) => return self.compare(&result, trial),
                Outcome::Lost => self.lose(totals),
                Outcome::Refused | Outcome::Uncertain => {}
            }
            assert!(start.elapsed() < LONG, "{trial}: {} gets no answer", self.name);
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn compare(&self, result: &Value, trial: &str) {
        let all: Vec<String> = notes_of(result);
        let own = |note: &String| note.starts_with(&format!("{}-", self.name));
        assert!(all.iter().all(own), "{trial}: {} sees foreign notes: {all:?}", self.name);
        for note in &self.notes {
            let count = all.iter().filter(|it| *it == note).count();
            assert_eq!(count, 1, "{trial}: {note} was lost silently or ran twice: {all:?}");
        }
        for note in &all {
            let count = all.iter().filter(|it| *it == note).count();
            assert_eq!(count, 1, "{trial}: {note} ran twice: {all:?}");
            let known = self.notes.contains(note) || self.uncertain.contains(note);
            assert!(known, "{trial}: {note} was refused and ran: {all:?}");
        }
    }

    /// Deletes the session. A broken connection is tried again.
    async fn delete(&self, url: &str) {
        let start = Instant::now();
        loop {
            let headers = [("mcp-session-id", &*self.id)];
            let sent = timeout(LONG, send(Method::DELETE, url, &headers, "")).await.unwrap();
            if sent.is_ok_and(|answer| matches!(answer.status.as_u16(), 200 | 202 | 204 | 404)) {
                return;
            }
            assert!(start.elapsed() < LONG, "{} cannot be deleted", self.name);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns the notes in an answer of `note_list`.
fn notes_of(result: &Value) -> Vec<String> {
    let notes = result["structuredContent"]["notes"].as_array();
    let notes = notes.unwrap_or_else(|| panic!("{result}"));
    notes.iter().map(|note| note.as_str().unwrap().to_owned()).collect()
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
    let url = stage.gateway.at("test");
    let end = Instant::now() + Duration::from_millis(WINDOW);
    let [first, second] = clients;
    let (mut one, mut two) = (Totals::default(), Totals::default());
    let writing = async {
        while Instant::now() < end {
            first.write(&url, &mut one).await;
        }
    };
    let replacing = async {
        second.write(&url, &mut two).await;
        sleep(moment).await;
        second.delete(&url).await;
        *second = Writer::open(&url, format!("w{number}")).await;
        two.deletes += 1;
        second.write(&url, &mut two).await;
    };
    let fault_task = async {
        sleep(delay).await;
        stage.inject(fault, pause, &trial).await;
    };
    tokio::join!(writing, replacing, fault_task);
    first.verify(&url, &mut one, &trial).await;
    second.verify(&url, &mut two, &trial).await;
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
    for part in [one, two] {
        totals.acknowledged += part.acknowledged;
        totals.uncertain += part.uncertain;
        totals.losses += part.losses;
        totals.deletes += part.deletes;
    }
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
    let url = stage.gateway.at("test");
    let mut clients =
        [Writer::open(&url, "w-a".to_owned()).await, Writer::open(&url, "w-b".to_owned()).await];
    let mut totals = Totals::default();
    let start = Instant::now();
    for _ in 0..trials {
        run_trial(&mut stage, &mut clients, &mut random, &mut totals).await;
    }
    let Totals { trials, faults, acknowledged, uncertain, losses, deletes } = totals;
    println!(
        "seed {seed}: {trials} trials in {:?}, {faults:?} of {FAULTS:?}; {acknowledged} calls acknowledged, \
         {uncertain} uncertain, {losses} losses reported, {deletes} sessions deleted; 0 ran twice, 0 lost silently, \
         0 foreign, 0 processes left",
        start.elapsed()
    );
    assert!(stage.gateway.stop().success());
    gone(&stage.mark).await;
}
