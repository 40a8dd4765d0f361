//! Child processes: how they are started and, above all, ended.
//!
//! A server of MCP is a tree of processes: `npx` starts `node`, `node` starts a browser, the browser
//! leaves its group. When a link closes all of it has to go, and when Stayput dies, however it dies,
//! all of it has to go too. So every child leads a group, carries a mark in its environment that its
//! descendants inherit, and has somebody who outlives us and knows what to do: a *warden*, or where
//! there is no program to run as one, a *watchdog*.
//!
//! | | warden | watchdog |
//! |---|---|---|
//! | is | this program again, with a hidden subcommand | a shell |
//! | starts the children | yes, and is the subreaper of all that descends from them | no, we do |
//! | finds after `kill -9` | everything | what kept its environment |
//!
//! | file | what it is about |
//! |---|---|
//! | `child.rs`, `life.rs`, `exited.rs` | [`Child`]; the steps of its end, the same both ways; how it went |
//! | `local.rs`, `lookout.rs`, `watchdog.rs` | children of our own: their start, who notices their exit, who ends them if we die |
//! | `wardens.rs`, `line.rs`, `frame.rs`, `warden.rs` | children of a warden: our side, the socket, what is said, its side |
//! | `spawn.rs`, `leader.rs`, `rest.rs` | the start, the group and its leader, what is left of them; the same both ways |
//! | `mark.rs`, `proc.rs` | the mark; what `/proc` tells |
//! | `program.rs`, `pipes.rs`, `stderr.rs`, `error.rs` | what goes in and comes out |

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

/// Starts child processes, and knows those it has started.
///
/// What is to be done in the background is done on the runtime that is given, which needs I/O and
/// time. When that runtime goes, the children go with it.
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
    /// Children of this process itself. With the first one a watchdog is started, a shell in a session
    /// of its own, that ends them by their marks if this process dies.
    #[must_use]
    pub fn local(runtime: Handle) -> Self {
        Self::new(Host::Local(Arc::new(Local::new(Marks::new()))), runtime)
    }

    /// Children of a warden, which `command` runs when the first one is to be started. If it dies, its
    /// children are killed, and the next start has a new one.
    #[must_use]
    pub fn wardened(command: WardenCommand, runtime: Handle) -> Self {
        Self::new(Host::Wardened(Wardens::new(command, Marks::new())), runtime)
    }

    fn new(host: Host, runtime: Handle) -> Self {
        let registry = Arc::new(Registry::new(runtime));
        Self { inner: Arc::new(Inner { host, registry, next: AtomicU64::new(1) }) }
    }

    /// Starts a child. If this future is dropped before it is done, the child, if there is one, is
    /// ended in the background.
    ///
    /// # Errors
    /// If it cannot be started; then nothing of it runs.
    pub async fn start(&self, program: &Program) -> Result<Child, StartError> {
        let (processes, program) = (self.clone(), program.clone());
        let runtime = self.inner.registry.runtime();
        let started = runtime.spawn(async move { processes.start_here(&program).await });
        // Nobody cancels it but a runtime that goes away.
        started.await.map_err(|_| StartError::Closed)?
    }

    /// The same, for who waits for it whatever happens: dropped before it is done, nobody would end the child. Its
    /// pipes are watched by the runtime of the current task.
    pub(crate) async fn start_here(&self, program: &Program) -> Result<Child, StartError> {
        // Until it is in the registry itself.
        let _place = self.inner.registry.place()?;
        self.inner.start(program).await
    }

    /// Kills what processes like this one, which are dead, have left behind on this machine: of our
    /// user, in our pid namespace, by the marks. Returns how many were killed.
    pub async fn sweep(&self) -> usize {
        let runtime = self.inner.registry.runtime();
        runtime.spawn_blocking(sweep).await.unwrap_or(0)
    }

    /// How many children were started and are not yet gone with all they started.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.registry.live()
    }

    /// Ends all that is left, and the warden or the watchdog, and waits for it. Nothing can be started
    /// any more. Links are closed before this, with their own grace; what is still here gets little.
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

/// See [`Processes::sweep`]. Blocks.
fn sweep() -> usize {
    let me = getpid().as_raw_pid();
    // We may have been started by a leftover, or be one, with the mark of a holder that is long dead.
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
