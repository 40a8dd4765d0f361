//! `stayput check`: tests a configuration and its servers.
//!
//! | file | content |
//! |---|---|
//! | `probe.rs` | starts one server, lists its tools, and opens two sessions at once |
//! | `isolation_probe.rs` | checks whether two sessions see each other's state, on servers with well-known tools |
//! | `files.rs` | files that the processes of two sessions both write to |
//! | `finding.rs` | findings and their remedies |
//! | `table.rs` | output as a table or as JSON |

mod files;
mod finding;
mod isolation_probe;
mod output;
mod probe;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use stayput_process::{Processes, WardenCommand};
use stayput_upstream::{LinkSettings, Links, Server, SessionDirs};
use tokio::{runtime::Handle, sync::Semaphore};

use self::{
    finding::{CheckReport, Finding},
    probe::Probe,
};
use crate::{
    app::standalone::Signals,
    commands::cli,
    config::{Config, SETTINGS, command_server},
    observe::log,
};
use stayput_sync::Mutex;

/// Number of servers that are probed concurrently. Each one needs several processes for a short time.
const MAX_CONCURRENT_PROBES: usize = 4;

/// Time that the started processes get to end.
const CLOSING: Duration = Duration::from_secs(15);

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckOutcome {
    /// There is no finding.
    Well,
    /// There are findings.
    Found,
    /// The configuration cannot be used.
    Unusable,
    /// A signal interrupted the check.
    Interrupted,
}

/// Checks a configuration and prints the result. It leaves no process and no folder behind.
///
/// # Errors
/// If the check cannot start, or the result cannot be written.
pub(crate) async fn run(args: &cli::Check) -> io::Result<CheckOutcome> {
    let (servers, mut checked) = match chosen(args) {
        Ok(chosen) => chosen,
        Err(sentence) => {
            log::print_error(&sentence);
            if args.json {
                output::write(&output::unusable(&sentence))?;
            }
            return Ok(CheckOutcome::Unusable);
        }
    };
    let mut signals = Signals::new()?;
    let links = links()?;
    let progress = Progress::new(!args.json, servers.len());
    let probing = probe_all(&links, &servers, !args.no_calls, &progress);
    let probed = tokio::select! {
        probed = probing => Some(probed),
        () = signals.next() => None,
    };
    progress.over();
    tokio::select! {
        _ = links.close(CLOSING) => {}
        // A second signal stops at once. The warden ends the remaining child processes.
        () = signals.next() => return Ok(CheckOutcome::Interrupted),
    }
    let Some(probed) = probed else { return Ok(CheckOutcome::Interrupted) };
    checked.servers.extend(probed);
    let text = if args.json { output::json(&checked) } else { output::text(&checked) };
    output::write(&text)?;
    Ok(if checked.is_well() { CheckOutcome::Well } else { CheckOutcome::Found })
}

/// Returns the servers to probe, and the findings that are known without a probe.
fn chosen(args: &cli::Check) -> Result<(Vec<Server>, CheckReport), String> {
    let file = args.file(Path::new(".")).map_err(|error| error.to_string())?;
    let config = Config::load_forgiving(&file).map_err(|error| error.to_string())?;
    let found = config.servers.iter().map(|it| it.server.name());
    let broken_names = config.broken.iter().map(|(name, _)| &**name);
    let names: Vec<&str> = found.chain(broken_names.filter(|name| *name != SETTINGS)).collect();
    if names.is_empty() && config.broken.is_empty() {
        return Err(format!("{}: no server is enabled; there is nothing to check", file.display()));
    }
    if let Some(wanted) = &args.server {
        command_server::choose(names.iter().copied(), Some(wanted))?;
    }
    let is_wanted = |name: &str| args.server.as_deref().is_none_or(|wanted| wanted == name);
    let broken = config.broken.iter().filter(|(name, _)| is_wanted(name));
    let broken = broken.map(|(name, error)| probe::broken(name, Finding::new(error.to_string())));
    let exposed = (config.auth.is_none() && !config.listen.ip().is_loopback())
        .then(|| exposed(config.listen));
    let warnings = config.warnings.into_iter().chain(exposed).collect();
    let checked = CheckReport { servers: broken.collect(), warnings };
    let servers = config.servers.into_iter().map(|it| it.server);
    Ok((servers.filter(|server| is_wanted(server.name())).collect(), checked))
}

/// Warning about an address that other machines can reach, without authentication.
fn exposed(listen: std::net::SocketAddr) -> String {
    format!(
        "`listen` is {listen}, which other machines can reach, and there is no `auth`: `stayput serve` does not start so; \
         configure `auth`, or listen on 127.0.0.1"
    )
}

/// Creates links with temporary folders.
fn links() -> io::Result<Links> {
    let warden = WardenCommand::new(std::env::current_exe()?, ["warden"]);
    let processes = Processes::wardened(warden, Handle::current());
    Ok(Links::new(LinkSettings::new(processes, SessionDirs::temporary()?), Handle::current()))
}

/// Probes all servers, a few at a time. The results are in the order of the servers.
async fn probe_all(
    links: &Links,
    servers: &[Server],
    calls: bool,
    progress: &Progress,
) -> Vec<finding::ServerReport> {
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_PROBES));
    let probes = servers.iter().map(|server| {
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire().await;
            progress.begins(server.name());
            let found = Probe { links, server, calls }.run().await;
            progress.ends(server.name());
            found
        }
    });
    join_all(probes).await
}

/// Progress line on a terminal.
struct Progress {
    terminal: bool,
    all: usize,
    state: Mutex<(Vec<String>, usize)>,
}

/// Escape sequence that clears the line.
const CLEAR_LINE: &str = "\r\x1b[K";

impl Progress {
    fn new(people: bool, all: usize) -> Self {
        Self { terminal: people && io::stderr().is_terminal(), all, state: Mutex::default() }
    }

    fn begins(&self, name: &str) {
        self.change(|(running, _)| running.push(name.to_owned()));
    }

    fn ends(&self, name: &str) {
        self.change(|(running, done)| {
            running.retain(|it| it != name);
            *done += 1;
        });
    }

    fn change(&self, change: impl FnOnce(&mut (Vec<String>, usize))) {
        let mut state = self.state.lock();
        change(&mut state);
        let (running, done) = &*state;
        self.show(&format!("{CLEAR_LINE}{done} of {} checked … {}", self.all, running.join(", ")));
    }

    fn over(&self) {
        self.show(CLEAR_LINE);
    }

    fn show(&self, text: &str) {
        if self.terminal {
            let mut stderr = io::stderr().lock();
            // An error is ignored: a closed stderr has no reader.
            let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
        }
    }
}
