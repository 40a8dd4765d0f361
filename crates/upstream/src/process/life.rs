//! Life of one child, from its start until no process of its tree is left.

use std::{
    fmt, future,
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, getpid};
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    Ended, Exited, Grace, How,
    proc::{self, Seen},
    registry::Registry,
    rest::{Claim, Ground},
};
use crate::lock::lock;

/// Upper bound of one grace period, longer than any process lives.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Control of a child, directly or through its warden.
#[async_trait]
pub(super) trait ChildControl: Send + Sync + fmt::Debug {
    /// Sends a signal to the child's group. Never waits.
    fn signal(&self, signal: Signal);

    /// Kills the group, reaps the leader, then kills the leftovers and the processes in `claim`.
    async fn reap(self: Arc<Self>, claim: Claim) -> Reaped;

    /// Does the same as `reap`, at once and without a runtime. Blocks.
    fn reap_now(&self, claim: Claim) -> Reaped;

    /// Processes among which the child's mark is searched.
    fn ground(&self) -> Ground;

    /// Returns how the leader ended, if it has and this process can see it. Never waits.
    fn exited(&self) -> Option<Exited>;

    /// Waits for the leader's exit, on `runtime`. Never returns where the exit cannot be seen or watched from
    /// this process; the warden or the periodic check reports it then.
    async fn exit(&self, runtime: &Handle) -> Exited;
}

/// Result of reaping a child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    pub(super) exited: Exited,
    pub(super) leftovers: usize,
}

/// State shared by a child's handle, the task that ends the child and the tasks that notice its exit.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) number: u64,
    pub(super) mark: String,
    /// Set once the child runs.
    leader: OnceLock<Seen>,
    stage: Mutex<Stage>,
    /// Notified when the stage changes. There is one per child, so it is as small as possible.
    changed: Notify,
    grip: Arc<dyn ChildControl>,
    runtime: Handle,
    registry: Arc<Registry>,
    /// Process that started the child. In a forked copy of it, the child belongs to the original process.
    home: Pid,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    /// Set when the end of the child begins.
    grace: Option<Grace>,
    exited: Option<Exited>,
    ended: Option<Ended>,
}

impl Life {
    pub(super) fn new(
        name: (u64, String),
        grip: Arc<dyn ChildControl>,
        registry: Arc<Registry>,
    ) -> Self {
        let (number, mark) = name;
        Self {
            number,
            mark,
            leader: OnceLock::new(),
            stage: Mutex::default(),
            changed: Notify::new(),
            grip,
            runtime: registry.runtime().clone(),
            registry,
            home: getpid(),
        }
    }

    /// Records the leader of the running child and adds the child to the registry.
    pub(super) fn runs(self: &Arc<Self>, leader: Seen) {
        let _ = self.leader.set(leader);
        self.registry.add(self);
    }

    pub(super) fn pid(&self) -> i32 {
        self.leader.get().map_or(0, |leader| leader.pid)
    }

    pub(super) fn exited(&self) -> Option<Exited> {
        lock(&self.stage).exited
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        lock(&self.stage).ended
    }

    /// Checks now whether the leader has exited.
    pub(super) fn look(self: &Arc<Self>) -> Option<Exited> {
        if self.exited().is_none()
            && !self.forked()
            && let Some(exited) = self.grip.exited()
        {
            self.noticed(exited);
        }
        self.exited()
    }

    /// Waits for the leader's exit, and watches the leader meanwhile.
    pub(super) async fn wait(self: &Arc<Self>) -> Exited {
        tokio::select! {
            biased;
            exited = self.told() => exited,
            () = self.watch() => self.told().await,
        }
    }

    /// Watches the leader and records its exit at once.
    async fn watch(self: &Arc<Self>) {
        if self.forked() {
            return future::pending().await;
        }
        let exited = self.grip.exit(&self.runtime).await;
        self.noticed(exited);
    }

    /// Waits until another task has recorded the exit.
    pub(super) async fn told(&self) -> Exited {
        self.until(|stage| stage.exited).await
    }

