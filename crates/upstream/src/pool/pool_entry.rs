//! Pool entry of one link: empty, being opened, or live.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_core::Generation;
use stayput_sync::Mutex;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{
    Attachment, Budget, Link, LinkKey, LinkOpenError, Loss, LossReason, RemoteSession, Server,
    pool::{
        failure_backoff::FailureBackoff,
        link_report::LinkReport,
        link_state::LinkState,
        pooled_link::{PinGuard, PooledLink},
        resume_info::ResumeInfo,
    },
    util::flag::{CompletionGuard, Flag},
};

/// Shorter lifetimes count as failures for the backoff.
const MIN_HEALTHY_LIFETIME: Duration = Duration::from_secs(5);

/// Number of entries ever created.
static ENTRIES_CREATED: AtomicU64 = AtomicU64::new(0);

/// Pool entry of the link between one scope and one server. It outlives its links, to keep the loss of the last one.
pub(super) struct PoolEntry {
    /// Whether the entry was removed from the table. Later requests get a new entry; calls may still be in
    /// flight on this one.
    out: AtomicBool,
    /// Whether more than one session may use the link.
    pub(super) is_shared: bool,
    pub(super) server: Server,
    /// Monotonic id of the entry.
    pub(super) number: u64,
    budget: Budget,
    state: Mutex<State>,
    pub(super) key: LinkKey,
    changed: Notify,
}

struct State {
    phase: Phase,
    pins: usize,
    last_used: Instant,
    /// Reason why the state of the previous generation is gone.
    loss: Option<Arc<Loss>>,
    /// Number of the current attempt to open, so that a waiter can tell how its attempt ended.
    attempt: u64,
    /// Attachment of the last link. For a live link it is built from the link itself.
    last: Option<Box<Attachment>>,
    opened: Instant,
    failure_backoff: Option<Box<FailureBackoff>>,
    /// Flag that is raised when the link of the previous configuration is gone.
    after: Option<Arc<Flag>>,
    ended: bool,
}

enum Phase {
    Empty,
    Opening {
        task: Option<AbortHandle>,
        /// Flag that is raised when the attempt has released everything.
        gone: Arc<Flag>,
    },
    Live {
        link: Link,
        resume_info: ResumeInfo,
    },
}

/// Next step for a caller that wants the link.
pub(super) enum EntryStep {
    /// Use the link.
    Live { link: Link, generation: Generation, loss: Option<Arc<Loss>> },
    /// Open the link in this attempt; no other attempt runs.
    Open(u64, CompletionGuard),
    /// Wait for this attempt.
    Wait(u64),
    /// Return this error.
    Failed(Arc<LinkOpenError>),
}

/// Link or opening attempt that is ending.
pub(super) enum EndingLink {
    Link(Link),
    /// An aborted attempt to open.
    Opening(Arc<Flag>),
}

impl EndingLink {
    /// Waits until it has released everything.
    pub(super) async fn gone(&self) {
        match self {
            Self::Link(link) => link.gone().await,
            Self::Opening(gone) => gone.wait().await,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Link(link) => link.is_gone(),
            Self::Opening(gone) => gone.is_raised(),
        }
    }

    pub(super) fn is_link(&self) -> bool {
        matches!(self, Self::Link(_))
    }
}

