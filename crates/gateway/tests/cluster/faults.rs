//! Seeded faults of three replicas, their network and their database, while clients call without retries.
//!
//! `make chaos SEED=7 TRIALS=200` runs many trials.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stayput_testkit::{Random, Relay, processes};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    stage::{Engine, LEASE, Stage},
    stall_meter::StallMeter,
    support::{LONG, gone, mark},
    writer::{Answers, Writer},
};

/// Servers behind the replicas.
const SERVERS: [&str; 2] = ["local", "web"];

/// Clients: two legacy ones and a modern one for each server. The second legacy one goes on calling the replica with the
/// fault; the balancer of the others knows of it.
const CLIENTS: usize = 6;

/// Legacy ones among them, which come first.
const LEGACY: usize = 4;

/// Processes of their sessions on stdio, and the one that each replica has started to learn what the server is, which waits
/// for a session of its own.
const MAX_PROCESSES: usize = CLIENTS / SERVERS.len() + 3;

/// Time of the trial before the fault and after it.
const MARGIN: Duration = Duration::from_millis(150);

/// Time for which the bytes of a partition are lost, or the replica is stopped, at most.
const LONGEST_FAULT: Duration = LEASE.saturating_mul(7).checked_div(4).unwrap();

/// Pause of a client between two calls.
const CALL_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time of a request beyond that of the fault: two seconds after the lease a gateway gives up.
const REQUEST_LIMIT: Duration = LEASE.saturating_add(Duration::from_secs(8));

