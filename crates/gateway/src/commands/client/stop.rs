//! `stayput stop`: ends the background process of `stayput stdio`.

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    GatewayAddress, RemoteError, say,
    sessions::{all, ask, text},
    status::role,
};
use crate::{
    app::instance_lock,
    commands::{cli::Filter, cli::StopArgs, terminal::span},
    listen::unix_socket,
};

/// Time in which the process has to end: its calls in flight and its children get some of it.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Process that holds the sessions of a store, and its sessions.
pub(crate) struct HeldSessions {
    process: Value,
    /// Sessions with a process of a server, whose state ends with it.
    ending: Vec<Value>,
    /// Other sessions, which go on with the next process.
    kept: Vec<Value>,
}

impl HeldSessions {
    /// Asks the process for its sessions.
    pub(crate) async fn find(way: &GatewayAddress) -> Result<Self, RemoteError> {
        let process = ask(way, Method::GET, "/admin/status").await?.json()?;
        let held = all(way, &Filter::default(), false).await?;
        let held = held.into_iter().filter(|it| it["state"] != "away");
        let (ending, kept) = held.partition(has_process);
        Ok(Self { process, ending, kept })
    }

    /// Whether it is the background process of `stayput stdio`.
    pub(crate) fn is_background(&self) -> bool {
        self.process["role"] == "background"
    }

    /// Whether no session would lose its state.
    pub(crate) fn loses_nothing(&self) -> bool {
        self.ending.is_empty()
    }

    /// Number of sessions that go on with the next process.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Lists the sessions that lose their state, one per line.
    pub(crate) fn describe(&self) -> String {
        let line = |it: &Value| {
            let key = match &it["key"] {
                Value::Null => format!("({})", text(&it["source"])),
                key => text(key),
            };
            let servers = text(&it["servers"]).replace(',', ", ");
            let idle = span(it["idle_seconds"].as_u64().unwrap_or_default());
            format!(
                "  {}  {key}: {servers}, {}, used {idle} ago",
                text(&it["id"]),
                text(&it["state"])
            )
        };
        self.ending.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Whether a session has a server that is a process.
fn has_process(session: &Value) -> bool {
    session["links"].as_array().into_iter().flatten().any(|link| !link["pid"].is_null())
}

/// Ends the background process, after a question if sessions lose their state.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user.
pub(crate) async fn run(way: &GatewayAddress, args: &StopArgs) -> Result<(), RemoteError> {
    let GatewayAddress::Socket(data) = way else { return Ok(()) };
    let held = match HeldSessions::find(way).await {
        Err(RemoteError::NoGateway(_)) => {
            say(match args.json {
                true => r#"{"stopped":null,"ended":[],"kept":[]}"#,
                false => "nothing to stop: no process holds the sessions",
            });
            return Ok(());
        }
        held => held?,
    };
    let name = format!("{} (process {})", role(&held.process), text(&held.process["pid"]));
    if !held.is_background() {
        return Err(RemoteError::Wrong(format!(
            "the sessions are held by {name}, and this command ends background processes only: stop it where it was \
             started, with Ctrl-C or by its service manager"
        )));
    }
    if !args.json {
        say(&format!("{name} ends."));
        if !held.loses_nothing() {
            say(&format!("These sessions lose their state:\n{}", held.describe()));
        }
        if held.kept() > 0 {
            say(&format!("{} other sessions go on with the next process.", held.kept()));
        }
    }
    if !args.yes && !held.loses_nothing() && !confirmed()? {
        return Err(RemoteError::Wrong("nothing was stopped".to_owned()));
    }
    end(data, &held).await?;
    if args.json {
        let ids = |all: &[Value]| all.iter().map(|it| it["id"].clone()).collect::<Vec<_>>();
        let whole =
            json!({ "stopped": held.pid(), "ended": ids(&held.ending), "kept": ids(&held.kept) });
        say(&whole.to_string());
    }
    Ok(())
}

/// Asks on the terminal. Without a terminal the user has to say `--yes`.
fn confirmed() -> Result<bool, RemoteError> {
    if !io::stdin().is_terminal() {
        let sentence =
            "sessions would lose their state, and there is no terminal to ask on: say --yes";
        return Err(RemoteError::Wrong(sentence.to_owned()));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "Stop it? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    read.map_err(|error| RemoteError::Wrong(format!("the answer cannot be read: {error}")))?;
    Ok(matches!(&*answer.trim().to_ascii_lowercase(), "y" | "yes"))
}

/// Sends SIGTERM to the process, and waits until it has released the sessions. It lets its calls in flight end, and
/// leaves its sessions on HTTP servers open.
pub(crate) async fn end(data: &Path, held: &HeldSessions) -> Result<(), RemoteError> {
    let failed = |error: io::Error| RemoteError::Socket { data: data.to_owned(), error };
    let holder = match unix_socket::holder(data).await {
        Ok(holder) => holder,
        Err(error) if unix_socket::is_unused(&error) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let Some(process) = holder else {
        return Err(RemoteError::Wrong(format!(
            "the process that holds the sessions runs in another container, where it is process {}: stop it there",
            text(&held.process["pid"])
        )));
    };
    process.terminate().map_err(failed)?;
    let lock = instance_lock::lockable(&data.join(instance_lock::FILE)).map_err(failed)?;
    let until = Instant::now() + STOP_TIMEOUT;
    loop {
        match lock.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(RemoteError::Wrong(format!(
                    "process {} was told to end, and still runs after {} s",
                    process.pid(),
                    STOP_TIMEOUT.as_secs()
                )));
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}
