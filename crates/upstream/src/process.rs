//! Starts and ends child processes.
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
//! | `child.rs`, `life.rs`, `exited.rs` | [`Child`]; the steps of its end, with and without a warden; its exit |
//! | `local.rs`, `lookout.rs`, `watchdog.rs` | children of this process: start, detection of exits, watchdog |
//! | `wardens.rs`, `line.rs`, `frame.rs`, `warden.rs` | children of a warden: client, socket, frames, warden |
//! | `spawn.rs`, `leader.rs`, `rest.rs` | start, group and leader, leftovers; with and without a warden |
//! | `mark.rs`, `proc.rs` | the mark; the reader of `/proc` |
//! | `program.rs`, `pipes.rs`, `stderr.rs`, `error.rs` | program, its pipes, the end of its stderr, start errors |

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::getpid;
use tokio::runtime::Handle;

mod child;
mod error;
mod exited;
mod frame;
mod leader;
mod life;
mod line;
mod local;
mod lookout;
mod mark;
mod pipes;
mod proc;
mod program;
mod registry;
mod rest;
mod spawn;
mod stderr;
mod warden;
mod wardens;
mod watchdog;

pub use self::{
    child::Child,
    error::StartError,
    exited::{Ended, Exited, Grace, How},
    pipes::Pipes,
    program::Program,
    stderr::StderrTail,
    warden::warden_main,
    wardens::WardenCommand,
};
use self::{
    error::{Refused, Step},
    local::Local,
    mark::{Holder, Marks},
    proc::Marked,
    registry::Registry,
    rest::{Claim, Ground},
    wardens::Wardens,
};

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
    Local(Arc<Local>),
    Wardened(Wardens),
}

impl Processes {
    /// Creates a starter of direct children of this process. The first start also starts a watchdog: a shell in
    /// its own session that ends the children by their marks if this process dies.
    #[must_use]
    pub fn local(runtime: Handle) -> Self {
        Self::new(Host::Local(Arc::new(Local::new(Marks::new()))), runtime)
    }

    /// Creates a starter of children of a warden, which `command` runs at the first start. If the warden dies,
    /// its children are killed, and the next start runs a new warden.
    #[must_use]
    pub fn wardened(command: WardenCommand, runtime: Handle) -> Self {
        Self::new(Host::Wardened(Wardens::new(command, Marks::new())), runtime)
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
    pub(crate) async fn start_here(&self, program: &Program) -> Result<Child, StartError> {
        // Counts the start until the registry holds the child.
        let _place = self.inner.registry.place()?;
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
        let (ours, ends) =
            made.map_err(|error| StartError::new(program, Refused::io(Step::Pipes, &error)))?;
        let life = match &self.host {
            Host::Local(local) => local.start(number, program, ends, &self.registry).await?,
            Host::Wardened(wardens) => wardens.start(number, program, ends, &self.registry).await?,
        };
        Ok(Child::new(life, ours))
    }
}

/// Implements [`Processes::sweep`]. Blocks.
fn sweep() -> usize {
    let me = getpid().as_raw_pid();
    // This process can itself be a leftover, or a child of one, and then carries the mark of a dead holder.
    let mine = Marked::of(me);
    let dead: Mutex<HashMap<Holder, bool>> = Mutex::default();
    let wanted = |mark: &str| {
        let holder =
            Holder::of(mark).filter(|_| !matches!(&mine, Marked::With(own) if own == mark))?;
        let mut dead = dead.lock().unwrap_or_else(PoisonError::into_inner);
        dead.entry(holder).or_insert_with(|| holder.is_dead_here()).then_some(0)
    };
    let mut claims = [Claim::sparing(proc::ancestors(me))];
    rest::clear(&Ground::Machine, &mut claims, wanted, || {});
    claims[0].leftovers()
}
