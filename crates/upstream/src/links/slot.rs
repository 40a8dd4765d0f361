//! The place of one link: empty, being opened, or live.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_core::Generation;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use super::{
    footing::Footing,
    held::{Held, Pin},
    part::Standing,
    report::LinkReport,
    trouble::Trouble,
};
use crate::{
    Attachment, Budget, Link, LinkKey, Loss, LossReason, OpenError, Server,
    flag::{Flag, Trace},
    lock::lock,
};

/// A link that ended sooner than this was not worth opening.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Counts all slots that there ever were.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// The place of the link of one scope to one server. It outlives its links: it knows what was lost.
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(super) struct Slot {
    /// Whether it was taken out of the table: whoever comes gets another one, though calls may still be in flight here.
    out: AtomicBool,
    /// Whether it is of more than one session.
    pub(super) is_shared: bool,
    pub(super) server: Server,
    /// Which of all slots it is, later ones having higher numbers.
    pub(super) number: u64,
    budget: Budget,
    state: Mutex<State>,
    pub(super) key: LinkKey,
    changed: Notify,
}

#[repr(C)] // As above.
struct State {
    phase: Phase,
    pins: usize,
    last_used: Instant,
    /// Why the state of an earlier generation is gone.
    loss: Option<Arc<Loss>>,
    /// Counts attempts to open, so that who waits for one knows how it ended.
    attempt: u64,
    /// What the last link left behind. Of a live one the link itself tells it.
    last: Option<Box<Attachment>>,
    opened: Instant,
    trouble: Option<Box<Trouble>>,
    /// Raised when nothing is left of the link that it follows on, which was configured otherwise.
    after: Option<Arc<Flag>>,
    ended: bool,
}

enum Phase {
    Empty,
    Opening {
        task: Option<AbortHandle>,
        /// Raised when nothing of the attempt is left.
        gone: Arc<Flag>,
    },
    Live {
        link: Link,
        footing: Footing,
    },
}

/// What somebody who wants the link has to do.
pub(super) enum Entered {
    /// Use it.
    Live { link: Link, generation: Generation, loss: Option<Arc<Loss>> },
    /// Open it: nobody else does.
    Open(u64, Trace),
    /// Wait for this attempt.
    Wait(u64),
    /// Give up.
    Failed(Arc<OpenError>),
}

/// What is on its way out.
pub(super) enum Leaving {
    Link(Link),
    /// An attempt to open one that was given up.
    Opening(Arc<Flag>),
}

impl Leaving {
    /// Waits until nothing of it is left.
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

impl Slot {
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
            trouble: None,
            after: None,
            ended: false,
        };
        let number = SLOTS.fetch_add(1, Ordering::Relaxed);
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

    /// The place of a link that follows on one that is configured otherwise. It is opened when `gone` is
    /// raised: both may have the same folder.
    pub(super) fn following(self, last: Attachment, gone: Arc<Flag>) -> Self {
        {
            let mut state = lock(&self.state);
            state.last = Some(Box::new(last));
            state.loss = Some(Arc::new(Loss::new(LossReason::Reconfigured, "")));
            state.after = Some(gone);
        }
        self
    }

    /// It is taken out of the table.
    pub(super) fn take_out(&self) {
        self.out.store(true, Ordering::Release);
    }

    pub(super) fn is_out(&self) -> bool {
        self.out.load(Ordering::Acquire)
    }

    /// What has to be gone before a link is opened here.
    pub(super) fn after(&self) -> Option<Arc<Flag>> {
        lock(&self.state).after.clone()
    }

    /// What its link leaves behind, or left.
    pub(super) fn legacy(&self) -> Option<Attachment> {
        let mut state = lock(&self.state);
        state.notice_loss(&self.server);
        match &state.phase {
            Phase::Live { link, footing } => Some(footing.attachment(link, &self.server)),
            Phase::Empty | Phase::Opening { .. } => state.last.as_deref().cloned(),
        }
    }

    /// How many calls are in flight; one for a link that is being opened.
    pub(super) fn in_flight(&self) -> usize {
        match &lock(&self.state).phase {
            Phase::Live { link, .. } if link.loss().is_none() => link.in_flight(),
            Phase::Opening { .. } => 1,
            Phase::Live { .. } | Phase::Empty => 0,
        }
    }

    /// Somebody wants the link. From now on it is not idle, so that who waits for it to be opened does
    /// not find that it had to make room meanwhile.
    pub(super) fn pin(&self) {
        lock(&self.state).pins += 1;
    }

