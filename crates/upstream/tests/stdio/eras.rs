//! Eras of a process, learned while the clock stands still.

use std::sync::mpsc;

use stayput_testkit::program;
use stayput_upstream::{EraChoice, Server, Stdio};
use stayput_wire::Era;
use tokio::time::Instant;

use crate::support::{LONG, close, links, open, place, server};

/// Clock of the runtime that stands still, so that no timer fires.
struct StoppedClock {
    start: Instant,
    _held: mpsc::Sender<()>,
}

impl StoppedClock {
    fn new() -> Self {
        tokio::time::pause();
        let (held, released) = mpsc::channel::<()>();
        // A paused clock goes on when all tasks wait, but not beside a blocking one.
        tokio::task::spawn_blocking(move || released.recv_timeout(LONG));
        Self { start: Instant::now(), _held: held }
    }

    /// Panics if a timer was needed.
    fn assert_unmoved(&self) {
        assert!(self.start.elapsed().is_zero(), "it waited for a timer");
    }
}

/// Legacy test server behind a shell script, which gets its command as `"$@"`.
fn scripted(script: &str) -> Server {
    let program = program("stayput-testserver");
    let args = ["-c", script, "sh", program.to_str().unwrap(), "stdio", "--era", "legacy"];
    server(Stdio::new("sh").args(args), EraChoice::Auto)
}

/// Opens a link for a modern client without a timer, and returns its era.
async fn era_of_link(server: &Server) -> Era {
    let links = links();
    let clock = StoppedClock::new();
    let link = open(&links, server.for_client(Era::Modern), &place()).await;
    let era = link.era();
    clock.assert_unmoved();
    drop((clock, link));
    tokio::time::resume();
    close(&links).await;
    era
}

/// A process that refuses `server/discover`, that ignores it as a method that it does not know, or that exits at it.
#[tokio::test]
async fn legacy_process_is_learned_without_a_timeout() {
    let refuses = r#"exec "$@""#;
    let ignores = r#"grep -v --line-buffered server/discover | "$@""#;
    let exits = r#"read -r line; case "$line" in *server/discover*) exit 3;; esac
        { printf '%s\n' "$line"; cat; } | "$@""#;
    for script in [refuses, ignores, exits] {
        assert_eq!(era_of_link(&scripted(script)).await, Era::Legacy, "{script}");
    }
}

/// The refusal of `ping` by a modern process may come before its answer to `server/discover`: it gets no `initialize`.
#[tokio::test]
async fn modern_process_may_refuse_ping_first() {
    let refuses_first = r#"
import json, sys
discover = None
for line in sys.stdin:
    message = json.loads(line)
    method, answer = message.get("method"), {"jsonrpc": "2.0", "id": message.get("id")}
    if method == "server/discover":
        discover = answer
        continue
    if method == "initialize":
        sys.exit(4)
    answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
    if method == "ping":
        discover["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"],
            "capabilities": {}, "ttlMs": 60000, "cacheScope": "public"}
        print(json.dumps(discover), flush=True)
"#;
    let server = server(Stdio::new("python3").args(["-c", refuses_first]), EraChoice::Auto);
    assert_eq!(era_of_link(&server).await, Era::Modern);
}
