//! `stayput stdio --no-daemon`: serves one client and its servers in one process.

use std::error::Error;

use stayput_core::{Handle, Key};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    app::{Gateway, Plan, ServeError},
    config::command_server::{self, Definition},
    listen::{
        child_stderr::{self, StderrWriter},
        lines::Lines,
        stdio::{INPUT_END_GRACE, StdioClient, StdioConversation},
    },
};

/// Signals that end a program: SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Serves the client on the standard input and output until it disconnects or a signal arrives.
///
/// # Errors
/// If there is no such server, or another process holds the sessions.
pub(crate) async fn run(
    definition: &Definition,
    server: Option<&str>,
    key: Option<Key>,
) -> Result<(), Box<dyn Error>> {
    let stderr = StderrWriter::start();
    let config = definition.config_with(stderr.sink())?;
    for warning in config.all_warnings() {
        tracing::warn!("{warning}");
    }
    let target = command_server::choose(config.servers.iter().map(|it| it.server.name()), server)?;
    let mut signals = Signals::new()?;
    let plan = Plan { listen: None, socket: false, ..Plan::new(config)? };
    let gateway = match Gateway::start(plan).await {
        Err(ServeError::Taken { path }) => {
            return Err(format!(
                "another stayput has the sessions in {}, and --no-daemon needs them for itself: leave \
                 --no-daemon out to join it, or choose another store with --store",
                path.display()
            )
            .into());
        }
        started => started?,
    };
    let (app, name) = (gateway.app().clone(), Handle::generate());
    let (forgotten, drain) = (false, INPUT_END_GRACE);
    let talk = StdioConversation::new(StdioClient { app, target, name, key, forgotten, drain });
    let left = async {
        let lines = Lines::new(tokio::io::stdin());
        // The servers of this process write to its stderr directly.
        let (_, none) = child_stderr::channel();
        tokio::select! {
            _ = talk.run(lines, tokio::io::stdout(), none, std::future::pending()) => {}
            () = signals.next() => {}
        }
        talk.leave().await;
    };
    gateway.run(left).await;
    Ok(())
}
