//! Thousands of links opened and closed, killed and cancelled, and the memory that is left.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use stayput_testkit::processes::{descendants, memory, own_open_files};
use stayput_upstream::{CallOptions, LinkOpenOptions, Links, PooledLink, Server};
use tokio::{runtime::Handle, time::timeout};

use crate::{
    HEAP,
    links::ours::{self, Host},
    report::{head, line},
    server::{HttpServer, program},
};

/// Number of concurrent workers.
const WORKERS: usize = 16;
/// Links before the first measurement, so that shared data and the buffers of every thread exist.
const START: usize = 500;
const HALF: usize = 5_000;
/// Timeout that no successful operation reaches.
const LONG: Duration = Duration::from_secs(60);

/// Settings of glibc's allocator. Resident memory is a high-water mark: by default each thread that contends in the
/// allocator gets its own arena, each arena keeps the pages of its peak, and large blocks come from arenas, too, after
/// a block of that size was freed. The peaks at link 5,000 and at link 10,000 are random. With one arena that returns
/// free pages, and with large blocks outside of it, most of the resident memory is in use. The used memory is also
/// counted by the heap. Values that are already set in the environment are kept.
const KEEPING: [(&str, &str); 4] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "32768"),
    ("MALLOC_TRIM_THRESHOLD_", "0"),
    ("MALLOC_TOP_PAD_", "0"),
];

/// Runs it in a separate process, because glibc reads the settings when a process starts.
pub(crate) fn run() {
    let missing = KEEPING.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let missing: Vec<_> = missing.collect();
    if !missing.is_empty() {
        let soak = Command::new(program()).arg("soak").envs(missing).status();
        assert!(soak.unwrap().success(), "the soak did not come to its end");
        return;
    }
    // Blocking threads leave their stacks behind, and their peak number is random, too. So all useful threads exist
    // from the beginning, and stay.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(WORKERS)
        .thread_keep_alive(Duration::from_secs(3_600))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(soak());
}

async fn soak() {
    head("Soak: 10,000 links, half of them over stdio, with random kills and cancellations");
    let began = Instant::now();
    let links = ours::links(Host::Local);
    let told = Arc::new(Told::default());
    let mut http = HttpServer::start();
    let start = many(&links, &told, START, &mut http).await;
    let half = many(&links, &told, HALF - START, &mut http).await;
    let end = many(&links, &told, HALF, &mut http).await;
    told.show();
    let kibibytes = |bytes: [u64; 3]| bytes.map(|bytes| (bytes >> 10).to_string()).join(" ");
    line(
        "KiB resident at the start, at 5,000, at 10,000",
        &kibibytes([start.resident, half.resident, end.resident]),
        None,
    );
    line(
        "KiB of heap at the start, at 5,000, at 10,000",
        &kibibytes([start.heap, half.heap, end.heap]),
        None,
    );
    let growth = end.resident as f64 / half.resident as f64 - 1.0;
    line(
        "resident memory from link 5,000 to 10,000",
        &format!("{:+.2} %", growth * 100.0),
        Some(("< 2 %", growth < 0.02)),
    );
    // Remaining bytes of each link, if any: tables that are larger by chance amount to less.
    let left = (end.heap as f64 - half.heap as f64) / HALF as f64;
    line(
        "bytes of heap for each link from 5,000 to 10,000",
        &format!("{left:+.1}"),
        Some(("< 16", left < 16.0)),
    );
    let counts = |at: &Left| [at.descriptors, at.children, at.tasks];
    for (n, what) in ["descriptors", "children", "tasks"].into_iter().enumerate() {
        let [start, half, end] = [&start, &half, &end].map(|at| counts(at)[n]);
        line(
            &format!("{what} at the start, at 5,000, at 10,000"),
            &format!("{start} {half} {end}"),
            Some(("equal", start == half && half == end)),
        );
    }
    line("seconds", &format!("{:.0}", began.elapsed().as_secs_f64()), None);
    ours::close(&links).await;
}

/// Resources while nothing runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    resident: u64,
    heap: u64,
    descriptors: usize,
    children: usize,
    tasks: usize,
}

