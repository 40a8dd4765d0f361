//! Small stateful MCP servers, and helpers to run them.
//!
//! The program `stayput-testserver` is a server of either era, over stdio, Streamable HTTP or HTTP+SSE, that counts
//! its requests and misbehaves on request ([`USAGE`]). Over HTTP, `GET /stats` returns its counters and `POST /script`
//! sets its faults. Tests run the real program: [`TestServer`] over HTTP, [`crate::program`] with `stdio` for code
//! that starts its own children.

pub(crate) mod client;
mod engine;
mod http;
mod message;
mod methods;
mod options;
mod relay;
mod scope;
mod stats;
mod stdio;
mod test_server;
mod tools;

use std::{
    fs::OpenOptions,
    io::Write,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use engine::Engine;
use options::Mode;
use tokio::{
    io::AsyncReadExt,
    signal::unix::{SignalKind, signal},
};

pub use client::{Answer, Events, send};
pub use options::{Options, USAGE};
pub use test_server::TestServer;

/// Runs `stayput-testserver`: parses the command line, serves, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(code) = options.faults.exit_at_once {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    // One thread, so that messages are processed in order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(options));
    // Does not wait for threads that read standard input.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

async fn serve(options: Options) {
    // Installed before anything else, so that no signal comes too early.
    let _ignored = options.faults.ignore_term.then(|| signal(SignalKind::terminate()).unwrap());
    if let Some(path) = &options.starts {
        let mut starts = OpenOptions::new().append(true).create(true).open(path).unwrap();
        starts.write_all(format!("{}\n", std::process::id()).as_bytes()).unwrap();
    }
    if options.daemonize {
        daemonize();
    }
    tokio::time::sleep(Duration::from_millis(options.startup_ms)).await;
    // Filled with ones, because untouched pages take no memory.
    let held = vec![1_u8; options.memory_mb << 20];
    let (mode, port, with_stdin) = (options.mode, options.port, options.exit_with_stdin);
    let engine = Engine::new(options);
    match mode {
        Mode::Stdio => stdio::serve(engine).await,
        Mode::Relay => relay::run(port).await,
        Mode::Http | Mode::Sse => tokio::select! {
            () = http::serve(engine) => {}
            () = end_of_stdin(), if with_stdin => {}
        },
    }
    drop(std::hint::black_box(held));
}

async fn end_of_stdin() {
    let mut thrown_away = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut thrown_away).await;
}

/// Starts a sleeping process without a parent, outside of our process group and session.
fn daemonize() {
    let script = "(setsid sleep 3600 </dev/null >/dev/null 2>&1 &)";
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(sh.status().unwrap().success());
}
