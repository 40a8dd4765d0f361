//! One owner that asks for ten times its limits, and the effect on another owner. Also: whether the duration of a
//! refusal distinguishes a foreign session from an unknown one.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{
    client::Client,
    contenders,
    running::Running,
    session::{self, Session, Target},
};
use crate::{
    report::{head, line, middle},
    server::{HttpServer, LONG_LIST_PATH},
};

/// Limits of an owner: requests per second, sessions, calls in flight per session, bytes of a body.
const REQUESTS: u32 = 100;
const SESSIONS: u32 = 50;
const CALLS: u32 = 4;
const BODY: usize = 64 << 10;
/// Factor by which the flooding owner exceeds its limits.
const TIMES: u32 = 10;
/// Number of calls of the measured owner in one turn, one in each pause: below its own limit.
const MEASURED: usize = 400;
const PAUSE: Duration = Duration::from_millis(12);
const TURNS: usize = 7;
const TARGET: f64 = 1.5;
/// Number of refusals of each kind.
const REFUSALS: usize = 4_000;

/// Runs the measurement.
pub(super) async fn run() {
    let server = HttpServer::start();
    let limits = json!({
        "sessions_per_owner": SESSIONS, "calls_per_session": CALLS, "body": BODY,
        "per_owner": { "requests_per_second": REQUESTS },
    });
    head(&format!(
        "An owner at {TIMES} times its limits ({REQUESTS} requests a second, {SESSIONS} sessions, {CALLS} calls \
         in flight, bodies of {} KiB), and another; {TURNS} turns",
        BODY >> 10
    ));
    let measured = async {
        let running = gateway(&server.url, limits).await?;
        beside(&running).await.map_err(|error| error.to_string())
    };
    tell(measured.await);
    head(
        "How long it takes to be told that there is no such session: of somebody else's, and of one that never was",
    );
    let measured = async {
        let limits = json!({ "per_owner": { "requests_per_second": "unlimited" } });
        let running = gateway(&server.url, limits).await?;
        refusals(&running).await.map_err(|error| error.to_string())
    };
    tell(measured.await);
}

fn tell(measured: Result<(), String>) {
    if let Err(why) = measured {
        println!("  not measured: {why}");
    }
}

/// Starts the gateway with these limits. The header `x-user` names the owner.
pub(super) async fn gateway(url: &str, limits: Value) -> Result<Running, String> {
    let gateway = std::env::var("STAYPUT_BENCH_GATEWAY")
        .map_err(|_| "STAYPUT_BENCH_GATEWAY does not name it; run `make bench ARGS=limits`")?;
    let auth = json!({ "proxy": { "header": "x-user" } });
    let long_list = url.replace("/mcp", LONG_LIST_PATH);
    let config = json!({
        "mcpServers": { "counter": { "url": url }, "long": { "url": long_list } },
        "stayput": { "limits": limits, "auth": auth },
    });
    Running::start_as(
        "x-user: first\r\n",
        "stayput",
        "/mcp/counter",
        contenders::serving(gateway, config),
    )
    .await
}

/// Returns the target for requests of this owner.
pub(super) fn target_of(running: &Running, owner: &str) -> Target {
    Target { more: format!("x-user: {owner}\r\n"), ..running.target.clone() }
}