impl PoolEntry {
    pub(super) fn new(key: LinkKey, server: Server, budget: Budget) -> Self {
        let now = Instant::now();
        let state = State {
            phase: Phase::Empty,
            attempt: 0,
            last: None,
            loss: None,
            pins: 0,
            last_used: now,
            opened: now,
            failure_backoff: None,
            after: None,
            ended: false,
        };
        let number = ENTRIES_CREATED.fetch_add(1, Ordering::Relaxed);
        Self {
            is_shared: key.scope().session().is_none(),
            key,
            server,
            number,
            budget,
            state: Mutex::new(state),
            out: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Makes the entry the successor of one with another configuration. It is opened when `gone` is raised,
    /// because both may use the same directory.
    pub(super) fn following(self, last: Attachment, gone: Arc<Flag>) -> Self {
        {
            let mut state = self.state.lock();
            state.last = Some(Box::new(last));
            state.loss = Some(Arc::new(Loss::new(LossReason::Reconfigured, "")));
            state.after = Some(gone);
        }
        self
    }

    /// Marks the entry as removed from the table.
    pub(super) fn take_out(&self) {
        self.out.store(true, Ordering::Release);
    }

    pub(super) fn is_out(&self) -> bool {
        self.out.load(Ordering::Acquire)
    }

    /// Flag that has to be raised before a link is opened.
    pub(super) fn after(&self) -> Option<Arc<Flag>> {
        self.state.lock().after.clone()
    }

    /// Attachment of the live link, or of the last one.
    pub(super) fn last_attachment(&self) -> Option<Attachment> {
        let mut state = self.state.lock();
        state.notice_loss(&self.server);
        match &state.phase {
            Phase::Live { link, resume_info } => Some(resume_info.attachment(link, &self.server)),
            Phase::Empty | Phase::Opening { .. } => state.last.as_deref().cloned(),
        }
    }

    /// Number of calls in flight; 1 while a link is being opened.
    pub(super) fn in_flight(&self) -> usize {
        match &self.state.lock().phase {
            Phase::Live { link, .. } if link.loss().is_none() => link.in_flight(),
            Phase::Opening { .. } => 1,
            Phase::Live { .. } | Phase::Empty => 0,
        }
    }

    /// Counts one more user. From now on the link is not idle, so that it is not evicted while callers wait
    /// for it to open.
    pub(super) fn pin(&self) {
        self.state.lock().pins += 1;
    }

    /// Counts one user less. If the link is now idle, notifies the budget.
    pub(super) fn unpin(&self) {
        {
            let mut state = self.state.lock();
            state.pins -= 1;
            state.last_used = Instant::now();
        }
        // Usually no request waits for the budget, and the second lock is skipped.
        if self.budget.is_awaited() && self.state.lock().idle_since().is_some() {
            self.budget.idle();
        }
    }

    /// Returns the next step to get the link. `waited` is the attempt that the caller waited for.
    pub(super) fn enter(&self, waited: Option<u64>) -> EntryStep {
        let mut state = self.state.lock();
        if state.ended {
            return EntryStep::Failed(self.over());
        }
        state.notice_loss(&self.server);
        match &state.phase {
            Phase::Live { link, resume_info } => {
                let (link, generation) = (link.share(), resume_info.generation);
                EntryStep::Live { link, generation, loss: state.loss.clone() }
            }
            Phase::Opening { .. } => EntryStep::Wait(state.attempt),
            Phase::Empty => {
                if let Some(error) = state.refusal(waited, self.key.server()) {
                    return EntryStep::Failed(error);
                }
                state.attempt += 1;
                let (completion, gone) = CompletionGuard::new();
                state.phase = Phase::Opening { task: None, gone };
                EntryStep::Open(state.attempt, completion)
            }
        }
    }

    /// Returns a guard of the link, if it is live.
    pub(super) fn hold(self: Arc<Self>) -> Option<PooledLink> {
        let mut state = self.state.lock();
        state.notice_loss(&self.server);
        let Phase::Live { link, resume_info } = &state.phase else { return None };
        let (link, generation, loss) = (link.share(), resume_info.generation, state.loss.clone());
        state.pins += 1;
        drop(state);
        Some(PooledLink::new(PinGuard::from_counted(self), link, generation, loss))
    }

    /// Waits for a change of the state. Enable it before the call of [`PoolEntry::enter`], so that no change is missed.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Stores the abort handle of the task that opens the link.
    pub(super) fn opening(&self, attempt: u64, opener: AbortHandle) {
        let mut state = self.state.lock();
        let current = state.attempt == attempt;
        match &mut state.phase {
            Phase::Opening { task, .. } if current => *task = Some(opener),
            // The attempt has finished, or was given up before its handle was stored.
            _ => opener.abort(),
        }
    }

    /// Attachment of the last link, and the loss that ended it.
    pub(super) fn before(&self) -> (Option<Attachment>, Option<Arc<Loss>>) {
        let state = self.state.lock();
        (state.last.as_deref().cloned(), state.loss.clone())
    }

    /// Stores the link of a successful attempt. Returns whether it is the current link now.
    pub(super) fn opened(
        &self,
        attempt: u64,
        link: Link,
        attachment: &Attachment,
        loss: Option<Arc<Loss>>,
    ) -> bool {
        let resume_info = ResumeInfo::from_attachment(attachment, &self.server);
        let idle = {
            let mut state = self.state.lock();
            if state.ended || state.attempt != attempt {
                // The attempt was given up. The caller drops the link.
                return false;
            }
            link.settled();
            state.loss = loss;
            (state.last, state.after) = (None, None);
            if let Some(failure_backoff) = &mut state.failure_backoff {
                failure_backoff.failed = None;
            }
            state.phase = Phase::Live { link, resume_info };
            state.opened = Instant::now();
            state.last_used = state.opened;
            state.idle_since().is_some()
        };
        self.changed.notify_waiters();
        if idle {
            // All callers were cancelled meanwhile.
            self.budget.idle();
        }
        true
    }

    /// Stores the error of a failed attempt.
    pub(super) fn failed(&self, attempt: u64, error: Arc<LinkOpenError>) {
        {
            let mut state = self.state.lock();
            if state.attempt != attempt || !matches!(state.phase, Phase::Opening { .. }) {
                return;
            }
            // An exhausted budget is not a failure of the server, and a backoff error must not extend the backoff.
            if error.is_of_server() && !matches!(*error, LinkOpenError::BackingOff { .. }) {
                state.failure_backoff().rest();
            }
            state.phase = Phase::Empty;
            state.failure_backoff().failed = Some((attempt, error));
        }
        self.changed.notify_waiters();
    }

    /// Ends the link. Returns what to wait for, if anything. With `for_good`, no other link is opened.
    pub(super) fn end(&self, reason: LossReason, for_good: bool) -> Option<EndingLink> {
        let leaving = {
            let mut state = self.state.lock();
            state.ended |= for_good;
            state.close(reason, &self.server)
        };
        self.changed.notify_waiters();
        leaving
    }

    /// Session of a released link, which still exists on the server.
    pub(super) fn left_behind(&self) -> Option<RemoteSession> {
        let state = self.state.lock();
        let let_go = state.loss.as_ref().is_some_and(|loss| loss.leaves_state());
        let empty = matches!(state.phase, Phase::Empty);
        let last = state.last.as_deref().filter(|last| empty && let_go && last.can_resume());
        let (server, scope) = (self.server.clone(), self.key.scope().clone());
        last.map(|last| RemoteSession { server, scope, attachment: last.clone() })
    }

    /// Ends the link if it is idle. Returns whether it was.
    pub(super) fn recycle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.idle_since().is_some();
        if idle {
            state.close(LossReason::Evicted, &self.server);
        }
        idle
    }

    /// Start of the idle time, if the link is live and unused.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.state.lock().idle_since()
    }