impl Left {
    fn now() -> Self {
        let me = std::process::id();
        Self {
            resident: memory(me),
            heap: HEAP.allocated() as u64,
            descriptors: own_open_files(),
            children: descendants(me).len(),
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// Waits until the numbers are stable for a second. Counted resources are released, but not at once.
    async fn settled() -> Self {
        tokio::time::sleep(Duration::from_secs(12)).await;
        let mut seen = Self::now();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = Self::now();
            let counts = |at: Self| (at.descriptors, at.children, at.tasks);
            if counts(now) == counts(seen) {
                return now;
            }
            seen = now;
        }
        seen
    }
}

/// Counts of events, to check that they happened.
#[derive(Default)]
struct Told {
    links: AtomicUsize,
    kills: AtomicUsize,
    given_up: AtomicUsize,
    cancelled: AtomicUsize,
    failed: AtomicUsize,
}

impl Told {
    fn show(&self) {
        for (what, count) in [
            ("links asked for", &self.links),
            ("given up while they were opened", &self.given_up),
            ("children killed", &self.kills),
            ("calls cancelled", &self.cancelled),
            ("calls that failed, those on killed children among them", &self.failed),
        ] {
            line(what, &count.load(Ordering::Relaxed).to_string(), None);
        }
    }
}

/// Opens and closes this many links, and returns what is left after their end. The HTTP server is restarted at the
/// end, which cuts the pooled connections.
async fn many(links: &Links, told: &Arc<Told>, count: usize, http: &mut HttpServer) -> Left {
    let servers = [ours::over_stdio(0), ours::over_http(&http.url)];
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (links, told, next) = (links.clone(), told.clone(), next.clone());
            let servers = servers.clone();
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    let life = Life { links: &links, told: &told, server: &servers[n % 2] };
                    timeout(LONG, life.live()).await.unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    http.restart();
    Left::settled().await
}

/// One session with one link.
struct Life<'a> {
    links: &'a Links,
    told: &'a Told,
    server: &'a Server,
}

impl Life<'_> {
    async fn live(&self) {
        let place = ours::place();
        count(&self.told.links);
        let asking = LinkOpenOptions::default();
        let opening = self.links.open(self.server, &place, &asking);
        if chance(6) {
            // The opener is dropped at a random moment.
            let patience = Duration::from_micros(random() % 5_000);
            if let Ok(link) = timeout(patience, opening).await {
                self.work(&link.unwrap()).await;
            } else {
                count(&self.told.given_up);
            }
        } else {
            self.work(&opening.await.unwrap()).await;
        }
        let _ = self.links.end(place.session).await;
    }

    async fn work(&self, link: &PooledLink) {
        for _ in 0..random() % 4 {
            self.call(link, "large").await;
        }
        if self.server.is_process() && chance(3) {
            self.kill(link).await;
        }
        if chance(2) {
            self.cancel(link).await;
        }
        self.call(link, "small").await;
    }

    async fn call(&self, link: &PooledLink, tool: &str) -> Option<String> {
        let params = format!(r#"{{"name":"{tool}"}}"#);
        let called = link.call("tools/call", Some(&params), CallOptions::default()).await;
        let answer = match called {
            Ok(call) => call.answer().await,
            Err(error) => Err(error),
        };
        if answer.is_err() {
            count(&self.told.failed);
        }
        Some(answer.ok()?.result()?.to_owned())
    }

    /// Kills the child during a call.
    async fn kill(&self, link: &PooledLink) {
        let Some(said) = self.call(link, "pid").await else { return };
        let pid: String = said.chars().filter(char::is_ascii_digit).collect();
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        let call =
            link.call("tools/call", Some(r#"{"name":"large"}"#), CallOptions::default()).await;
        // The child leads a group and is not reaped before the link ends, so the pid is still the same process.
        if link.loss().is_none() && kill_process(pid, Signal::KILL).is_ok() {
            count(&self.told.kills);
        }
        if let Ok(call) = call {
            let _ = call.answer().await;
        }
    }

    /// Drops a call in flight.
    async fn cancel(&self, link: &PooledLink) {
        let call =
            link.call("tools/call", Some(r#"{"name":"large"}"#), CallOptions::default()).await;
        if let Ok(call) = call {
            let patience = Duration::from_micros(random() % 500);
            if timeout(patience, call.answer()).await.is_err() {
                count(&self.told.cancelled);
            }
        }
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns true once in this many times.
fn chance(in_how_many: u64) -> bool {
    random().is_multiple_of(in_how_many)
}

fn random() -> u64 {
    getrandom::u64().unwrap()
}