/// Measures turns without and with a flood, alternately.
async fn beside(running: &Running) -> io::Result<()> {
    let bob = target_of(running, "bob");
    let mut client = Client::connect(bob.address).await?;
    let mut session = Session::open(&mut client, &bob).await?;
    paced(&mut client, &mut session).await?;
    let (mut quiet, mut loud, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (counts, mut flooded) = (Arc::<Counts>::default(), Duration::ZERO);
    for _ in 0..TURNS {
        let in_quiet = paced(&mut client, &mut session).await?;
        let (flood, start) = (Flood::begin(&target_of(running, "ann"), &counts), Instant::now());
        let beside = paced(&mut client, &mut session).await?;
        flooded += start.elapsed();
        flood.end();
        ratios.push(beside / in_quiet);
        quiet.push(in_quiet);
        loud.push(beside);
    }
    let each = |count: &AtomicU64| count.load(Ordering::SeqCst) as f64 / flooded.as_secs_f64();
    let [run, refused, busy, large] =
        [&counts.run, &counts.refused, &counts.busy, &counts.large].map(each);
    line(
        "asked for too much: run, too fast, too many, too large",
        &format!("{run:.0}/s, {refused:.0}/s, {busy:.0}/s, {large:.0}/s"),
        Some(("most are refused", refused > run && busy > 0.0 && large > 0.0)),
    );
    line("p99 of the other one in quiet", &format!("{:.0} µs", middle(quiet)), None);
    line("p99 of the other one beside the flood", &format!("{:.0} µs", middle(loud)), None);
    let ratio = middle(ratios);
    line("of that in quiet", &format!("{ratio:.2}"), Some(("≤ 1.5", ratio <= TARGET)));
    line("the other one was counted right", "", Some(("each call once", session.alone)));
    Ok(())
}

/// Returns the 99th percentile of sequential calls in microseconds.
pub(super) async fn paced(client: &mut Client, session: &mut Session) -> io::Result<f64> {
    let mut times = Vec::with_capacity(MEASURED);
    let mut next = tokio::time::interval(PAUSE);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for _ in 0..MEASURED {
        next.tick().await;
        let start = Instant::now();
        session.count(client).await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[MEASURED * 99 / 100].as_secs_f64() * 1e6)
}

/// Outcomes of the flooding owner's requests.
#[derive(Default)]
struct Counts {
    run: AtomicU64,
    /// Over the rate: status 429.
    refused: AtomicU64,
    /// Too many calls in flight, or sessions.
    busy: AtomicU64,
    /// Too large.
    large: AtomicU64,
}

/// Flooding owner, on a separate thread.
struct Flood {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Flood {
    fn begin(target: &Target, counts: &Arc<Counts>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let each = Abuse { target: target.clone(), counts: counts.clone(), over: over.clone() };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(each.run());
        });
        Self { over, thread }
    }

    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = self.thread.join();
    }
}

/// All limits that an owner can exceed at once.
#[derive(Clone)]
struct Abuse {
    target: Target,
    counts: Arc<Counts>,
    over: Arc<AtomicBool>,
}

/// Returns a request by its number.
type Asking<'a> = &'a dyn Fn(u32) -> Vec<u8>;