    /// Time of the last use.
    pub(super) fn last_used(&self) -> Instant {
        self.state.lock().last_used
    }

    /// Returns the live link and its generation.
    pub(super) fn live(&self) -> Option<(Link, Generation)> {
        match &self.state.lock().phase {
            Phase::Live { link, resume_info } if link.loss().is_none() => {
                Some((link.share(), resume_info.generation))
            }
            _ => None,
        }
    }

    /// State of the link.
    pub(super) fn state(&self) -> LinkState {
        let mut state = self.state.lock();
        state.notice_loss(&self.server);
        state.state()
    }

    /// Report for the operator.
    pub(super) fn report(&self) -> LinkReport {
        let mut state = self.state.lock();
        state.notice_loss(&self.server);
        let link = match &state.phase {
            Phase::Live { link, .. } => Some(Arc::new(link.share())),
            _ => None,
        };
        let failed = state
            .failure_backoff
            .as_ref()
            .and_then(|failure_backoff| failure_backoff.failed.as_ref());
        LinkReport {
            key: self.key.clone(),
            state: state.state(),
            loss: state.loss.clone(),
            failed: failed.map(|(_, error)| error.clone()),
            opened: link.as_ref().map(|_| state.opened.elapsed()),
            link,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Opening { .. })
    }

