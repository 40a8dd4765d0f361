//! Cost of identifying the session of a call: by its connection, by an argument, by the hint of a host.

use std::{io, time::Duration};

use super::{
    contenders,
    load::{self, Caller, Took},
    running::Running,
};
use crate::{
    report::{head, line},
    server::HttpServer,
};

/// Number of sessions of each kind, each with a caller.
const SESSIONS: usize = 30;
const ROUNDS: usize = 9;
const TURN: Duration = Duration::from_millis(600);
/// Number of calls of a single caller.
const ALONE: usize = 300;
/// Target for the cost of a call, relative to one that its connection identifies.
const TARGET: f64 = 1.15;

/// Name source of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Connection,
    Argument,
    Hint,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Connection => "by Mcp-Session-Id",
            Self::Argument => "by an argument",
            Self::Hint => "by a hint",
        }
    }
}

/// Callers with one name source.
struct Way {
    by: By,
    callers: Vec<Caller>,
    took: Took,
    alone: f64,
}

/// Runs the measurement.
pub(super) async fn run() {
    let server = HttpServer::start();
    match measure(&server).await {
        Ok(ways) => show(&ways),
        Err(why) => println!("\n  not measured: {why}"),
    }
}

/// Starts Stayput in front of the counter, with handle arguments for all clients.
async fn gateway(url: &str) -> Result<Running, String> {
    let gateway = std::env::var("STAYPUT_BENCH_GATEWAY")
        .map_err(|_| "STAYPUT_BENCH_GATEWAY does not name it; run `make bench ARGS=identify`")?;
    let counter = serde_json::json!({ "url": url, "stayput": { "handles": "always" } });
    let limits = serde_json::json!({ "sessions_per_owner": 10_000 });
    let config = serde_json::json!({
        "mcpServers": { "counter": counter }, "stayput": { "limits": limits },
    });
    Running::start("stayput", "/mcp/counter", contenders::serving(gateway, config)).await
}

async fn measure(server: &HttpServer) -> Result<Vec<Way>, String> {
    let running = gateway(&server.url).await?;
    let measured = async {
        let mut ways = Vec::new();
        for by in [By::Connection, By::Argument, By::Hint] {
            let callers = callers(&running, by).await?;
            ways.push(Way { by, callers, took: Took::WORST, alone: f64::INFINITY });
        }
        for _ in 0..ROUNDS {
            for way in &mut ways {
                let callers = std::mem::take(&mut way.callers);
                let (callers, took) = load::run(&running, callers, TURN).await?;
                way.callers = callers;
                way.took = way.took.best(took);
                let alone = load::median(&mut way.callers[0], ALONE).await?;
                way.alone = way.alone.min(alone);
            }
        }
        io::Result::Ok(ways)
    };
    measured.await.map_err(|error| error.to_string())
}

async fn callers(running: &Running, by: By) -> io::Result<Vec<Caller>> {
    let target = &running.target;
    let mut callers = Vec::with_capacity(SESSIONS);
    for number in 0..SESSIONS {
        let caller = Caller::naming(target, async |client, session| {
            Ok(match by {
                By::Connection => session,
                By::Hint => {
                    let meta = format!(r#"{{"vscode.conversationId":"chat-{number}"}}"#);
                    session.saying(target, "{}", &meta)
                }
                By::Argument => {
                    let said = session.ask(client, target, "session_start").await?;
                    let handle = said.find("sp_").and_then(|at| said.get(at..at + 35));
                    let handle = handle.ok_or_else(|| io::Error::other(said.clone()))?;
                    session.saying(target, &format!(r#"{{"session_id":"{handle}"}}"#), "{}")
                }
            })
        });
        callers.push(caller.await?);
    }
    Ok(callers)
}

fn show(ways: &[Way]) {
    head(&format!(
        "Which session is meant: {SESSIONS} sessions at once, HTTP to HTTP; best of {ROUNDS} turns"
    ));
    let Some(own) = ways.iter().find(|way| way.by == By::Connection) else { return };
    for way in ways {
        let Took { rate, cpu } = way.took;
        let alone = way.callers.iter().all(Caller::is_alone);
        let value = format!("{cpu:.1} µs CPU, {:.0} µs p50 alone, {rate:.0}/s", way.alone);
        line(way.by.name(), &value, Some(("a counter of its own", alone)));
    }
    for way in ways.iter().filter(|way| way.by != By::Connection) {
        let ratio = way.took.cpu / own.took.cpu;
        let what = format!("CPU per call {}, of that by Mcp-Session-Id", way.by.name());
        line(&what, &format!("{ratio:.2}"), Some(("≤ 1.15", ratio <= TARGET)));
    }
}
