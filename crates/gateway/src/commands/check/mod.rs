//! `stayput check`: will this configuration do?
//!
//! | file | what it is about |
//! |---|---|
//! | `probe.rs` | one server: started, asked, and two sessions of it at once |
//! | `apart.rs` | whether two sessions see each other, on servers whose tools are known |
//! | `files.rs` | files that the processes of two sessions both write to |
//! | `finding.rs` | what was found, and what to do about it |
//! | `table.rs` | how it is told, to people or to programs |

mod files;
mod finding;
mod isolation_probe;
mod probe;
mod table;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use stayput_upstream::{
    Folders, LinkSettings, Links, Server,
    process::{Processes, WardenCommand},
};
use tokio::{runtime::Handle, sync::Semaphore};

use self::{
    finding::{Checked, Finding},
    probe::Probe,
};
use crate::{
    app::standalone::Signals,
    cli,
    config::{Config, SETTINGS, command_server},
    observe::log::Log,
};
use futures_util::future::join_all;

/// How many servers are looked at at once: each is several processes for a moment.
const AT_ONCE: usize = 4;

/// How long what was started may take to end.
const CLOSING: Duration = Duration::from_secs(15);

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Well,
    /// Something was found.
    Found,
    /// The configuration cannot be used.
    Unusable,
    /// Somebody wanted it to stop.
    Interrupted,
}

/// Checks a configuration and tells what was found. It leaves nothing behind: no process, no folder.
///
/// # Errors
/// If it cannot begin, or nobody can be told.
pub(crate) async fn run(args: &cli::Check) -> io::Result<Verdict> {
    let (servers, mut checked) = match chosen(args) {
        Ok(chosen) => chosen,
        Err(sentence) => {
            Log::default().line(&format!("stayput: {sentence}"));
            if args.json {
                table::write(&table::unusable(&sentence))?;
            }
            return Ok(Verdict::Unusable);
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
        // Twice means now. The warden ends what is left of the children.
        () = signals.next() => return Ok(Verdict::Interrupted),
    }
    let Some(probed) = probed else { return Ok(Verdict::Interrupted) };
    checked.servers.extend(probed);
    let text = if args.json { table::json(&checked) } else { table::text(&checked) };
    table::write(&text)?;
    Ok(if checked.is_well() { Verdict::Well } else { Verdict::Found })
}

/// The servers that are looked at, and what is known of the others without that.
fn chosen(args: &cli::Check) -> Result<(Vec<Server>, Checked), String> {
    let file = args.file(Path::new(".")).map_err(|error| error.to_string())?;
    let (config, unset) = Config::load_forgiving(&file).map_err(|error| error.to_string())?;
    let found = config.servers.iter().map(|it| it.server.name());
    let unset_names = unset.iter().map(|(name, _)| &**name).filter(|name| *name != SETTINGS);
    let names: Vec<&str> = found.chain(unset_names).collect();
    if let Some(wanted) = &args.server {
        command_server::choose(names.iter().copied(), Some(wanted))?;
    }
    let is_wanted = |name: &str| args.server.as_deref().is_none_or(|wanted| wanted == name);
    let unset = unset.iter().filter(|(name, _)| is_wanted(name));
    let unset = unset.map(|(name, error)| probe::unset(name, Finding::new(error.to_string())));
    let checked = Checked { servers: unset.collect(), warnings: config.warnings };
    let servers = config.servers.into_iter().map(|it| it.server);
    Ok((servers.filter(|server| is_wanted(server.name())).collect(), checked))
}

/// Links that leave nothing behind.
fn links() -> io::Result<Links> {
    let warden = WardenCommand::new(std::env::current_exe()?, ["warden"]);
    let processes = Processes::wardened(warden, Handle::current());
    Ok(Links::new(LinkSettings::new(processes, Folders::temporary()?), Handle::current()))
}

/// Looks at all servers, a few at once, and gives what was found in their order.
async fn probe_all(
    links: &Links,
    servers: &[Server],
    calls: bool,
    progress: &Progress,
) -> Vec<finding::OfServer> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let probes = servers.iter().map(|server| {
        let turns = turns.clone();
        async move {
            let _turn = turns.acquire().await;
            progress.begins(server.name());
            let found = Probe { links, server, calls }.run().await;
            progress.ends(server.name());
            found
        }
    });
    join_all(probes).await
}

/// What is being done, for somebody who looks.
struct Progress {
    terminal: bool,
    all: usize,
    state: Mutex<(Vec<String>, usize)>,
}

/// Empties the line.
const CLEAR: &str = "\r\x1b[K";

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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let (running, done) = &*state;
        self.show(&format!("{CLEAR}{done} of {} checked … {}", self.all, running.join(", ")));
    }

    fn over(&self) {
        self.show(CLEAR);
    }

    fn show(&self, text: &str) {
        if self.terminal {
            let mut stderr = io::stderr().lock();
            // Who closed standard error does not want to see.
            let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
        }
    }
}
