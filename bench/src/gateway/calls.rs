//! Calls through all contenders, in turns: rate, processor time of each call, and isolation of the counters.

use std::{io, time::Duration};

use super::{
    contenders::{self, Over},
    load::{self, Caller, Took},
    running::Running,
};
use crate::{
    report::{head, line, middle},
    server::HttpServer,
};

/// Number of sessions, each with a caller.
const SESSIONS: usize = 50;
const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_millis(800);
/// Calls of a single caller: so many at a time, and so often in each turn. The placement of the threads of both sides
/// by the scheduler matters more than their work, and stays for a while. Each time a new connection lets the scheduler
/// choose again.
const ALONE: usize = 100;
const TIMES: usize = 10;
const BETWEEN: Duration = Duration::from_millis(10);

/// Target for the throughput of a gateway to stdio, as a share of nginx's in front of HTTP: 0.45 of the throughput of
/// a direct client, where nginx has 0.68 of that. The share of nginx depends on the cost of the client, and this
/// client costs next to nothing.
const OF_NGINX: f64 = 0.45 / 0.68;

/// Measured program.
struct Contender {
    running: Running,
    callers: Vec<Caller>,
    took: Took,
    /// Costs of each turn.
    turns: Vec<Took>,
    /// Microseconds of a call without concurrent calls.
    alone: f64,
    failed: Option<io::Error>,
}

/// Measures calls to a counter behind HTTP.
pub(super) async fn over_http() {
    let server = HttpServer::start();
    let http = measure(&server, Over::Http(&server.url)).await;
    show("HTTP to HTTP", &http, "nginx");
    targets_http(&http);
}

/// Measures calls to counters behind stdio.
pub(super) async fn over_stdio() {
    let server = HttpServer::start();
    let stdio = measure(&server, Over::Stdio).await;
    show("HTTP to stdio", &stdio, "supergateway");
    targets_stdio(&stdio);
}

async fn measure(server: &HttpServer, over: Over<'_>) -> Vec<Contender> {
    let mut all = vec![Contender::new(Running::direct(&server.url)).await];
    let mut started = contenders::all(over).await;
    if over == Over::Stdio {
        // nginx cannot start a process: for comparison it stands in front of the HTTP counter.
        started.push(contenders::nginx(&server.url).await.map_err(|why| format!("nginx: {why}")));
    }
    for started in started {
        match started {
            Ok(running) => all.push(Contender::new(running).await),
            Err(why) => println!("\n  not measured: {why}"),
        }
    }
    for _ in 0..ROUNDS {
        for contender in &mut all {
            contender.turn().await;
        }
        // Who is first in one round is last in the next.
        all.reverse();
    }
    if ROUNDS % 2 == 1 {
        all.reverse();
    }
    all
}

impl Contender {
    async fn new(running: Running) -> Self {
        let opened = load::callers(&running, SESSIONS).await;
        let (callers, failed) = match opened {
            Ok(callers) => (callers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Self {
            running,
            callers,
            took: Took::WORST,
            turns: Vec::new(),
            alone: f64::INFINITY,
            failed,
        }
    }

    async fn turn(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.try_turn().await
        {
            self.failed = Some(error);
        }
    }

    async fn try_turn(&mut self) -> io::Result<()> {
        let callers = std::mem::take(&mut self.callers);
        let (callers, took) = load::run(&self.running, callers, TURN).await?;
        self.callers = callers;
        self.took = self.took.best(took);
        self.turns.push(took);
        for _ in 0..TIMES {
            tokio::time::sleep(BETWEEN).await;
            self.callers[0].reconnect(&self.running.target).await?;
            let alone = load::median(&mut self.callers[0], ALONE).await?;
            self.alone = self.alone.min(alone);
        }
        Ok(())
    }

    fn isolates(&self) -> bool {
        self.callers.iter().all(Caller::is_alone)
    }
}

fn named<'a>(all: &'a [Contender], name: &str) -> Option<&'a Contender> {
    all.iter().find(|it| it.running.name == name && it.failed.is_none())
}

