//! The inside of a link: what its callers, its tasks and its transport share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use stayput_wire::{IdBuf, Message};
use tokio::{runtime::Handle, time::Instant};

use super::{
    Call, CallError, CallOptions, Carrier, Inbox, Listeners, Made, Terms,
    pending::{Entry, Pending},
    prepare::{self, Prepared},
};
use crate::{Budget, Delivery, Loss, LossReason, flag::Flag, lock::lock, seat::Seat};

/// What everybody who has to do with a link shares.
pub(crate) struct Core {
    /// The name of the server, for errors.
    pub(crate) server: Arc<str>,
    pub(crate) carrier: Carrier,
    pub(crate) runtime: Handle,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) listeners: Mutex<Listeners>,
    pub(crate) terms: OnceLock<Terms>,
    pub(crate) counts: Counts,
    /// Raised when the link is over.
    pub(crate) over: Flag,
    /// Raised when nothing of it is left: no process, no socket, no task.
    pub(crate) gone: Flag,
    limit: Duration,
    next: AtomicU64,
    /// The place in the budget, until nothing of the link is left.
    seat: Mutex<Option<Seat>>,
    budget: OnceLock<Budget>,
}

/// What happened on a link that nobody was told of.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Answers to calls that were forgotten.
    pub(crate) late: AtomicU64,
    /// Lines that were no messages.
    pub(crate) rubbish: AtomicU64,
    /// Questions of the server that nobody could be found for.
    pub(crate) unanswerable: AtomicU64,
    /// Notifications that nobody listened to.
    pub(crate) unheard: AtomicU64,
    /// How often the server said that one of its lists changed.
    pub(crate) lists_changed: AtomicU64,
    /// How many of these changes are known.
    pub(crate) lists_known: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        server: Arc<str>,
        carrier: Carrier,
        runtime: Handle,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            carrier,
            runtime,
            pending: Mutex::default(),
            listeners: Mutex::default(),
            terms: OnceLock::new(),
            counts: Counts::default(),
            over: Flag::default(),
            gone: Flag::default(),
            limit,
            next: AtomicU64::new(1),
            seat: Mutex::default(),
            budget: OnceLock::new(),
        })
    }

    pub(crate) fn with_seat(self: Arc<Self>, seat: Seat, budget: Budget) -> Arc<Self> {
        *lock(&self.seat) = Some(seat);
        let _ = self.budget.set(budget);
        self
    }

    /// Nothing of it is left.
    pub(crate) fn vanish(&self) {
        let seat = lock(&self.seat).take();
        drop(seat);
        self.gone.raise();
    }

    /// It is on its way out: nobody else has to go for whoever waits for a place.
    pub(crate) fn leave(&self) {
        if let Some(seat) = &*lock(&self.seat) {
            seat.leaving();
        }
    }

    /// Takes calls out of the table. Whoever waits for an idle link is told of one.
    fn settle<T>(&self, take: impl FnOnce(&mut Pending) -> T) -> T {
        let (taken, idle) = {
            let mut pending = lock(&self.pending);
            (take(&mut pending), pending.len() == 0)
        };
        if idle && let Some(budget) = self.budget.get() {
            budget.idle();
        }
        taken
    }

    /// Takes a call out of the table.
    pub(crate) fn take(&self, number: u64) -> Option<Entry> {
        self.settle(|pending| pending.take(number))
    }

    /// Ends all calls in flight with the same error.
    pub(crate) fn fail_all(&self, error: &CallError) {
        for (_, entry) in self.settle(Pending::drain) {
            entry.inbox.end(Err(error.clone()));
        }
    }

    /// Sends a request. It is in flight when this returns; its answer comes to the [`Call`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        message: &Message<'_>,
        options: CallOptions,
        made: Made,
    ) -> Result<Call, CallError> {
        let limit = options.limit.unwrap_or(self.limit);
        if !self.carrier.ready(self, expiry(limit)).await {
            return Err(untaken(limit));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut prepared = prepare::request(message, number, self.terms.get())?;
        prepared.handshake = made == Made::Handshake;
        let id = message.id().filter(|_| made == Made::Elsewhere).map(stayput_wire::Id::to_buf);
        self.admit(number, id, prepared, options)
    }

    /// From here to the end nothing is waited for: a caller that is cancelled leaves a whole call or
    /// none.
    fn admit(
        self: &Arc<Self>,
        number: u64,
        id: Option<IdBuf>,
        mut prepared: Prepared,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        let inbox = Arc::new(Inbox::default());
        let limit = options.limit.unwrap_or(self.limit);
        let entry = Entry {
            inbox: inbox.clone(),
            id,
            token: prepared.token.take(),
            declares: options.declares,
            limit,
            expires: expiry(limit),
            driver: None,
            silent: prepared.handshake,
        };
        let earlier = lock(&self.pending).add(number, entry)?;
        let call = Call { core: self.clone(), inbox, number };
        self.carrier.request(self, number, prepared);
        if earlier {
            self.carrier.rearm();
        }
        Ok(call)
    }

    /// Tells the server something. On a link that is over it is lost, as everything else.
    pub(crate) fn tell(self: &Arc<Self>, text: Bytes) {
        self.carrier.message(self, text);
    }

    /// Answers a question of the server, unless it took the question back or the link is over.
    pub(crate) fn answer_asked(self: &Arc<Self>, id: &IdBuf, text: &str) {
        let known = lock(&self.pending).answered(id.as_str());
        if known.is_some() {
            self.tell(prepare::one_line(text));
        }
    }

    /// The caller does not want the answer any more.
    pub(crate) fn cancel(self: &Arc<Self>, number: u64) {
        let entry = self.take(number);
        if let Some(entry) = entry {
            let _ = self.stop(number, &entry, "the caller does not need the answer any more");
        }
    }

    /// Ends one call with an error, and tells the server that nobody waits for it.
    pub(crate) fn give_up(self: &Arc<Self>, number: u64, error: CallError) {
        let entry = self.take(number);
        if let Some(entry) = entry {
            let reason = error.to_string();
            entry.inbox.end(Err(error));
            let _ = self.stop(number, &entry, &reason);
        }
    }

    /// Ends one call with an error; the server knows, or does not have to.
    pub(crate) fn fail(&self, number: u64, error: CallError) {
        let entry = self.take(number);
        if let Some(entry) = entry {
            entry.inbox.end(Err(error));
        }
    }

    /// Tells the server, if there is anything to tell. Says whether nothing of the call was sent.
    fn stop(self: &Arc<Self>, number: u64, entry: &Entry, reason: &str) -> bool {
        let unsent = !entry.silent && self.carrier.cancel(self, number, reason);
        if let Some(driver) = &entry.driver {
            driver.abort();
        }
        unsent
    }

    /// Ends the calls that took too long.
    pub(crate) fn expire(self: &Arc<Self>) {
        for (number, entry) in self.settle(|pending| pending.expire(Instant::now())) {
            let unsent = self.stop(number, &entry, "it took too long");
            let limit = entry.limit;
            let error = if unsent { untaken(limit) } else { CallError::TimedOut { limit } };
            entry.inbox.end(Err(error));
        }
    }

    /// The link is over. Says whether it was not before.
    ///
    /// Whatever is in flight fails at once, with what is known of it: `not_sent` says for which calls
    /// no byte was written.
    pub(crate) fn close(&self, loss: Loss, not_sent: &dyn Fn(u64) -> bool) -> bool {
        let loss = Arc::new(loss);
        let failed = {
            let mut pending = lock(&self.pending);
            if !pending.close(&loss) {
                return false;
            }
            pending.drain()
        };
        self.leave();
        self.over.raise();
        for (number, entry) in failed {
            let delivery = if not_sent(number) { Delivery::NotSent } else { Delivery::Unknown };
            entry.inbox.end(Err(CallError::Lost { loss: loss.clone(), delivery }));
            if let Some(driver) = entry.driver {
                driver.abort();
            }
        }
        self.end_listeners(&loss);
        true
    }

    /// The link is over by the server's verdict. What is in flight has its own verdict coming, and may
    /// wait for it a moment: that says more than that nobody knows.
    pub(crate) fn condemn(&self, detail: &str) -> Arc<Loss> {
        let loss = Arc::new(Loss::new(LossReason::Verdict, detail));
        let mut pending = lock(&self.pending);
        pending.close(&loss);
        let loss = pending.closed().cloned().unwrap_or(loss);
        drop(pending);
        self.over.raise();
        self.end_listeners(&loss);
        loss
    }

    fn end_listeners(&self, loss: &Arc<Loss>) {
        let listeners = lock(&self.listeners).drain();
        for inbox in listeners {
            inbox.end(Err(CallError::Lost { loss: loss.clone(), delivery: Delivery::NotSent }));
        }
    }

    /// Why the link is over, if it is.
    pub(crate) fn loss(&self) -> Option<Arc<Loss>> {
        lock(&self.pending).closed().cloned()
    }

    pub(crate) fn lost(&self, delivery: Delivery) -> Option<CallError> {
        Some(CallError::Lost { loss: self.loss()?, delivery })
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.pending).len()
    }

    /// Since when nothing is in flight; none if something is, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        lock(&self.pending).quiet_since()
    }
}

/// The server does not read.
fn untaken(limit: Duration) -> CallError {
    let what = format!(
        "the server did not take the request within {limit:?}, because it does not read; nothing of \
         it was sent"
    );
    CallError::failed(what, Delivery::NotSent)
}

/// When a call that makes no progress is over.
pub(crate) fn expiry(limit: Duration) -> Instant {
    let now = Instant::now();
    // A limit of centuries is none, and none fits into the clock.
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400))
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, carrier, .. } = self;
        write!(f, "Core({server} over {carrier:?}, {} in flight)", self.in_flight())
    }
}
