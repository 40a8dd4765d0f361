//! The place of one link: empty, being opened, or live.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use stayput_core::Generation;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{
    Attachment, Budget, Link, LinkKey, Loss, LossReason, OpenError, Server, backoff::Backoff,
    lock::lock,
};

/// A link that ended sooner than this was not worth opening.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// The place of the link of one scope to one server. It outlives its links: it knows what was lost.
pub(super) struct Slot {
    pub(super) key: LinkKey,
    pub(super) server: Server,
    budget: Budget,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    phase: Phase,
    /// Counts attempts to open, so that who waits for one knows how it ended.
    attempt: u64,
    failed: Option<(u64, Arc<OpenError>)>,
    /// What the last link left behind.
    last: Option<Attachment>,
    /// Why the state of an earlier generation is gone.
    loss: Option<Arc<Loss>>,
    pins: usize,
    last_used: Instant,
    opened: Instant,
    backoff: Backoff,
    failures: u32,
    rest_until: Option<Instant>,
    ended: bool,
}

enum Phase {
    Empty,
    Opening(Option<AbortHandle>),
    Live { link: Arc<Link>, generation: Generation },
}

/// What somebody who wants the link has to do.
pub(super) enum Entered {
    /// Use it.
    Held(Held),
    /// Open it: nobody else does.
    Open(u64),
    /// Wait for this attempt.
    Wait(u64),
    /// Give up.
    Failed(Arc<OpenError>),
}

impl Slot {
    pub(super) fn new(key: LinkKey, server: Server, budget: Budget) -> Self {
        let now = Instant::now();
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        let state = State {
            phase: Phase::Empty,
            attempt: 0,
            failed: None,
            last: None,
            loss: None,
            pins: 0,
            last_used: now,
            opened: now,
            backoff,
            failures: 0,
            rest_until: None,
            ended: false,
        };
        Self { key, server, budget, state: Mutex::new(state), changed: Notify::new() }
    }

    /// What to do to get the link. `waited` is the attempt that was waited for.
    pub(super) fn enter(self: &Arc<Self>, waited: Option<u64>) -> Entered {
        let mut state = lock(&self.state);
        if state.ended {
            return Entered::Failed(self.over());
        }
        state.notice_loss();
        if let Some(held) = self.held(&mut state) {
            return Entered::Held(held);
        }
        match &state.phase {
            Phase::Opening(_) => Entered::Wait(state.attempt),
            Phase::Empty | Phase::Live { .. } => {
                if let Some((attempt, error)) = &state.failed
                    && waited == Some(*attempt)
                {
                    return Entered::Failed(error.clone());
                }
                if let Some(resting) = state.resting(self.key.server()) {
                    return Entered::Failed(Arc::new(resting));
                }
                state.attempt += 1;
                state.phase = Phase::Opening(None);
                Entered::Open(state.attempt)
            }
        }
    }

    /// The link, if it is live.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Held> {
        let mut state = lock(&self.state);
        state.notice_loss();
        self.held(&mut state)
    }

    fn held(self: &Arc<Self>, state: &mut State) -> Option<Held> {
        let Phase::Live { link, generation } = &state.phase else { return None };
        let (link, generation) = (link.clone(), *generation);
        state.pins += 1;
        let loss = state.loss.clone();
        Some(Held { slot: self.clone(), link, generation, loss })
    }

    /// Waits until something changes. To be enlisted before [`Slot::enter`] is asked.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Somebody opens the link in this task.
    pub(super) fn opening(&self, attempt: u64, task: AbortHandle) {
        let mut state = lock(&self.state);
        let current = state.attempt == attempt;
        if let Phase::Opening(opener) = &mut state.phase
            && current
        {
            *opener = Some(task);
        }
    }

    /// What is known of the link before, and why it is gone.
    pub(super) fn before(&self) -> (Option<Attachment>, Option<Arc<Loss>>) {
        let state = lock(&self.state);
        (state.last.clone(), state.loss.clone())
    }

    /// The attempt ended well.
    pub(super) fn opened(
        &self,
        attempt: u64,
        link: Arc<Link>,
        attachment: Attachment,
        loss: Option<Arc<Loss>>,
    ) {
        {
            let mut state = lock(&self.state);
            if state.ended || state.attempt != attempt {
                // Nobody wants it any more, and who opened it drops it.
                return;
            }
            let generation = attachment.generation;
            state.loss = loss;
            state.last = Some(attachment);
            state.phase = Phase::Live { link, generation };
            state.opened = Instant::now();
            state.last_used = state.opened;
        }
        self.changed.notify_waiters();
    }

    /// The attempt did not end well.
    pub(super) fn failed(&self, attempt: u64, error: OpenError) {
        {
            let mut state = lock(&self.state);
            if state.attempt != attempt || !matches!(state.phase, Phase::Opening(_)) {
                return;
            }
            // A lack of room is not the server's fault.
            if error.is_of_server() {
                state.rest();
            }
            state.phase = Phase::Empty;
            state.failed = Some((attempt, Arc::new(error)));
        }
        self.changed.notify_waiters();
    }

    /// Ends the link, and says what is to be waited for. With `for_good`, no other one is opened.
    pub(super) fn end(&self, reason: LossReason, for_good: bool) -> Option<Arc<Link>> {
        let link = {
            let mut state = lock(&self.state);
            state.ended |= for_good;
            state.close(reason, self.key.server())
        };
        self.changed.notify_waiters();
        link
    }

    /// What is left on the server of a link that was only let go of.
    pub(super) fn left_behind(&self) -> Option<Attachment> {
        let state = lock(&self.state);
        let let_go = state.loss.as_ref().is_some_and(|loss| loss.leaves_state());
        let empty = matches!(state.phase, Phase::Empty);
        state.last.clone().filter(|last| empty && let_go && last.can_resume())
    }

    /// Ends the link if nobody uses it.
    pub(super) fn recycle(&self) -> Option<Arc<Link>> {
        let mut state = lock(&self.state);
        if !state.is_idle() {
            return None;
        }
        state.close(LossReason::Evicted, self.key.server())
    }

    /// Since when nobody uses the link, if it is live and nobody does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.is_idle().then_some(state.last_used)
    }

    /// The live link.
    pub(super) fn live(&self) -> Option<(Arc<Link>, Generation)> {
        match &lock(&self.state).phase {
            Phase::Live { link, generation } => Some((link.clone(), *generation)),
            _ => None,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Opening(_))
    }

    fn over(&self) -> Arc<OpenError> {
        Arc::new(OpenError::Ended { server: self.key.server().to_owned() })
    }
}

