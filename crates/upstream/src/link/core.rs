//! The inside of a link: what its callers, its tasks and its transport share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use stayput_wire::Message;
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use super::{
    Call, CallError, CallOptions, Carrier, Flight, Greeting, Listeners, Made, Terms, number,
    pending::Pending,
    prepare::{self, Prepared},
};
use crate::{Budget, Delivery, Loss, LossReason, Server, flag::Flag, lock::lock, seat::Seat};

/// Where links live: what all links of one table share.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) runtime: Handle,
    pub(crate) budget: Budget,
    /// How often any server said, on any link, that one of its lists changed.
    pub(crate) lists_changed: AtomicU64,
}

/// What everybody who has to do with a link shares.
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(crate) struct Core {
    /// How many have the link in hand.
    pub(super) shares: AtomicUsize,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) server: Server,
    home: Arc<Home>,
    pub(crate) terms: OnceLock<Terms>,
    pub(crate) carrier: Carrier,
    /// What the server said of itself, once that is known.
    pub(super) greeting: OnceLock<Greeting>,
    /// Nobody has asked yet whether the link is new.
    pub(super) fresh: AtomicBool,
    /// Whether several sessions may use it: then a message of the server that names no call may concern any of
    /// their clients, and nobody else may see it.
    pub(super) shared: bool,
    pub(crate) listeners: Mutex<Listeners>,
    counts: OnceLock<Box<Counts>>,
    /// Raised when the link is over.
    pub(crate) over: Flag,
    /// Raised when nothing of it is left: no process, no socket, no task.
    pub(crate) gone: Flag,
    /// The place in the budget, until nothing of the link is left.
    seat: Mutex<Option<Seat>>,
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
        server: Server,
        carrier: Carrier,
        home: Arc<Home>,
        seat: Seat,
        shared: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            carrier,
            home,
            pending: Mutex::default(),
            listeners: Mutex::default(),
            terms: OnceLock::new(),
            counts: OnceLock::new(),
            over: Flag::default(),
            gone: Flag::default(),
            shares: AtomicUsize::new(0),
            greeting: OnceLock::new(),
            fresh: AtomicBool::new(true),
            shared,
            seat: Mutex::new(Some(seat)),
        })
    }

    /// Where its tasks and timers are, whoever calls.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.home.runtime
    }

    /// What happened that nobody was told of. On most links nothing did, and they have no counters.
    pub(crate) fn counts(&self) -> &Counts {
        self.counts.get_or_init(Box::default)
    }

    /// The server says that one of its lists changed.
    pub(crate) fn list_changed(&self) {
        self.counts().lists_changed.fetch_add(1, Ordering::Relaxed);
        // After that: who sees this sees the other.
        self.home.lists_changed.fetch_add(1, Ordering::Release);
    }

    /// The last lines that a child wrote to its standard error, without secrets.
    pub(crate) fn last_words(&self) -> String {
        self.server.redactor().redact(&self.carrier.hint()).into_owned()
    }

    /// What happened that nobody was told of, if anything did.
    pub(crate) fn counted(&self) -> Option<&Counts> {
        self.counts.get().map(|counts| &**counts)
    }

    /// Whoever opened it has it: it is not only begun any more.
    pub(crate) fn settled(&self) {
        if let Some(seat) = &mut *lock(&self.seat) {
            seat.settle();
        }
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
    fn withdraw<T>(&self, take: impl FnOnce(&mut Pending) -> T) -> T {
        let (taken, idle) = {
            let mut pending = lock(&self.pending);
            (take(&mut pending), pending.len() == 0)
        };
        if idle {
            self.home.budget.idle();
        }
        taken
    }

    /// Takes a call out of the table.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<Flight>> {
        self.withdraw(|pending| pending.take(number))
    }

    /// The same for a call that mostly is not there any more.
    pub(crate) fn take_left(&self, number: u64) -> Option<Arc<Flight>> {
        let left = lock(&self.pending).is_in_flight(number);
        if left { self.take(number) } else { None }
    }

    /// Ends all calls in flight with the same error.
    pub(crate) fn fail_all(&self, error: &CallError) {
        for flight in self.withdraw(Pending::drain) {
            flight.inbox.end(Err(error.clone()));
        }
    }

    /// Sends a request. It is in flight when this returns; its answer comes to the [`Call`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        message: &Message<'_>,
        options: CallOptions,
        made: Made,
    ) -> Result<Call, CallError> {
        let limit = self.ready(options).await?;
        let number = number::next();
        let mut prepared = prepare::request(message, number, self.terms.get())?;
        prepared.handshake = made == Made::Handshake;
        let id = message.id().filter(|_| made == Made::Elsewhere).map(stayput_wire::Id::to_buf);
        let flight = Flight::new(number, id, &mut prepared, options, limit);
        self.admit(flight, prepared)
    }

    /// The same for a request that is made from its parts.
    pub(crate) async fn call_parts(
        self: &Arc<Self>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
    ) -> Result<Call, CallError> {
        let limit = self.ready(options).await?;
        let number = number::next();
        let mut prepared = match prepare::plain(method, params, number, self.terms.get()) {
            Some(prepared) => prepared,
            None => {
                let text = prepare::compose(method, params);
                let message = Message::parse(text.as_bytes());
                let message =
                    message.map_err(|error| CallError::Invalid(error.to_string().into()))?;
                prepare::request(&message, number, self.terms.get())?
            }
        };
        let flight = Flight::new(number, None, &mut prepared, options, limit);
        self.admit(flight, prepared)
    }

    /// Waits until there is room for one more. Says how long the call may take.
    async fn ready(&self, options: CallOptions) -> Result<Duration, CallError> {
        let limit = options.limit.unwrap_or(self.server.options().timeouts.call);
        match self.carrier.ready(self, limit).await {
            true => Ok(limit),
            false => Err(untaken(limit)),
        }
    }

    /// From here to the end nothing is waited for: a caller that is cancelled leaves a whole call or
    /// none.
    fn admit(self: &Arc<Self>, flight: Arc<Flight>, prepared: Prepared) -> Result<Call, CallError> {
        let earlier = lock(&self.pending).add(flight.clone())?;
        let call = Call::new(self.clone(), flight);
        self.carrier.request(self, &call.flight, prepared);
        if earlier {
            self.carrier.rearm();
        }
        Ok(call)
    }

    /// A task reads the answer of this call.
    pub(crate) fn driven(&self, flight: &Flight, driver: AbortHandle) {
        flight.read_by_task(driver);
        if !lock(&self.pending).is_in_flight(flight.number) {
            // The link ended meanwhile, and whoever ended it found nothing to stop.
            flight.stop_driver();
        }
    }

    /// Tells the server something. On a link that is over it is lost, as everything else.
    pub(crate) fn tell(self: &Arc<Self>, text: Bytes) {
        self.carrier.message(self, text);
    }

    /// Answers a question of the server, unless it took the question back, its call has ended or the link is over.
    pub(crate) fn answer_asked(self: &Arc<Self>, question: u64, text: &str) {
        if lock(&self.pending).answered(question) {
            self.tell(prepare::one_line(text));
        }
    }

    /// The caller does not want the answer any more.
    pub(crate) fn cancel(self: &Arc<Self>, number: u64) {
        if let Some(flight) = self.withdraw(|pending| pending.give_up(number, self.shared)) {
            let _ = self.stop(&flight, "the caller does not need the answer any more");
        }
    }

    /// Ends one call with an error, and tells the server that nobody waits for it.
    pub(crate) fn give_up(self: &Arc<Self>, number: u64, error: CallError) {
        if let Some(flight) = self.withdraw(|pending| pending.give_up(number, self.shared)) {
            let reason = error.to_string();
            flight.inbox.end(Err(error));
            let _ = self.stop(&flight, &reason);
        }
    }

    /// Ends one call with an error; the server knows, or does not have to.
    pub(crate) fn fail(&self, number: u64, error: CallError) {
        let may_run = self.shared && error.delivery().may_have_run();
        if let Some(flight) = self.withdraw(|pending| pending.give_up(number, may_run)) {
            flight.inbox.end(Err(error));
        }
    }

    /// Tells the server, if there is anything to tell. Says whether nothing of the call was sent.
    fn stop(self: &Arc<Self>, flight: &Flight, reason: &str) -> bool {
        let unsent = !flight.silent && self.carrier.cancel(self, flight.number, reason);
        if unsent {
            lock(&self.pending).settle(flight.number);
        }
        flight.stop_driver();
        unsent
    }

    /// Ends the calls that took too long.
    pub(crate) fn expire(self: &Arc<Self>) {
        for flight in self.withdraw(|pending| pending.expire(Instant::now(), self.shared)) {
            let unsent = self.stop(&flight, "it took too long");
            let limit = flight.limit;
            let error = if unsent { untaken(limit) } else { CallError::TimedOut { limit } };
            flight.inbox.end(Err(error));
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
        for flight in failed {
            let unsent = not_sent(flight.number);
            let delivery = if unsent { Delivery::NotSent } else { Delivery::Unknown };
            flight.inbox.end(Err(CallError::Lost { loss: loss.clone(), delivery }));
            flight.stop_driver();
        }
        self.end_listeners(&loss);
        true
    }

    /// The link is over by the server's verdict. What is in flight has its own verdict coming, and may
    /// wait for it a moment: that says more than that nobody knows.
    pub(crate) fn condemn(self: &Arc<Self>, detail: &str) -> Arc<Loss> {
        let loss = Arc::new(Loss::new(LossReason::Verdict, detail));
        let mut pending = lock(&self.pending);
        let first = pending.close(&loss);
        let loss = pending.closed().cloned().unwrap_or(loss);
        drop(pending);
        self.over.raise();
        self.end_listeners(&loss);
        if first {
            self.carrier.condemned(self);
        }
        loss
    }

    /// Ends what is still in flight on a link that is over.
    pub(crate) fn fail_rest(&self) {
        let Some(error) = self.lost(Delivery::Unknown) else { return };
        for flight in self.withdraw(Pending::drain) {
            flight.inbox.end(Err(error.clone()));
            flight.stop_driver();
        }
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

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, carrier) = (self.server.name(), &self.carrier);
        write!(f, "Core({server} over {carrier:?}, {} in flight)", self.in_flight())
    }
}
