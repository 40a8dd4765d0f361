//! Child processes that never outlive their parent.
//!
//! An MCP server is a tree of processes: `npx` starts `node`, `node` starts a browser, the browser leaves its
//! process group. The whole tree has to end when its link closes, and also when Stayput dies, however it dies.
//! So every child leads a process group and carries a mark in its environment, which its descendants inherit. A
//! second process outlives Stayput and ends the children: a *warden*, or a *watchdog* where no program can run
//! as a warden.
//!
//! | | warden | watchdog |
//! |---|---|---|
//! | is | this program again, with a hidden subcommand | a shell |
//! | starts the children | yes, and is the subreaper of all their descendants | no, Stayput starts them |
//! | finds after `kill -9` | every descendant | descendants that kept their environment |
//!
//! | file | content |
//! |---|---|
//! | `child.rs`, `lifecycle/`, `exit.rs` | [`Child`]; the steps of its end; its [`ExitStatus`] |
//! | `local_host.rs`, `exit_watcher.rs`, `watchdog.rs` | children of this process: start, detection of exits, watchdog |
//! | `warden_host.rs`, `warden_process.rs`, `warden_client.rs`, `frame.rs`, `warden.rs` | children of a warden: start, socket, frames, warden |
//! | `spawn.rs`, `leader.rs`, `kill_set.rs` | start of a process, its group, leftovers; with and without a warden |
//! | `lifecycle/registry.rs` | all children of one [`Processes`] |
//! | `mark.rs`, `procfs.rs`, `process_info.rs` | the mark; the reader of `/proc`; description of a process |
//! | `priority.rs` | priority of threads |
//! | `program.rs`, `pipes.rs`, `stderr.rs`, `error.rs` | program, its pipes, the end of its stderr, start errors |

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::getpid;
use tokio::runtime::Handle;

mod child;
mod error;
mod exit;
mod exit_watcher;
mod frame;
mod kill_set;
mod leader;
mod lifecycle;
mod local_host;
mod mark;
mod pipes;
mod priority;
mod process_info;
mod procfs;
mod program;
mod spawn;
mod stderr;
mod warden;
mod warden_client;
mod warden_host;
mod warden_process;
mod watchdog;

pub use self::{
    child::{Child, MemoryMeter},
    error::StartError,
    exit::{EndReport, EndedBy, ExitStatus, Grace},
    pipes::Pipes,
    priority::lower_thread_priority,
    process_info::ProcessInfo,
    program::Program,
    stderr::StderrTail,
    warden::warden_main,
    warden_process::WardenCommand,
};
use self::{
    error::{SpawnError, SpawnStep},
    kill_set::{KillSet, SearchScope},
    lifecycle::Registry,
    local_host::LocalHost,
    mark::{MarkHolder, MarkLookup, Marks},
    warden_host::WardenHost,
};
use stayput_sync::Mutex;

/// Starts child processes and keeps a registry of them.
///
/// Background work runs on the given runtime, which needs I/O and time. The children end with that runtime.
#[derive(Debug, Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    registry: Arc<Registry>,
    next: AtomicU64,
}

#[derive(Debug)]
enum Host {
    Local(Arc<LocalHost>),
    Wardened(WardenHost),
}

impl Processes {
    /// Creates a starter of direct children of this process. The first start also starts a watchdog: a shell in
    /// its own session that ends the children by their marks if this process dies.
    #[must_use]
    pub fn local(runtime: Handle) -> Self {
        Self::new(Host::Local(Arc::new(LocalHost::new(Marks::new()))), runtime)
    }

    /// Creates a starter of children of a warden, which `command` runs at the first start. If the warden dies,
    /// its children are killed, and the next start runs a new warden.
    #[must_use]
    pub fn wardened(command: WardenCommand, runtime: Handle) -> Self {
        Self::new(Host::Wardened(WardenHost::new(command, Marks::new())), runtime)
    }

    fn new(host: Host, runtime: Handle) -> Self {
        let registry = Arc::new(Registry::new(runtime));
        Self { inner: Arc::new(Inner { host, registry, next: AtomicU64::new(1) }) }
    }

    /// Starts a child. If this future is dropped before it is done, a child that was already started is ended
    /// in the background.
    ///
    /// # Errors
    /// If the child cannot be started. No process of it runs then.
    pub async fn start(&self, program: &Program) -> Result<Child, StartError> {
        let (processes, program) = (self.clone(), program.clone());
        let runtime = self.inner.registry.runtime();
        let started = runtime.spawn(async move { processes.start_here(&program).await });
        // Only a runtime that shuts down cancels this task.
        started.await.map_err(|_| StartError::Closed)?
    }

    /// Starts a child on the current task, whose runtime watches the pipes. The caller must poll this future to
    /// its end: if it is dropped early, nothing ends the child.
    ///
    /// # Errors
    /// As [`Processes::start`].
    pub async fn start_here(&self, program: &Program) -> Result<Child, StartError> {
        // Counts the start until the registry holds the child.
        let _start = self.inner.registry.begin_start()?;
        self.inner.start(program).await
    }

    /// Kills processes that dead Stayput processes left behind on this machine: those of the same user and the
    /// same pid namespace, found by their marks. Returns the number of killed processes.
    pub async fn sweep(&self) -> usize {
        let runtime = self.inner.registry.runtime();
        runtime.spawn_blocking(sweep).await.unwrap_or(0)
    }

    /// Number of children that were started and whose process tree is not yet gone.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.registry.live()
    }

    /// Ends the remaining children and the warden or watchdog, and waits for them. Later starts fail. Links are
    /// closed before this with their own grace; children that remain get the short default grace.
    pub async fn close(&self) {
        self.inner.registry.close(Grace::default()).await;
        match &self.inner.host {
            Host::Wardened(wardens) => wardens.close().await,
            Host::Local(local) => {
                let local = local.clone();
                let runtime = self.inner.registry.runtime();
                let _ = runtime.spawn_blocking(move || local.close()).await;
            }
        }
    }
}

impl Inner {
    async fn start(&self, program: &Program) -> Result<Child, StartError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let made = pipes::pipes();
        let (ours, child_pipes) = made
            .map_err(|error| StartError::new(program, SpawnError::io(SpawnStep::Pipes, &error)))?;
        let lifecycle = match &self.host {
            Host::Local(local) => local.start(number, program, child_pipes, &self.registry).await?,
            Host::Wardened(wardens) => {
                wardens.start(number, program, child_pipes, &self.registry).await?
            }
        };
        Ok(Child::new(lifecycle, ours))
    }
}

/// Implements [`Processes::sweep`]. Blocks.
fn sweep() -> usize {
    let me = getpid().as_raw_pid();
    // This process can itself be a leftover, or a child of one, and then carries the mark of a dead holder.
    let mine = MarkLookup::read(me);
    let dead: Mutex<HashMap<MarkHolder, bool>> = Mutex::default();
    let wanted = |mark: &str| {
        let holder = MarkHolder::parse(mark)
            .filter(|_| !matches!(&mine, MarkLookup::With(own) if own == mark))?;
        let mut dead = dead.lock();
        dead.entry(holder).or_insert_with(|| holder.is_dead_here()).then_some(0)
    };
    let mut kill_sets = [KillSet::sparing(procfs::ancestors(me))];
    kill_set::clear(&SearchScope::Machine, &mut kill_sets, wanted, || {});
    kill_sets[0].leftovers()
}