    /// Waits until `look` finds a value in the stage.
    async fn until<T>(&self, look: impl Fn(&Stage) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the check, so that no change between the two is missed.
            changed.as_mut().enable();
            let seen = look(&lock(&self.stage));
            match seen {
                Some(seen) => return seen,
                None => changed.await,
            }
        }
    }

    /// Changes the stage. `change` returns whether it did; then all waiters are woken.
    fn change(&self, change: impl FnOnce(&mut Stage) -> bool) {
        let changed = change(&mut lock(&self.stage));
        if changed {
            self.changed.notify_waiters();
        }
    }

    pub(super) async fn end(self: &Arc<Self>, grace: Grace) -> Ended {
        if self.forked() {
            return Ended { exited: Exited::Unknown, how: How::ByItself, leftovers: 0 };
        }
        self.begin(grace);
        self.until(|stage| stage.ended).await
    }

    /// Begins the end of the child, or shortens its grace if it has begun. The end runs in its own task.
    pub(super) fn begin(self: &Arc<Self>, grace: Grace) {
        if self.forked() {
            return;
        }
        let mut first = false;
        self.change(|stage| {
            first = stage.grace.is_none();
            let shorter = stage.grace.map_or(grace, |begun| begun.min(grace));
            stage.grace.replace(shorter) != Some(shorter)
        });
        if first {
            // A runtime that is gone drops the task at once; the task's `Drop` kills the child.
            let ending = Ending { life: self.clone() };
            self.runtime.spawn(async move { ending.run().await });
        }
    }

    /// Records the leader's exit and ends the leftovers, whether or not a handle of the child exists.
    pub(super) fn noticed(self: &Arc<Self>, exited: Exited) {
        self.change(|stage| {
            let new = stage.exited.is_none();
            stage.exited.get_or_insert(exited);
            new
        });
        self.begin(Grace::NONE);
    }

    /// Kills the child at once. Used when there is no runtime any more.
    pub(super) fn end_now(&self) {
        if self.forked() || self.ended().is_some() {
            return;
        }
        let claim = self.leader.get().copied().map(Claim::tree).unwrap_or_default();
        let reaped = self.grip.reap_now(claim);
        let how = if self.exited().is_some() { How::ByItself } else { How::Killed };
        self.finish(how, reaped);
    }

    /// Resident memory of the child's whole tree. Reads `/proc`, so it takes a moment.
    pub(super) fn memory(&self) -> Option<u64> {
        let leader = *self.leader.get()?;
        if self.ended().is_some() || !leader.lives() {
            return None;
        }
        let carriers = self.grip.ground().carriers(|mark| (mark == self.mark).then_some(()));
        let mut roots: Vec<Seen> = carriers.into_iter().map(|((), seen)| seen).collect();
        roots.push(leader);
        let below = roots.iter().flat_map(|root| proc::below(root.pid));
        let mut all: Vec<Seen> = roots.iter().copied().chain(below).collect();
        all.sort_unstable_by_key(|seen| seen.pid);
        all.dedup_by_key(|seen| seen.pid);
        Some(all.iter().filter_map(|seen| proc::resident(seen.pid)).sum())
    }

    fn finish(&self, how: How, reaped: Reaped) {
        // Removed before the waiters are woken: they may count the live children at once.
        self.registry.remove(self.number);
        self.change(|stage| {
            let exited = *stage.exited.get_or_insert(reaped.exited);
            stage.ended.get_or_insert(Ended { exited, how, leftovers: reaped.leftovers });
            true
        });
    }

    pub(super) fn forked(&self) -> bool {
        getpid() != self.home
    }

    /// Returns whether the leader exits before the part of its grace that `pick` selects is over.
    async fn exits_within(&self, pick: impl Fn(Grace) -> Duration) -> bool {
        let from = Instant::now();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = *lock(&self.stage);
            if now.exited.is_some() {
                return true;
            }
            let part = now.grace.map_or(Duration::ZERO, &pick).min(FOREVER);
            tokio::select! {
                biased;
                () = changed.as_mut() => {}
                () = sleep_until(from + part) => return self.exited().is_some(),
            }
        }
    }
}

/// Shutdown of a child in steps: closes its standard input, sends TERM, then KILL. Dropped before it is done, it kills
/// the child.
#[derive(Debug)]
struct Ending {
    life: Arc<Life>,
}

impl Ending {
    async fn run(self) {
        let life = &self.life;
        // Records the tree first, so that processes that leave it later and carry no mark are still found.
        let claim = self.claim().await;
        let how = self.persuade().await;
        let reaped = life.grip.clone().reap(claim).await;
        life.finish(how, reaped);
    }

    async fn claim(&self) -> Claim {
        let Some(leader) = self.life.leader.get().copied() else { return Claim::default() };
        if matches!(self.life.exited(), Some(Exited::Code(_) | Exited::Signal(_))) {
            return Claim::new(leader.pid, Vec::new());
        }
        let tree = tokio::task::spawn_blocking(move || Claim::tree(leader)).await;
        tree.unwrap_or_else(|_| Claim::new(leader.pid, vec![leader]))
    }

    async fn persuade(&self) -> How {
        let watch = async {
            self.life.watch().await;
            // The exit is recorded now, and `steps` sees it.
            future::pending().await
        };
        tokio::select! {
            how = self.steps() => how,
            how = watch => how,
        }
    }

    async fn steps(&self) -> How {
        if self.life.exits_within(|grace| grace.quit).await {
            return How::ByItself;
        }
        self.life.grip.signal(Signal::TERM);
        if self.life.exits_within(|grace| grace.term).await {
            return How::Terminated;
        }
        How::Killed
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.life.end_now();
    }
}
