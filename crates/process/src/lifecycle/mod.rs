//! Lifecycle of one child, from its start until no process of its tree is left: shutdown closes its stdin, then sends
//! SIGTERM, then kills.

mod registry;

use std::{
    fmt, future,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, getpid};
use stayput_sync::Mutex;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    EndReport, EndedBy, ExitStatus, Grace, ProcessInfo,
    kill_set::{KillSet, SearchScope},
    procfs::{self, ProcessRef},
};

pub(super) use self::registry::Registry;

/// Upper bound of one grace period, longer than any process lives.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Control of a child, directly or through its warden.
#[async_trait]
pub(crate) trait ChildControl: Send + Sync + fmt::Debug {
    /// Sends a signal to the child's group. Never waits.
    fn signal(&self, signal: Signal);

    /// Kills the group, reaps the leader, then kills the leftovers and the processes in `kill_set`.
    async fn reap(self: Arc<Self>, kill_set: KillSet) -> ReapResult;

    /// Does the same as `reap`, at once and without a runtime. Blocks.
    fn reap_now(&self, kill_set: KillSet) -> ReapResult;

    /// Processes among which the child's mark is searched.
    fn search_scope(&self) -> SearchScope;

    /// Returns how the leader ended, if it has and this process can see it. Never waits.
    fn exited(&self) -> Option<ExitStatus>;

    /// Waits for the leader's exit, on `runtime`. Never returns where the exit cannot be seen or watched from
    /// this process; the warden or the periodic check reports it then.
    async fn exit(&self, runtime: &Handle) -> ExitStatus;
}

/// Result of reaping a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReapResult {
    pub(crate) exited: ExitStatus,
    pub(crate) leftovers: usize,
}

/// State shared by a child's handle, the task that ends the child and the tasks that notice its exit.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) number: u64,
    pub(crate) mark: String,
    /// Leader of the child's process group, once the child runs.
    leader: OnceLock<ProcessRef>,
    state: Mutex<State>,
    /// Notified when the stage changes. There is one per child, so it is as small as possible.
    changed: Notify,
    control: Arc<dyn ChildControl>,
    runtime: Handle,
    registry: Arc<Registry>,
    /// Process that started the child. In a forked copy of it, the child belongs to the original process.
    home: Pid,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Time to end by itself, once the end of the child has begun.
    grace: Option<Grace>,
    exited: Option<ExitStatus>,
    ended: Option<EndReport>,
}

impl Lifecycle {
    pub(crate) fn new(
        name: (u64, String),
        control: Arc<dyn ChildControl>,
        registry: Arc<Registry>,
    ) -> Self {
        let (number, mark) = name;
        Self {
            number,
            mark,
            leader: OnceLock::new(),
            state: Mutex::default(),
            changed: Notify::new(),
            control,
            runtime: registry.runtime().clone(),
            registry,
            home: getpid(),
        }
    }

    /// Records the leader of the running child and adds the child to the registry.
    pub(crate) fn set_running(self: &Arc<Self>, leader: ProcessRef) {
        let _ = self.leader.set(leader);
        tracing::debug!(pid = leader.pid, "child started");
        self.registry.add(self);
    }

    pub(crate) fn pid(&self) -> i32 {
        self.leader.get().map_or(0, |leader| leader.pid)
    }

    pub(crate) fn exited(&self) -> Option<ExitStatus> {
        self.state.lock().exited
    }

    pub(crate) fn ended(&self) -> Option<EndReport> {
        self.state.lock().ended
    }

    /// Checks now whether the leader has exited.
    pub(crate) fn check(self: &Arc<Self>) -> Option<ExitStatus> {
        if self.exited().is_none()
            && !self.forked()
            && let Some(exited) = self.control.exited()
        {
            self.record_exit(exited);
        }
        self.exited()
    }

    /// Waits for the leader's exit, and watches the leader meanwhile.
    pub(crate) async fn wait(self: &Arc<Self>) -> ExitStatus {
        tokio::select! {
            biased;
            exited = self.exit_recorded() => exited,
            () = self.watch() => self.exit_recorded().await,
        }
    }

    /// Watches the leader and records its exit at once.
    async fn watch(self: &Arc<Self>) {
        if self.forked() {
            return future::pending().await;
        }
        let exited = self.control.exit(&self.runtime).await;
        self.record_exit(exited);
    }

    /// Waits until another task has recorded the exit.
    pub(crate) async fn exit_recorded(&self) -> ExitStatus {
        self.until(|state| state.exited).await
    }