    fn over(&self) -> Arc<LinkOpenError> {
        Arc::new(LinkOpenError::Ended { server: self.key.server().to_owned() })
    }
}

impl State {
    fn state(&self) -> LinkState {
        match &self.phase {
            Phase::Opening { .. } => LinkState::Opening,
            Phase::Live { link, resume_info } => {
                LinkState::Live { generation: resume_info.generation, in_flight: link.in_flight() }
            }
            Phase::Empty => match self
                .failure_backoff
                .as_ref()
                .and_then(|failure_backoff| failure_backoff.pause())
            {
                Some(pause) => LinkState::BackingOff(pause),
                None if self.last.is_none() => LinkState::None,
                None => LinkState::Over(self.loss.clone()),
            },
        }
    }

    /// Moves a dead link out of the live phase and records its loss.
    fn notice_loss(&mut self, server: &Server) {
        let Phase::Live { link, resume_info } = &self.phase else { return };
        let Some(loss) = link.loss() else { return };
        // Guards may still exist; without this they would keep the budget permit from the next link.
        link.close(loss.reason());
        self.last = Some(Box::new(resume_info.attachment(link, server)));
        self.phase = Phase::Empty;
        self.loss = Some(loss);
        if self.opened.elapsed() < MIN_HEALTHY_LIFETIME {
            self.failure_backoff().short_life();
        } else {
            self.failure_backoff = None;
        }
    }

    fn failure_backoff(&mut self) -> &mut FailureBackoff {
        self.failure_backoff.get_or_insert_default()
    }

    /// Returns the error that prevents a new attempt: that of the attempt just waited for, or a running backoff.
    fn refusal(&self, waited: Option<u64>, server: &str) -> Option<Arc<LinkOpenError>> {
        let failure_backoff = self.failure_backoff.as_ref()?;
        match &failure_backoff.failed {
            Some((attempt, error)) if waited == Some(*attempt) => Some(error.clone()),
            _ => failure_backoff.resting(server, self.loss.as_deref()).map(Arc::new),
        }
    }

    /// Start of the idle time. A dead link is not idle: its permit is freed anyway. The time starts at the
    /// end of the last call, even if the caller dropped its guard earlier (E20).
    fn idle_since(&self) -> Option<Instant> {
        let Phase::Live { link, .. } = &self.phase else { return None };
        let idle = self.pins == 0 && link.in_flight() == 0 && link.loss().is_none();
        idle.then(|| link.quiet_since().map_or(self.last_used, |at| at.max(self.last_used)))
    }

    fn close(&mut self, reason: LossReason, server: &Server) -> Option<EndingLink> {
        match std::mem::replace(&mut self.phase, Phase::Empty) {
            Phase::Empty => None,
            Phase::Opening { task, gone } => {
                let server = server.name().to_owned();
                let error = Arc::new(LinkOpenError::Ended { server });
                self.failure_backoff().failed = Some((self.attempt, error));
                // A new number, so that a late result of the aborted attempt is ignored.
                self.attempt += 1;
                if let Some(task) = task {
                    task.abort();
                }
                Some(EndingLink::Opening(gone))
            }
            Phase::Live { link, resume_info } => {
                self.last = Some(Box::new(resume_info.attachment(&link, server)));
                link.close(reason);
                self.loss = link.loss();
                Some(EndingLink::Link(link))
            }
        }
    }
}

impl fmt::Debug for PoolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolEntry({:?})", self.key)
    }
}