impl Abuse {
    async fn run(self) {
        let Ok(mut client) = Client::connect(self.target.address).await else { return };
        // At the limit there may be no session: then the calls name none.
        let session = Session::open(&mut client, &self.target).await.ok();
        let name = session.as_ref().and_then(Session::name).unwrap_or_default().to_owned();
        let call = |tool: &str, id: u32| session::call(&self.target, &name, tool, id);
        let large = "x".repeat(BODY * TIMES as usize);
        let kinds: [(Asking<'_>, u32, u32); 4] = [
            (&|id| call("count", id), 5, REQUESTS * TIMES * 6 / 10),
            (&|_| session::hello(&self.target), 2, REQUESTS * TIMES * 2 / 10),
            (&|id| call("wait", 1_000 + id), CALLS * TIMES, REQUESTS * TIMES * 2 / 10),
            (&|id| call(&large, 2_000 + id), 2, 20),
        ];
        let mut tasks = Vec::new();
        // Number of connections, and requests per second on all of them together.
        for (request, connections, rate) in kinds {
            let pause = Duration::from_secs(1) * connections / rate;
            for id in 0..connections {
                tasks.push(tokio::spawn(self.clone().asks(request(id), pause)));
            }
        }
        // Clients that do not read their answers, and clients that do not complete their requests.
        for id in 0..TIMES {
            let (large, half) = (call("large", 3_000 + id), call("count", 4_000 + id));
            let whole = large.len();
            tasks.push(tokio::spawn(self.clone().stalls(large, whole)));
            tasks.push(tokio::spawn(self.clone().stalls(half, 20)));
        }
        for task in tasks {
            let _ = task.await;
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Repeats the same request with this pause.
    async fn asks(self, request: Vec<u8>, pause: Duration) {
        let mut client = None;
        let mut next = tokio::time::interval(pause);
        while !self.is_over() {
            next.tick().await;
            let mut own = match client.take() {
                Some(own) => own,
                None => match Client::connect(self.target.address).await {
                    Ok(own) => own,
                    Err(_) => continue,
                },
            };
            let counts = &self.counts;
            let counter = match own.send(&request).await {
                Ok(reply) if reply.status == 413 => &counts.large,
                Ok(reply) if reply.status == 429 && reply.has("per_owner") => &counts.refused,
                Ok(reply) if reply.status == 429 || reply.has("limits.") => &counts.busy,
                Ok(_) => &counts.run,
                // Closed while it was still sending: the answer is lost.
                Err(_) => {
                    counts.large.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
            };
            counter.fetch_add(1, Ordering::SeqCst);
            client = Some(own);
        }
    }

    /// Sends a part of a request, or all of it, and reads nothing.
    async fn stalls(self, request: Vec<u8>, part: usize) {
        let Ok(mut socket) = TcpStream::connect(self.target.address).await else { return };
        let _ = socket.write_all(&request[..part]).await;
        while !self.is_over() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Measures both kinds of refusals in turn, for a call and for `DELETE`.
async fn refusals(running: &Running) -> io::Result<()> {
    let (ann, bob) = (target_of(running, "ann"), target_of(running, "bob"));
    let mut client = Client::connect(ann.address).await?;
    let session = Session::open(&mut client, &ann).await?;
    let foreign = session.name().unwrap_or_default().to_owned();
    let never: String = foreign.chars().enumerate().map(|(at, c)| other(at, c)).collect();
    for what in ["POST", "GET", "DELETE"] {
        let requests = [&foreign, &never].map(|name| match what {
            "POST" => session::call(&bob, name, "count", 1),
            method => session::bare(method, &bob, name),
        });
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..REFUSALS * 2 {
            // The order alternates, too.
            let which = (number + number / 2) % 2;
            let start = Instant::now();
            let status = client.send(&requests[which]).await?.status;
            times[which].push(start.elapsed().as_secs_f64() * 1e6);
            if status != 404 {
                return Err(io::Error::other(format!("a foreign session answered {status}")));
            }
        }
        let [foreign, never] = times;
        let chance = likeness(&foreign, &never);
        let (foreign, never) = (middle(foreign), middle(never));
        let ratio = foreign / never;
        let value = format!("{foreign:.1} µs, {never:.1} µs, {ratio:.3}; p = {chance:.2}");
        let near = (ratio - 1.0).abs() <= 0.02;
        line(&format!("{what}: p50 foreign, unknown, ratio"), &value, Some(("within 2 %", near)));
    }
    Ok(())
}

/// Returns the probability that two samples with this difference have the same distribution (Mann–Whitney, two-sided).
fn likeness(some: &[f64], others: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = some.iter().map(|it| (*it, true)).collect();
    all.extend(others.iter().map(|it| (*it, false)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (n, m) = (some.len() as f64, others.len() as f64);
    let ranks = all.iter().enumerate().filter(|(_, it)| it.1).map(|(rank, _)| rank as f64 + 1.0);
    let u = ranks.sum::<f64>() - n * (n + 1.0) / 2.0;
    let z = (u - n * m / 2.0).abs() / (n * m * (n + m + 1.0) / 12.0).sqrt();
    // Complementary error function, after Abramowitz and Stegun 7.1.26.
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, it| (sum + it) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

/// Returns another letter, after the prefix of a name.
fn other(at: usize, c: char) -> char {
    match c {
        'a'..='y' if at >= 3 => char::from(c as u8 + 1),
        c => c,
    }
}