    /// Waits until `look` finds a value in the stage.
    async fn until<T>(&self, check: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the check, so that no change between the two is missed.
            changed.as_mut().enable();
            let process = check(&self.state.lock());
            match process {
                Some(process) => return process,
                None => changed.await,
            }
        }
    }

    /// Changes the stage. `change` returns whether it did; then all waiters are woken.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        let changed = change(&mut self.state.lock());
        if changed {
            self.changed.notify_waiters();
        }
    }

    pub(crate) async fn end(self: &Arc<Self>, grace: Grace) -> EndReport {
        if self.forked() {
            return EndReport { exited: ExitStatus::Unknown, how: EndedBy::ByItself, leftovers: 0 };
        }
        self.begin_end(grace);
        self.until(|state| state.ended).await
    }

    /// Begins the end of the child, or shortens its grace if it has begun. The end runs in its own task.
    pub(crate) fn begin_end(self: &Arc<Self>, grace: Grace) {
        if self.forked() {
            return;
        }
        let mut first = false;
        self.change(|state| {
            first = state.grace.is_none();
            let shorter = state.grace.map_or(grace, |begun| begun.min(grace));
            state.grace.replace(shorter) != Some(shorter)
        });
        if first {
            // A runtime that is gone drops the task at once; the task's `Drop` kills the child.
            let ending = Shutdown { lifecycle: self.clone() };
            self.runtime.spawn(async move { ending.run().await });
        }
    }

    /// Records the leader's exit and ends the leftovers, whether or not a handle of the child exists.
    pub(crate) fn record_exit(self: &Arc<Self>, exited: ExitStatus) {
        self.change(|state| {
            let new = state.exited.is_none();
            state.exited.get_or_insert(exited);
            new
        });
        self.begin_end(Grace::NONE);
    }

    /// Kills the child at once. Used when there is no runtime any more.
    pub(crate) fn end_now(&self) {
        if self.forked() || self.ended().is_some() {
            return;
        }
        let kill_set = self.leader.get().copied().map(KillSet::tree).unwrap_or_default();
        let reaped = self.control.reap_now(kill_set);
        let how = if self.exited().is_some() { EndedBy::ByItself } else { EndedBy::Killed };
        self.finish(how, reaped);
    }

    /// Proportional memory (PSS) of the child's whole tree. Reads `/proc`, so it takes a moment.
    pub(crate) fn memory(&self) -> Option<u64> {
        let all = self.tree();
        (!all.is_empty()).then(|| all.iter().filter_map(|it| procfs::memory(it.pid)).sum())
    }

    /// Processes of the child's whole tree. Reads `/proc`, so it takes a moment.
    pub(crate) fn processes(&self) -> Vec<ProcessInfo> {
        self.tree().iter().filter_map(|process| ProcessInfo::read(*process)).collect()
    }

    /// Processes of the child's whole tree, sorted by pid. Empty if the child has ended.
    fn tree(&self) -> Vec<ProcessRef> {
        let Some(leader) = self.leader.get().copied() else { return Vec::new() };
        if self.ended().is_some() || !leader.lives() {
            return Vec::new();
        }
        let find_marked =
            self.control.search_scope().find_marked(|mark| (mark == self.mark).then_some(()));
        let mut roots: Vec<ProcessRef> =
            find_marked.into_iter().map(|((), process)| process).collect();
        roots.push(leader);
        let below = roots.iter().flat_map(|root| procfs::below(root.pid));
        let mut all: Vec<ProcessRef> = roots.iter().copied().chain(below).collect();
        all.sort_unstable_by_key(|process| process.pid);
        all.dedup_by_key(|process| process.pid);
        all
    }

    fn finish(&self, how: EndedBy, reaped: ReapResult) {
        // Removed before the waiters are woken: they may count the live children at once.
        self.registry.remove(self.number);
        let (pid, leftovers) = (self.pid(), reaped.leftovers);
        tracing::debug!(pid, status = %reaped.exited, ended_by = ?how, leftovers, "child ended");
        self.change(|state| {
            let exited = *state.exited.get_or_insert(reaped.exited);
            state.ended.get_or_insert(EndReport { exited, how, leftovers: reaped.leftovers });
            true
        });
    }

    pub(crate) fn forked(&self) -> bool {
        getpid() != self.home
    }

    /// Returns whether the leader exits before the part of its grace that `pick` selects is over.
    async fn exits_within(&self, pick: impl Fn(Grace) -> Duration) -> bool {
        let from = Instant::now();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = *self.state.lock();
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
struct Shutdown {
    lifecycle: Arc<Lifecycle>,
}

impl Shutdown {
    async fn run(self) {
        let lifecycle = &self.lifecycle;
        // Records the tree first, so that processes that leave it later and carry no mark are still found.
        let kill_set = self.kill_set().await;
        let how = self.stop_leader().await;
        let reaped = lifecycle.control.clone().reap(kill_set).await;
        lifecycle.finish(how, reaped);
    }

    async fn kill_set(&self) -> KillSet {
        let Some(leader) = self.lifecycle.leader.get().copied() else { return KillSet::default() };
        if matches!(self.lifecycle.exited(), Some(ExitStatus::Code(_) | ExitStatus::Signal(_))) {
            return KillSet::new(leader.pid, Vec::new());
        }
        let tree = tokio::task::spawn_blocking(move || KillSet::tree(leader)).await;
        tree.unwrap_or_else(|_| KillSet::new(leader.pid, vec![leader]))
    }

    async fn stop_leader(&self) -> EndedBy {
        let watch = async {
            self.lifecycle.watch().await;
            // The exit is recorded now, and `steps` sees it.
            future::pending().await
        };
        tokio::select! {
            how = self.steps() => how,
            how = watch => how,
        }
    }

    async fn steps(&self) -> EndedBy {
        if self.lifecycle.exits_within(|grace| grace.quit).await {
            return EndedBy::ByItself;
        }
        self.lifecycle.control.signal(Signal::TERM);
        if self.lifecycle.exits_within(|grace| grace.term).await {
            return EndedBy::Terminated;
        }
        EndedBy::Killed
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.lifecycle.end_now();
    }
}