impl State {
    /// Takes note of a link that died. Late failures of it concern nobody any more.
    fn notice_loss(&mut self) {
        let Phase::Live { link, .. } = &self.phase else { return };
        let Some(loss) = link.loss() else { return };
        // Whoever still holds it must not keep its place from the next one.
        link.close(loss.reason());
        self.phase = Phase::Empty;
        self.loss = Some(loss);
        if self.opened.elapsed() < SHORT_LIFE {
            self.failures += 1;
            // Once can happen to anybody.
            if self.failures > 1 {
                self.rest();
            }
        } else {
            self.failures = 0;
            self.backoff.reset();
            self.rest_until = None;
        }
    }

    fn rest(&mut self) {
        self.rest_until = Some(Instant::now() + self.backoff.next());
    }

    fn resting(&self, server: &str) -> Option<OpenError> {
        let pause = self.rest_until?.checked_duration_since(Instant::now())?;
        let last = match (&self.failed, &self.loss) {
            (Some((_, error)), _) => error.to_string(),
            (None, Some(loss)) => loss.to_string(),
            (None, None) => String::new(),
        };
        Some(OpenError::Resting { server: server.to_owned(), pause, last })
    }

    fn is_idle(&self) -> bool {
        match &self.phase {
            Phase::Live { link, .. } => self.pins == 0 && link.in_flight() == 0,
            _ => false,
        }
    }

    fn close(&mut self, reason: LossReason, server: &str) -> Option<Arc<Link>> {
        match std::mem::replace(&mut self.phase, Phase::Empty) {
            Phase::Empty => None,
            Phase::Opening(opener) => {
                let server = server.to_owned();
                self.failed = Some((self.attempt, Arc::new(OpenError::Ended { server })));
                // The next attempt has another number, so what this one still says is not heard.
                self.attempt += 1;
                if let Some(opener) = opener {
                    opener.abort();
                }
                None
            }
            Phase::Live { link, .. } => {
                link.close(reason);
                self.loss = link.loss();
                Some(link)
            }
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.key)
    }
}

/// A link in use: while it is held, it is not ended to make room for another one.
pub struct Held {
    slot: Arc<Slot>,
    link: Arc<Link>,
    generation: Generation,
    loss: Option<Arc<Loss>>,
}

impl Held {
    /// Counts how often the state behind it was lost and begun anew.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Why the state of the generation before is gone, if that is known.
    #[must_use]
    pub fn loss(&self) -> Option<&Arc<Loss>> {
        self.loss.as_ref()
    }

    /// What it is found by.
    #[must_use]
    pub fn key(&self) -> &LinkKey {
        &self.slot.key
    }
}

impl Deref for Held {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let idle = {
            let mut state = lock(&self.slot.state);
            state.pins -= 1;
            state.last_used = Instant::now();
            state.is_idle()
        };
        if idle {
            self.slot.budget.idle();
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({:?}, generation {})", self.link, self.generation)
    }
}
