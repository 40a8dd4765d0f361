//! One owner that sends costly requests within its limits, and the latency of another owner meanwhile.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use serde_json::json;
use tokio::runtime::Builder;

use super::{
    client::Client,
    limits::{gateway, paced, target_of},
    running::Running,
    session::{self, Session, Target},
};
use crate::{
    report::{head, line, middle},
    server::{HttpServer, LONG_LIST},
};

/// Number of connections of the attacker.
const CONNECTIONS: usize = 16;
/// Bytes of each large body: just below the default of `limits.body`.
const BODY: usize = 31 << 20;
/// Default of `limits.per_owner.bodies` in bytes.
const BODY_BUDGET: u64 = 64 << 20;
/// Memory that answers, sockets and the allocator may take beside the bodies.
const OVERHEAD: u64 = 48 << 20;
const TURNS: usize = 5;
const TARGET: f64 = 5.0;

/// Request that the attacker repeats on each of its connections.
struct Attack {
    name: &'static str,
    request: Arc<[u8]>,
    /// Maximum growth of the gateway's memory in bytes, if the attack is on memory.
    memory: Option<u64>,
}

/// Runs the measurement, with default limits.
pub(super) async fn run() {
    let server = HttpServer::start();
    head(&format!(
        "An owner with costly requests on {CONNECTIONS} connections, and another owner; {TURNS} turns"
    ));
    let measured = async {
        let running = gateway(&server.url, json!({})).await?;
        attack_in_turn(&running).await.map_err(|error| error.to_string())
    };
    if let Err(why) = measured.await {
        println!("  not measured: {why}");
    }
}

async fn attack_in_turn(running: &Running) -> io::Result<()> {
    let ann = target_of(running, "ann");
    let long = Target { path: "/mcp/long".to_owned(), ..ann.clone() };
    let mut client = Client::connect(long.address).await?;
    let connection = Session::open(&mut client, &long).await?;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let list = session::request(&long, connection.name(), list);
    let length = client.send(&list).await?.body.len();
    if length < LONG_LIST * 9 / 10 {
        return Err(io::Error::other(format!("the long list has only {length} bytes")));
    }
    let attacks = [
        Attack {
            name: "bodies of 31 MiB with millions of `_meta` members",
            request: large_body(&ann).into(),
            memory: Some(BODY_BUDGET + OVERHEAD),
        },
        Attack { name: "`tools/list` of 3 MiB", request: list.into(), memory: None },
    ];
    for attack in attacks {
        measure(running, &ann, &attack).await?;
    }
    Ok(())
}

/// Returns a request whose `_meta` has as many members as its size allows.
fn large_body(target: &Target) -> Vec<u8> {
    let members = r#""":0,"#.repeat(BODY / 5);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{members}"x":0}}}}}}"#
    );
    session::request(target, None, &body)
}

/// Measures turns without and with the attack, alternately.
async fn measure(running: &Running, ann: &Target, attack: &Attack) -> io::Result<()> {
    let bob = target_of(running, "bob");
    let mut client = Client::connect(bob.address).await?;
    let mut session = Session::open(&mut client, &bob).await?;
    paced(&mut client, &mut session).await?;
    let before = running.peak_memory();
    let (mut quiet, mut loud, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let requests = Arc::new(AtomicU64::new(0));
    for _ in 0..TURNS {
        let in_quiet = paced(&mut client, &mut session).await?;
        let flood = Flood::begin(ann, attack, &requests);
        let beside = paced(&mut client, &mut session).await?;
        flood.end();
        ratios.push(beside / in_quiet);
        quiet.push(in_quiet);
        loud.push(beside);
    }
    let count = requests.load(Ordering::SeqCst);
    line(attack.name, &format!("{count} requests"), Some(("some", count > 0)));
    let (quiet, loud, ratio) = (middle(quiet), middle(loud), middle(ratios));
    line(
        "  p99 of the other owner, quiet and attacked",
        &format!("{quiet:.0}, {loud:.0} µs"),
        None,
    );
    line("  of that in quiet", &format!("{ratio:.2}"), Some(("< 5", ratio < TARGET)));
    if let Some(allowed) = attack.memory {
        let more = running.peak_memory().saturating_sub(before);
        let target = format!("≤ {} MiB", allowed >> 20);
        line("  memory", &format!("{} MiB", more >> 20), Some((&target, more <= allowed)));
    }
    line("  the other owner was counted right", "", Some(("each call once", session.alone)));
    Ok(())
}

/// Threads of the attacker, one for each connection.
struct Flood {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn begin(target: &Target, attack: &Attack, requests: &Arc<AtomicU64>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = |_| {
            let (over, requests) = (over.clone(), requests.clone());
            let (request, address) = (attack.request.clone(), target.address);
            std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    while !over.load(Ordering::SeqCst) {
                        let Ok(mut client) = Client::connect(address).await else { continue };
                        // The gateway may refuse the request and close the connection while it is being sent.
                        while !over.load(Ordering::SeqCst) {
                            let sent = client.send(&request).await;
                            requests.fetch_add(1, Ordering::SeqCst);
                            if sent.is_err() {
                                break;
                            }
                        }
                    }
                });
            })
        };
        Self { threads: (0..CONNECTIONS).map(thread).collect(), over }
    }

    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
