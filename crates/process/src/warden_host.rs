//! Children that a warden starts.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rustix::{io::Errno, process::Signal};
use tokio::{runtime::Handle, time::timeout};

use super::{
    ExitStatus, Program, StartError,
    error::{SpawnError, SpawnStep},
    frame::{FRAME_LIMIT, Request},
    kill_set::{Cleanup, KillSet, SearchScope},
    lifecycle::{ChildControl, Lifecycle, ReapResult, Registry},
    mark::Marks,
    pipes::ChildPipes,
    warden_client::WardenClient,
    warden_process::{WardenCommand, WardenProcess},
};

/// Time that a warden may take to end a child; it ends children one after the other. A warden that takes longer
/// is stopped or starved, and its processes are then killed without it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts children through a warden, and starts the warden if none runs.
#[derive(Debug)]
pub(super) struct WardenHost {
    command: WardenCommand,
    marks: Marks,
    cleanup: Arc<Cleanup>,
    /// Connection to the current warden. The holder of the lock starts the next warden; other callers wait for
    /// it.
    client: tokio::sync::Mutex<Option<Arc<WardenClient>>>,
}

impl WardenHost {
    pub(super) fn new(command: WardenCommand, marks: Marks) -> Self {
        Self { command, marks, cleanup: Arc::default(), client: tokio::sync::Mutex::new(None) }
    }

    pub(super) async fn start(
        &self,
        number: u64,
        program: &Program,
        child_pipes: ChildPipes,
        registry: &Arc<Registry>,
    ) -> Result<Arc<Lifecycle>, StartError> {
        let mark = self.marks.mark(number);
        let request = Request::Start { number, mark: mark.clone(), program: program.clone() };
        let frame = request.encode();
        if frame.len() > FRAME_LIMIT {
            return Err(StartError::new(
                program,
                SpawnError::new(SpawnStep::Program, Errno::TOOBIG),
            ));
        }
        let client = self.client(registry).await?;
        let control = WardenControl {
            number,
            mark: mark.clone(),
            client: client.clone(),
            cleanup: self.cleanup.clone(),
        };
        let lifecycle =
            Arc::new(Lifecycle::new((number, mark), Arc::new(control), registry.clone()));
        match client.start(lifecycle.clone(), frame, child_pipes).await {
            Ok(Ok(())) => Ok(lifecycle),
            Ok(Err(refused)) => Err(StartError::new(program, refused)),
            Err(_) => Err(StartError::WardenGone { reason: client.gone().await }),
        }
    }

    /// Ends the warden and waits until it is gone.
    pub(super) async fn close(&self) {
        let client = self.client.lock().await.take();
        if let Some(client) = client {
            client.close_socket();
            client.gone().await;
        }
    }

    async fn client(&self, registry: &Registry) -> Result<Arc<WardenClient>, StartError> {
        let mut client = self.client.lock().await;
        if let Some(client) = client.as_ref().filter(|client| client.is_open()) {
            return Ok(client.clone());
        }
        let (command, marks) = (self.command.clone(), self.marks.clone());
        let started = tokio::task::spawn_blocking(move || WardenProcess::start(&command, &marks));
        let started = started.await.map_err(|_| StartError::Closed)?;
        let new = started
            .and_then(|(socket, warden)| WardenClient::new(socket, warden, registry.runtime()));
        let new = new.map_err(|error| {
            let program = self.command.program.to_string_lossy();
            let reason = format!("`{program}` could not be started as one ({error})");
            StartError::WardenGone { reason }
        })?;
        *client = Some(new.clone());
        Ok(new)
    }
}

/// Signals and reaps a child that the warden started.
#[derive(Debug)]
struct WardenControl {
    number: u64,
    mark: String,
    client: Arc<WardenClient>,
    cleanup: Arc<Cleanup>,
}

#[async_trait]
impl ChildControl for WardenControl {
    fn signal(&self, signal: Signal) {
        self.client.signal(self.number, signal.as_raw());
    }

    async fn reap(self: Arc<Self>, kill_set: KillSet) -> ReapResult {
        let reaped = timeout(ANSWER_TIMEOUT, self.client.reap(self.number)).await.map_err(|_| ());
        let reaped = reaped.and_then(|reaped| reaped.map_err(|_| ()));
        let leftovers = reaped.unwrap_or(0);
        // The warden saw the tree at the last moment; `kill_set` holds the tree from before.
        if reaped.is_ok() && !kill_set.lives() {
            // The exit status was reported earlier.
            return ReapResult { exited: ExitStatus::Unknown, leftovers };
        }
        let (here, again) = (self.clone(), kill_set.clone());
        let more = tokio::task::spawn_blocking(move || here.reap_now(kill_set)).await;
        // A runtime that shuts down takes no more work.
        let more = more.unwrap_or_else(|_| self.reap_now(again));
        ReapResult { leftovers: leftovers + more.leftovers, ..more }
    }

    /// Searches for leftovers from this process, because the warden may be gone. Does not signal the group: its
    /// id may belong to another group by now.
    fn reap_now(&self, kill_set: KillSet) -> ReapResult {
        let leftovers = self.cleanup.sweep(self.mark.clone(), kill_set);
        ReapResult { exited: ExitStatus::Unknown, leftovers }
    }

    /// Returns `None`: the warden reports the exit.
    fn exited(&self) -> Option<ExitStatus> {
        None
    }

    async fn exit(&self, _: &Handle) -> ExitStatus {
        std::future::pending().await
    }

    fn search_scope(&self) -> SearchScope {
        SearchScope::Orphans {
            of: self.client.pid(),
            leaders: self.client.leaders().into_iter().collect(),
        }
    }
}
