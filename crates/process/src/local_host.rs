//! Children that this process starts itself.

use std::{future, io, os::fd::OwnedFd, sync::Arc};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open};
use stayput_sync::Mutex;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use super::{
    ExitStatus, Program, StartError,
    error::SpawnError,
    exit_watcher::ExitWatcher,
    kill_set::{Cleanup, KillSet, SearchScope},
    leader::{self, Leader},
    lifecycle::{ChildControl, Lifecycle, ReapResult, Registry},
    mark::Marks,
    pipes::ChildPipes,
    procfs::ProcessRef,
    spawn::spawn,
    watchdog::Watchdog,
};

/// Starts children of this process.
#[derive(Debug)]
pub(super) struct LocalHost {
    marks: Marks,
    cleanup: Arc<Cleanup>,
    watchdog: Mutex<Option<Watchdog>>,
    /// Process that owns the watchdog. A forked copy of it has a copy of the watchdog's handle, which it must
    /// not use.
    home: Pid,
}

impl LocalHost {
    pub(super) fn new(marks: Marks) -> Self {
        Self { marks, cleanup: Arc::default(), watchdog: Mutex::new(None), home: getpid() }
    }

    pub(super) async fn start(
        self: &Arc<Self>,
        number: u64,
        program: &Program,
        child_pipes: ChildPipes,
        registry: &Arc<Registry>,
    ) -> Result<Arc<Lifecycle>, StartError> {
        let mark = self.marks.mark(number);
        let (here, what, name) = (self.clone(), program.clone(), mark.clone());
        let started =
            tokio::task::spawn_blocking(move || here.spawn(&what, name, child_pipes)).await;
        let started = started.map_err(|_| StartError::Closed)?;
        let (control, process) = started.map_err(|refused| StartError::new(program, refused))?;
        let lifecycle = Arc::new(Lifecycle::new((number, mark), control, registry.clone()));
        lifecycle.set_running(process);
        ExitWatcher::keep(registry);
        Ok(lifecycle)
    }

    /// Ends the watchdog. The next child starts a new one.
    pub(super) fn close(&self) {
        let _watchdog = self.watchdog.lock().take();
    }

    /// Starts the child and blocks until it runs.
    fn spawn(
        &self,
        program: &Program,
        mark: String,
        child_pipes: ChildPipes,
    ) -> Result<(Arc<LocalControl>, ProcessRef), SpawnError> {
        self.watch();
        let leader = Leader::new(spawn(program, &mark, child_pipes)?);
        let pid = leader.pid().as_raw_pid();
        // The child is not reaped, so it exists. If `/proc` does not show it, the start time 0 is harmless.
        let process = ProcessRef::at(pid).unwrap_or(ProcessRef { pid, started: 0 });
        let leader = Mutex::new(leader);
        let control = LocalControl { leader, mark, cleanup: self.cleanup.clone(), home: self.home };
        Ok((Arc::new(control), process))
    }

    /// Starts a watchdog before the first child. Where there is no shell there is none, and children survive a
    /// `kill -9` until the next sweep; that is better than no children.
    fn watch(&self) {
        let mut watchdog = self.watchdog.lock();
        if !watchdog.as_mut().is_some_and(Watchdog::lives) {
            *watchdog = Watchdog::start(&self.marks).ok();
        }
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        if getpid() != self.home {
            std::mem::forget(self.watchdog.lock().take());
        }
    }
}

/// Control of a child of this process. The child is killed if this is dropped before it was reaped.
#[derive(Debug)]
struct LocalControl {
    leader: Mutex<Leader>,
    mark: String,
    cleanup: Arc<Cleanup>,
    home: Pid,
}

impl LocalControl {
    /// Returns a descriptor that becomes readable at the exit. Nothing reaps the leader meanwhile, so its pid
    /// is not reused.
    fn watched(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let mut leader = self.leader.lock();
        leader.peek();
        if leader.is_reaped() {
            return Err(io::ErrorKind::NotFound.into());
        }
        exit_of(leader.pid())
    }
}

#[async_trait]
impl ChildControl for LocalControl {
    fn signal(&self, signal: Signal) {
        self.leader.lock().signal(signal);
    }

    async fn reap(self: Arc<Self>, kill_set: KillSet) -> ReapResult {
        let (here, again) = (self.clone(), kill_set.clone());
        let reaped = tokio::task::spawn_blocking(move || here.reap_now(kill_set)).await;
        // A runtime that shuts down takes no more work.
        reaped.unwrap_or_else(|_| self.reap_now(again))
    }

    fn reap_now(&self, mut kill_set: KillSet) -> ReapResult {
        kill_set.add(self.leader.lock().kill_group());
        // The lock is taken for each attempt, so that other tasks can check the leader meanwhile.
        let exited = leader::reaped(|| self.leader.lock().reap());
        let leftovers = self.cleanup.sweep(self.mark.clone(), kill_set);
        ReapResult { exited, leftovers }
    }

    fn search_scope(&self) -> SearchScope {
        SearchScope::Machine
    }

    fn exited(&self) -> Option<ExitStatus> {
        self.leader.lock().peek()
    }

    async fn exit(&self, runtime: &Handle) -> ExitStatus {
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

impl Drop for LocalControl {
    fn drop(&mut self) {
        if getpid() == self.home && !self.leader.lock().is_reaped() {
            self.reap_now(KillSet::default());
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
