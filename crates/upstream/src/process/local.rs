//! Children that this process starts itself.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    Exited, Program, StartError,
    error::{Refused, Step},
    leader::Leader,
    life::{Grip, Life, Reaped},
    mark::Marks,
    pipes::Ends,
    proc::Seen,
    registry::Registry,
    rest::{Broom, Claim, Ground},
    spawn::spawn,
    watchdog::Watchdog,
};

/// Starts children here.
#[derive(Debug)]
pub(super) struct Local {
    marks: Marks,
    broom: Arc<Broom>,
    watchdog: Mutex<Option<Watchdog>>,
    /// A forked copy of this process has a copy of the watchdog's handle, which it must not use.
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
        // Dropped on the way out, the grip kills what it has.
        let watched = exit_of(grip.pid())
            .map_err(|error| StartError::new(program, Refused::io(Step::Pipes, &error)))?;
        let life = Arc::new(Life::new((number, mark), grip.clone(), registry.clone()));
        life.runs(seen);
        let watch = Watch { life: life.clone(), grip, watched };
        registry.runtime().spawn(async move { watch.run().await });
        Ok(life)
    }

    /// Ends the watchdog. The next child starts a new one.
    pub(super) fn close(&self) {
        let _watchdog = self.watchdog().take();
    }

    /// Blocks until the child runs.
    fn spawn(
        &self,
        program: &Program,
        mark: String,
        ends: Ends,
    ) -> Result<(Arc<LocalGrip>, Seen), Refused> {
        self.watch();
        let leader = Leader::new(spawn(program, &mark, ends)?);
        let pid = leader.pid().as_raw_pid();
        // It is not reaped, so it is there, and if nothing is told of it this stays harmless.
        let seen = Seen::at(pid).unwrap_or(Seen { pid, started: 0 });
        let leader = Mutex::new(leader);
        let grip = LocalGrip { leader, mark, broom: self.broom.clone(), home: self.home };
        Ok((Arc::new(grip), seen))
    }

    /// Has a watchdog before there is anything to watch over. Where there is no shell there is none,
    /// and children outlive a `kill -9` until the next sweep; that is better than no children.
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

/// A child of this process. Dropped before it is reaped, it is killed.
#[derive(Debug)]
struct LocalGrip {
    leader: Mutex<Leader>,
    mark: String,
    broom: Arc<Broom>,
    home: Pid,
}

impl LocalGrip {
    fn pid(&self) -> Pid {
        self.leader().pid()
    }

    fn peek(&self) -> Option<Exited> {
        self.leader().peek()
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Grip for LocalGrip {
    fn signal(&self, signal: Signal) {
        self.leader().signal(signal);
    }

    async fn reap(self: Arc<Self>, claim: Claim) -> Reaped {
        let (here, again) = (self.clone(), claim.clone());
        let reaped = tokio::task::spawn_blocking(move || here.reap_now(claim)).await;
        // A runtime that is going away takes no more work.
        reaped.unwrap_or_else(|_| self.reap_now(again))
    }

    fn reap_now(&self, mut claim: Claim) -> Reaped {
        let (exited, tree) = self.leader().kill();
        claim.add(tree);
        let leftovers = self.broom.sweep(self.mark.clone(), claim);
        Reaped { exited, leftovers }
    }

    fn ground(&self) -> Ground {
        Ground::Machine
    }
}

impl Drop for LocalGrip {
    fn drop(&mut self) {
        if getpid() == self.home && !self.leader().is_reaped() {
            self.reap_now(Claim::default());
        }
    }
}

/// A descriptor that can be read from when the process has exited. Has to be called on a runtime.
#[allow(
    deprecated,
    reason = "what is wrong with it are types that do not own their descriptor, and its successor is \
              unsafe; this one owns it"
)]
fn exit_of(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    AsyncFd::with_interest(process, Interest::READABLE)
}

/// Waits for a child to exit. Dropped before that, because its runtime is gone, it kills the child:
/// nobody would notice its exit any more.
struct Watch {
    life: Arc<Life>,
    grip: Arc<LocalGrip>,
    watched: AsyncFd<OwnedFd>,
}

impl Watch {
    async fn run(self) {
        loop {
            let ready = self.watched.readable().await;
            if let Some(exited) = self.grip.peek() {
                self.life.noticed(exited);
                return;
            }
            match ready {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is going away.
                Err(_) => return,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.life.exited().is_none() {
            self.life.end_now();
        }
    }
}