/// Time in which a session on an HTTP server answers again.
const RECOVERY: Duration = LEASE.saturating_add(Duration::from_secs(1));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9`; started again after a while.
    Kill,
    /// SIGSTOP, and SIGCONT after a while.
    Freeze,
    /// The replica does not reach the database.
    LoseStore,
    /// The other replicas do not reach this one.
    LosePeers,
    /// No replica reaches another one.
    LoseAllPeers,
    /// The replica does not reach the database, and the others do not reach it.
    Isolate,
    /// The database is killed, and started again after a while.
    RestartStore,
}

const FAULTS: [Fault; 7] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::LoseStore,
    Fault::LosePeers,
    Fault::LoseAllPeers,
    Fault::Isolate,
    Fault::RestartStore,
];

impl Fault {
    /// Whether sessions may be out of reach for as long as the fault lasts, because their holder keeps its lease or nobody
    /// can get one.
    fn hides_holders(self) -> bool {
        matches!(self, Self::LosePeers | Self::LoseAllPeers | Self::RestartStore)
    }
}

/// One trial, as the seed has drawn it.
#[derive(Clone, Debug)]
struct Trial {
    number: usize,
    fault: Fault,
    /// Replica with the fault.
    target: usize,
    /// Whether a partition holds bytes back, instead of closing connections.
    holds: bool,
    delay: Duration,
    pause: Duration,
    /// Legacy client that is replaced after it.
    replaced: usize,
}

impl Trial {
    fn draw(number: usize, fault: Fault, random: &mut Random) -> Self {
        let mut millis = |limit: Duration| {
            Duration::from_millis(random.below(usize::try_from(limit.as_millis()).unwrap()) as u64)
        };
        let (delay, pause) = (millis(MARGIN), MARGIN + millis(LONGEST_FAULT));
        let (target, holds) = (random.below(3), random.percent(50));
        Self { number, fault, target, holds, delay, pause, replaced: random.below(LEGACY) }
    }

    fn interrupt(&self, relay: &Relay) {
        if self.holds { relay.hold() } else { relay.refuse() }
    }

    /// Injects the fault, and mends it.
    async fn inject(&self, stage: &mut Stage) {
        let target = &mut stage.replicas[self.target];
        match self.fault {
            Fault::Kill => {
                target.kill(&format!("{self:?}")).await;
                sleep(self.pause).await;
                target.gateway.restart().await;
            }
            Fault::Freeze => {
                target.gateway.signal("-STOP");
                sleep(self.pause).await;
                target.gateway.signal("-CONT");
            }
            Fault::RestartStore => stage.restart_database(self.pause).await,
            _ => {
                let relays = self.relays(stage);
                relays.iter().for_each(|relay| self.interrupt(relay));
                sleep(self.pause).await;
                relays.iter().for_each(|relay| relay.pass());
            }
        }
    }

    /// Returns the relays that a partition interrupts.
    fn relays<'a>(&self, stage: &'a Stage) -> Vec<&'a Relay> {
        let target = &stage.replicas[self.target];
        match self.fault {
            Fault::LoseStore => vec![&target.store],
            Fault::LosePeers => vec![&target.internal],
            Fault::Isolate => vec![&target.store, &target.internal],
            Fault::LoseAllPeers => stage.replicas.iter().map(|it| &it.internal).collect(),
            Fault::Kill | Fault::Freeze | Fault::RestartStore => Vec::new(),
        }
    }
}

/// Counts of all trials.
#[derive(Debug, Default)]
struct Totals {
    faults: [usize; FAULTS.len()],
    answers: Answers,
    /// Longest time without an answer of a session on the HTTP server, while its holder was replaced.
    longest_gap: Duration,
    /// Gaps that were longer than promised, while the machine had no processor for its threads.
    excused: usize,
    slowest: Duration,
}

fn server_of(client: usize) -> &'static str {
    SERVERS[client % SERVERS.len()]
}

/// Whether the balancer of this client knows of a replica with a fault.
fn is_careful(client: usize) -> bool {
    client / SERVERS.len() != 1
}

async fn open(stage: &Stage, client: usize, name: String) -> Writer {
    match client / SERVERS.len() {
        2 => Writer::modern(name),
        _ => {
            let mut urls = stage.urls(server_of(client), None);
            // The first replica that gets the session's requests holds it.
            let count = urls.len();
            urls.rotate_left(client % count);
            let mut writer = Writer::open(&urls, name).await;
            writer.write(&urls[0]).await;
            writer
        }
    }
}

/// Lets a client write, at one replica after the other, until it is told to stop.
fn spawn_client(
    mut writer: Writer,
    urls: Vec<String>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Writer> {
    writer.begin_trial();
    tokio::runtime::Handle::current().spawn(async move {
        for url in urls.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            writer.write(url).await;
            sleep(CALL_INTERVAL).await;
        }
        writer
    })
}

/// Runs one trial: all clients write while the fault happens, and are compared with their servers after it.
async fn run_trial(
    stage: &mut Stage,
    clients: &mut Vec<Writer>,
    trial: &Trial,
    totals: &mut Totals,
) {
    let (stop, meter) = (Arc::new(AtomicBool::new(false)), StallMeter::start());
    let single = !matches!(trial.fault, Fault::LoseAllPeers | Fault::RestartStore);
    let running: Vec<_> = std::mem::take(clients)
        .into_iter()
        .enumerate()
        .map(|(client, writer)| {
            let without = (single && is_careful(client)).then_some(trial.target);
            spawn_client(writer, stage.urls(server_of(client), without), stop.clone())
        })
        .collect();
    sleep(trial.delay).await;
    let start = Instant::now();
    trial.inject(stage).await;
    let lasted = start.elapsed();
    // Sessions on processes of a holder that died answer after its lease, too.
    let rest = RECOVERY.saturating_sub(lasted).min(MARGIN);
    sleep(rest).await;
    stop.store(true, Ordering::Relaxed);
    clients.extend(join_all(running).await.into_iter().map(Result::unwrap));
    check_clients(stage, clients, trial, (lasted, &meter, totals)).await;
    check_processes(stage, clients, trial, totals).await;
}

/// Compares all clients with their servers, and how long they waited with what is promised.
async fn check_clients(
    stage: &Stage,
    clients: &mut [Writer],
    trial: &Trial,
    (lasted, meter, totals): (Duration, &StallMeter, &mut Totals),
) {
    let text = format!("{trial:?}");
    let hidden = if trial.fault.hides_holders() { lasted } else { Duration::ZERO };
    for (client, writer) in clients.iter_mut().enumerate() {
        writer.verify(&stage.urls(server_of(client), None), &text).await;
        let Writer { longest_gap, slowest, answers, .. } = writer;
        assert!(*slowest < lasted + REQUEST_LIMIT, "{text}: a request took {slowest:?}");
        let is_web = server_of(client) == "web";
        assert!(answers.losses <= usize::from(!is_web), "{text}: {answers:?} {}", stage.logs());
        if is_web && is_careful(client) {
            let gap = longest_gap.1 - longest_gap.0;
            // A request passes three processes.
            let stalled = 3 * meter.waited_in(*longest_gap);
            let limit = hidden + RECOVERY;
            assert!(gap < limit + stalled, "{text}: silent for {gap:?} {}", stage.logs());
            totals.excused += usize::from(gap >= limit);
            totals.longest_gap = totals.longest_gap.max(gap.saturating_sub(hidden));
        }
        totals.slowest = totals.slowest.max(*slowest);
        totals.answers.add(&std::mem::take(answers));
    }
}

/// Replaces one client, and checks that no process of an ended session stays.
async fn check_processes(
    stage: &Stage,
    clients: &mut [Writer],
    trial: &Trial,
    totals: &mut Totals,
) {
    totals.faults[trial.fault as usize] += 1;
    let urls = stage.urls(server_of(trial.replaced), None);
    clients[trial.replaced].delete(&urls).await;
    let new = format!("c{}t{}", trial.replaced, trial.number);
    clients[trial.replaced] = open(stage, trial.replaced, new).await;
    let ended = async {
        while let servers = stage.servers()
            && servers.len() > MAX_PROCESSES
        {
            processes::wait_for_exit(&servers).await;
        }
    };
    let ended = timeout(LONG, ended).await;
    assert!(ended.is_ok(), "{trial:?}: {:?} {}", stage.servers(), stage.logs());
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |it| it.parse().unwrap())
}

/// Runs all kinds of faults in turn, in an order that the seed draws anew each time.
#[allow(clippy::print_stdout, reason = "the totals are the result of a long run")]
async fn check_faults(engine: Engine, name: &str) {
    let (seed, trials) = (number("STAYPUT_CHAOS_SEED", 1), number("STAYPUT_CHAOS_TRIALS", 14));
    let (mark, mut random) = (mark(name), Random::new(seed));
    let mut stage = Stage::start(engine, &mark).await;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        clients.push(open(&stage, client, format!("c{client}")).await);
    }
    let (mut totals, mut deck, start) = (Totals::default(), Vec::new(), Instant::now());
    for number in 0..usize::try_from(trials).unwrap() {
        if deck.is_empty() {
            deck.extend(FAULTS);
        }
        let fault = deck.swap_remove(random.below(deck.len()));
        let trial = Trial::draw(number, fault, &mut random);
        println!("{:?}: {trial:?}", start.elapsed());
        run_trial(&mut stage, &mut clients, &trial, &mut totals).await;
    }
    let Totals { faults, answers, longest_gap, excused, slowest } = totals;
    let Answers { acknowledged, unreached, refused, uncertain, losses } = answers;
    println!(
        "{engine:?}, seed {seed}: {trials} faults in {:?}, {faults:?} of {FAULTS:?}; {acknowledged} calls acknowledged, \
         {unreached} not sent, {refused} refused, {uncertain} uncertain, {losses} losses reported; 0 ran twice, 0 lost silently, 0 losses of \
         HTTP sessions, which were silent for {longest_gap:?} at most, {excused} times longer than promised on a busy machine; slowest request {slowest:?}; 0 processes left",
        start.elapsed()
    );
    drop(stage);
    gone(&mark).await;
}

/// §7, invariants 2, 3, 5 and 12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_replicas_break_no_promise_on_postgres() {
    check_faults(Engine::Postgres, "faults-postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_replicas_break_no_promise_on_redis() {
    check_faults(Engine::Redis, "faults-redis").await;
}