    /// One less wants it. Whoever waits for an idle link is told of one.
    pub(super) fn unpin(&self) {
        {
            let mut state = lock(&self.state);
            state.pins -= 1;
            state.last_used = Instant::now();
        }
        // Nearly always nobody waits, and nobody has to know.
        if self.budget.is_awaited() && lock(&self.state).idle_since().is_some() {
            self.budget.idle();
        }
    }

    /// What to do to get the link. `waited` is the attempt that was waited for.
    pub(super) fn enter(&self, waited: Option<u64>) -> Entered {
        let mut state = lock(&self.state);
        if state.ended {
            return Entered::Failed(self.over());
        }
        state.notice_loss(&self.server);
        match &state.phase {
            Phase::Live { link, footing } => {
                let (link, generation) = (link.share(), footing.generation);
                Entered::Live { link, generation, loss: state.loss.clone() }
            }
            Phase::Opening { .. } => Entered::Wait(state.attempt),
            Phase::Empty => {
                if let Some(error) = state.refusal(waited, self.key.server()) {
                    return Entered::Failed(error);
                }
                state.attempt += 1;
                let (trace, gone) = Trace::new();
                state.phase = Phase::Opening { task: None, gone };
                Entered::Open(state.attempt, trace)
            }
        }
    }

    /// The link, if it is live.
    pub(super) fn hold(self: Arc<Self>) -> Option<Held> {
        let mut state = lock(&self.state);
        state.notice_loss(&self.server);
        let Phase::Live { link, footing } = &state.phase else { return None };
        let (link, generation, loss) = (link.share(), footing.generation, state.loss.clone());
        state.pins += 1;
        drop(state);
        Some(Held::new(Pin::of_counted(self), link, generation, loss))
    }

    /// Waits until something changes. To be enlisted before [`Slot::enter`] is asked.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Somebody opens the link in this task.
    pub(super) fn opening(&self, attempt: u64, opener: AbortHandle) {
        let mut state = lock(&self.state);
        let current = state.attempt == attempt;
        match &mut state.phase {
            Phase::Opening { task, .. } if current => *task = Some(opener),
            // It is done, or was given up before it was known who does it.
            _ => opener.abort(),
        }
    }

    /// What is known of the link before, and why it is gone.
    pub(super) fn before(&self) -> (Option<Attachment>, Option<Arc<Loss>>) {
        let state = lock(&self.state);
        (state.last.as_deref().cloned(), state.loss.clone())
    }

    /// The attempt ended well.
    pub(super) fn opened(
        &self,
        attempt: u64,
        link: Link,
        attachment: &Attachment,
        loss: Option<Arc<Loss>>,
    ) {
        let footing = Footing::of(attachment, &self.server);
        let idle = {
            let mut state = lock(&self.state);
            if state.ended || state.attempt != attempt {
                // Nobody wants it any more, and who opened it drops it.
                return;
            }
            link.settled();
            state.loss = loss;
            (state.last, state.after) = (None, None);
            if let Some(trouble) = &mut state.trouble {
                trouble.failed = None;
            }
            state.phase = Phase::Live { link, footing };
            state.opened = Instant::now();
            state.last_used = state.opened;
            state.idle_since().is_some()
        };
        self.changed.notify_waiters();
        if idle {
            // All who wanted it were cancelled meanwhile.
            self.budget.idle();
        }
    }

    /// The attempt did not end well.
    pub(super) fn failed(&self, attempt: u64, error: Arc<OpenError>) {
        {
            let mut state = lock(&self.state);
            if state.attempt != attempt || !matches!(state.phase, Phase::Opening { .. }) {
                return;
            }
            // A lack of room is not the server's fault, and one rest is enough.
            if error.is_of_server() && !matches!(*error, OpenError::Resting { .. }) {
                state.trouble().rest();
            }
            state.phase = Phase::Empty;
            state.trouble().failed = Some((attempt, error));
        }
        self.changed.notify_waiters();
    }

    /// Ends the link, and says what is to be waited for. With `for_good`, no other one is opened.
    pub(super) fn end(&self, reason: LossReason, for_good: bool) -> Option<Leaving> {
        let leaving = {
            let mut state = lock(&self.state);
            state.ended |= for_good;
            state.close(reason, &self.server)
        };
        self.changed.notify_waiters();
        leaving
    }

    /// What is left on the server of a link that was only let go of.
    pub(super) fn left_behind(&self) -> Option<Attachment> {
        let state = lock(&self.state);
        let let_go = state.loss.as_ref().is_some_and(|loss| loss.leaves_state());
        let empty = matches!(state.phase, Phase::Empty);
        let last = state.last.as_deref().filter(|last| empty && let_go && last.can_resume());
        last.cloned()
    }