fn show(title: &str, all: &[Contender], beside: &str) {
    head(&format!(
        "{title}: {SESSIONS} sessions at once, each with its own caller; best of {ROUNDS} turns"
    ));
    let cpu_head = format!("CPU of {beside}'s");
    println!(
        "  {:<18} {:>12} {:>22} {:>14} {:>16} {:>9}",
        "", "throughput", cpu_head, "µs CPU/call", "µs p50, alone", "isolates"
    );
    let direct = named(all, "direct").map_or(1.0, |it| it.took.rate);
    let cpu = named(all, beside).map_or(f64::NAN, |it| it.took.cpu);
    for it in all {
        let name = it.running.name;
        if let Some(error) = &it.failed {
            println!("  {name:<18} fails: {error}");
            continue;
        }
        let isolates = if it.isolates() { "yes" } else { "no" };
        println!(
            "  {name:<18} {:>12.3} {:>22.2} {:>14.1} {:>16.0} {isolates:>9}",
            it.took.rate / direct,
            it.took.cpu / cpu,
            it.took.cpu,
            it.alone
        );
    }
    println!("  direct: {direct:.0} calls a second; the counters' own processor time is nobody's");
}

/// Prints this build for one of the other build, if there is one: the medians of their turns.
fn targets_builds(all: &[Contender]) {
    let (Some(ours), Some(other)) = (named(all, "stayput"), named(all, "stayput, other")) else {
        return;
    };
    let ratio = |of: fn(&Took) -> f64| {
        let both = ours.turns.iter().zip(&other.turns);
        middle(both.map(|(ours, other)| of(ours) / of(other)).collect())
    };
    let (cpu, rate) = (ratio(|took| took.cpu), ratio(|took| took.rate));
    let show = |name: &str, value: f64, target: &str, met| {
        line(name, &format!("{value:.3}"), Some((target, met)));
    };
    show("CPU per call, of the other build's, median", cpu, "≤ 1.06", cpu <= 1.06);
    show("throughput, of the other build's, median", rate, "≥ 0.95", rate >= 0.95);
}

fn targets_http(all: &[Contender]) {
    targets_builds(all);
    let (Some(ours), Some(nginx)) = (named(all, "stayput"), named(all, "nginx")) else { return };
    let ratio = |what: &str, value: f64, target: &str, met| {
        line(what, &format!("{value:.2}"), Some((target, met)));
    };
    let rate = ours.took.rate / nginx.took.rate;
    ratio("throughput, of nginx's", rate, "≥ 0.8", rate >= 0.8);
    let cpu = ours.took.cpu / nginx.took.cpu;
    ratio("CPU per call, of nginx's", cpu, "≤ 1.6", cpu <= 1.6);
    let more = ours.alone - nginx.alone;
    line("µs more than nginx, p50, alone", &format!("{more:.0}"), Some(("≤ 60", more <= 60.0)));
    line("isolates", &ours.isolates().to_string(), Some(("true", ours.isolates())));
}

fn targets_stdio(all: &[Contender]) {
    targets_builds(all);
    let (Some(ours), Some(direct)) = (named(all, "stayput"), named(all, "direct")) else { return };
    let rate = ours.took.rate / direct.took.rate;
    line("throughput, of direct HTTP", &format!("{rate:.2}"), Some(("≥ 0.45", rate >= 0.45)));
    if let Some(nginx) = named(all, "nginx") {
        let rate = ours.took.rate / nginx.took.rate;
        line(
            "throughput, of nginx's in front of HTTP",
            &format!("{rate:.2}"),
            Some((&format!("≥ {OF_NGINX:.2}"), rate >= OF_NGINX)),
        );
    }
    let cpu = ours.took.cpu;
    line("µs of CPU per call", &format!("{cpu:.1}"), Some(("≤ 30", cpu <= 30.0)));
    if let Some(peer) = named(all, "supergateway") {
        let times = ours.took.rate / peer.took.rate;
        line(
            "throughput, times supergateway's",
            &format!("{times:.1}"),
            Some(("≥ 8", times >= 8.0)),
        );
    }
    line("isolates", &ours.isolates().to_string(), Some(("true", ours.isolates())));
}
