//! Children that this process starts itself.

use std::{
    future, io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use super::{
    Exited, Program, StartError,
    error::Refused,
    leader::{self, Leader},
    life::{ChildControl, Life, Reaped},
    lookout::ExitWatcher,
    mark::Marks,
    pipes::Ends,
    proc::Seen,
    registry::Registry,
    rest::{Claim, Cleanup, Ground},
    spawn::spawn,
    watchdog::Watchdog,
};

/// Starts children of this process.
#[derive(Debug)]
pub(super) struct Local {
    marks: Marks,
    broom: Arc<Cleanup>,
    watchdog: Mutex<Option<Watchdog>>,
    /// Process that owns the watchdog. A forked copy of it has a copy of the watchdog's handle, which it must
    /// not use.
    home: Pid,
}

impl Local {
    pub(super) fn new(marks: Marks) -> Self {
        Self { marks, broom: Arc::default(), watchdog: Mutex::new(None), home: getpid() }
    }

    pub(super) async fn start(
        self: &Arc<Self>,
        number: u64,
        program: &Program,
        ends: Ends,
        registry: &Arc<Registry>,
    ) -> Result<Arc<Life>, StartError> {
        let mark = self.marks.of(number);
        let (here, what, name) = (self.clone(), program.clone(), mark.clone());
        let started = tokio::task::spawn_blocking(move || here.spawn(&what, name, ends)).await;
        let started = started.map_err(|_| StartError::Closed)?;
        let (grip, seen) = started.map_err(|refused| StartError::new(program, refused))?;
        let life = Arc::new(Life::new((number, mark), grip, registry.clone()));
        life.runs(seen);
        ExitWatcher::keep(registry);
        Ok(life)
    }

    /// Ends the watchdog. The next child starts a new one.
    pub(super) fn close(&self) {
        let _watchdog = self.watchdog().take();
    }

    /// Starts the child and blocks until it runs.
    fn spawn(
        &self,
        program: &Program,
        mark: String,
        ends: Ends,
    ) -> Result<(Arc<LocalGrip>, Seen), Refused> {
        self.watch();
        let leader = Leader::new(spawn(program, &mark, ends)?);
        let pid = leader.pid().as_raw_pid();
        // The child is not reaped, so it exists. If `/proc` does not show it, the start time 0 is harmless.
        let seen = Seen::at(pid).unwrap_or(Seen { pid, started: 0 });
        let leader = Mutex::new(leader);
        let grip = LocalGrip { leader, mark, broom: self.broom.clone(), home: self.home };
        Ok((Arc::new(grip), seen))
    }

    /// Starts a watchdog before the first child. Where there is no shell there is none, and children survive a
    /// `kill -9` until the next sweep; that is better than no children.
    fn watch(&self) {
        let mut watchdog = self.watchdog();
        if !watchdog.as_mut().is_some_and(Watchdog::lives) {
            *watchdog = Watchdog::start(&self.marks).ok();
        }
    }

    fn watchdog(&self) -> MutexGuard<'_, Option<Watchdog>> {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if getpid() != self.home {
            std::mem::forget(self.watchdog().take());
        }
    }
}

/// Control of a child of this process. The child is killed if this is dropped before it was reaped.
#[derive(Debug)]
struct LocalGrip {
    leader: Mutex<Leader>,
    mark: String,
    broom: Arc<Cleanup>,
    home: Pid,
}

impl LocalGrip {
    /// Returns a descriptor that becomes readable at the exit. Nothing reaps the leader meanwhile, so its pid
    /// is not reused.
    fn watched(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let mut leader = self.leader();
        leader.peek();
        if leader.is_reaped() {
            return Err(io::ErrorKind::NotFound.into());
        }
        exit_of(leader.pid())
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ChildControl for LocalGrip {
    fn signal(&self, signal: Signal) {
        self.leader().signal(signal);
    }

    async fn reap(self: Arc<Self>, claim: Claim) -> Reaped {
        let (here, again) = (self.clone(), claim.clone());
        let reaped = tokio::task::spawn_blocking(move || here.reap_now(claim)).await;
        // A runtime that shuts down takes no more work.
        reaped.unwrap_or_else(|_| self.reap_now(again))
    }

    fn reap_now(&self, mut claim: Claim) -> Reaped {
        claim.add(self.leader().strike());
        // The lock is taken for each attempt, so that other tasks can check the leader meanwhile.
        let exited = leader::reaped(|| self.leader().reap());
        let leftovers = self.broom.sweep(self.mark.clone(), claim);
        Reaped { exited, leftovers }
    }

    fn ground(&self) -> Ground {
        Ground::Machine
    }

    fn exited(&self) -> Option<Exited> {
        self.leader().peek()
    }

    async fn exit(&self, runtime: &Handle) -> Exited {
        let watched = {
            // The caller may run on another runtime, or on none.
            let _entered = runtime.enter();
            self.watched()
        };
        if let Ok(watched) = watched {
            while let Ok(mut ready) = watched.readable().await {
                if let Some(exited) = self.exited() {
                    return exited;
                }
                ready.clear_ready();
            }
        }
        // No descriptor was free, or the runtime shuts down: the periodic check notices the exit.
        future::pending().await
    }
}

impl Drop for LocalGrip {
    fn drop(&mut self) {
        if getpid() == self.home && !self.leader().is_reaped() {
            self.reap_now(Claim::default());
        }
    }
}

/// Returns a descriptor that is readable once the process has exited. Has to be called on a runtime.
#[allow(
    deprecated,
    reason = "what is wrong with it are types that do not own their descriptor, and its successor is \
              unsafe; this one owns it"
)]
fn exit_of(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    AsyncFd::with_interest(process, Interest::READABLE)
}