    /// Ends the link if nobody uses it. Says whether that was so.
    pub(super) fn recycle(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = state.idle_since().is_some();
        if idle {
            state.close(LossReason::Evicted, &self.server);
        }
        idle
    }

    /// Since when nobody uses the link, if it is live and nobody does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        lock(&self.state).idle_since()
    }

    /// When somebody last had the link.
    pub(super) fn last_used(&self) -> Instant {
        lock(&self.state).last_used
    }

    /// The live link.
    pub(super) fn live(&self) -> Option<(Link, Generation)> {
        match &lock(&self.state).phase {
            Phase::Live { link, footing } if link.loss().is_none() => {
                Some((link.share(), footing.generation))
            }
            _ => None,
        }
    }

    /// How its link stands.
    pub(super) fn standing(&self) -> Standing {
        let mut state = lock(&self.state);
        state.notice_loss(&self.server);
        state.standing()
    }

    /// All that an operator may want to know of it.
    pub(super) fn report(&self) -> LinkReport {
        let mut state = lock(&self.state);
        state.notice_loss(&self.server);
        let link = match &state.phase {
            Phase::Live { link, .. } => Some(Arc::new(link.share())),
            _ => None,
        };
        let failed = state.trouble.as_ref().and_then(|trouble| trouble.failed.as_ref());
        LinkReport {
            key: self.key.clone(),
            standing: state.standing(),
            loss: state.loss.clone(),
            failed: failed.map(|(_, error)| error.clone()),
            opened: link.as_ref().map(|_| state.opened.elapsed()),
            link,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Opening { .. })
    }

    fn over(&self) -> Arc<OpenError> {
        Arc::new(OpenError::Ended { server: self.key.server().to_owned() })
    }
}

impl State {
    fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Opening { .. } => Standing::Opening,
            Phase::Live { link, footing } => {
                Standing::Live { generation: footing.generation, in_flight: link.in_flight() }
            }
            Phase::Empty => match self.trouble.as_ref().and_then(|trouble| trouble.pause()) {
                Some(pause) => Standing::Resting(pause),
                None if self.last.is_none() => Standing::None,
                None => Standing::Over(self.loss.clone()),
            },
        }
    }

    /// Takes note of a link that died. Late failures of it concern nobody any more.
    fn notice_loss(&mut self, server: &Server) {
        let Phase::Live { link, footing } = &self.phase else { return };
        let Some(loss) = link.loss() else { return };
        // Whoever still holds it must not keep its place from the next one.
        link.close(loss.reason());
        self.last = Some(Box::new(footing.attachment(link, server)));
        self.phase = Phase::Empty;
        self.loss = Some(loss);
        if self.opened.elapsed() < SHORT_LIFE {
            self.trouble().short_life();
        } else {
            self.trouble = None;
        }
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// Why no link is opened now: the attempt that was waited for failed, or one rests.
    fn refusal(&self, waited: Option<u64>, server: &str) -> Option<Arc<OpenError>> {
        let trouble = self.trouble.as_ref()?;
        match &trouble.failed {
            Some((attempt, error)) if waited == Some(*attempt) => Some(error.clone()),
            _ => trouble.resting(server, self.loss.as_deref()).map(Arc::new),
        }
    }

    /// A link that died is not idle: it makes no room that does not come by itself. The idle clock starts
    /// when the last call ended, be it that its caller had let go of the link before (E20).
    fn idle_since(&self) -> Option<Instant> {
        let Phase::Live { link, .. } = &self.phase else { return None };
        let idle = self.pins == 0 && link.in_flight() == 0 && link.loss().is_none();
        idle.then(|| link.quiet_since().map_or(self.last_used, |at| at.max(self.last_used)))
    }

    fn close(&mut self, reason: LossReason, server: &Server) -> Option<Leaving> {
        match std::mem::replace(&mut self.phase, Phase::Empty) {
            Phase::Empty => None,
            Phase::Opening { task, gone } => {
                let server = server.name().to_owned();
                let error = Arc::new(OpenError::Ended { server });
                self.trouble().failed = Some((self.attempt, error));
                // The next attempt has another number, so what this one still says is not heard.
                self.attempt += 1;
                if let Some(task) = task {
                    task.abort();
                }
                Some(Leaving::Opening(gone))
            }
            Phase::Live { link, footing } => {
                self.last = Some(Box::new(footing.attachment(&link, server)));
                link.close(reason);
                self.loss = link.loss();
                Some(Leaving::Link(link))
            }
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.key)
    }
}
