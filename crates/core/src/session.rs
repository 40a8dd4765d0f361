//! A session that this process holds.

use std::{
    any::Any,
    fmt,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    Clock, EndReason, Generation, HANDLES_PER_SESSION, HandleHash, Owner, Record, SessionId,
    Timestamp, clock::millis,
};

/// A session that this process holds: its record, and whether somebody is using it right now.
///
/// What every call asks is in plain atomic words beside each other, so a call on a held session takes
/// no lock of the session and reads no record.
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub struct Session {
    gate: Gate,
    last_used: AtomicU64,
    /// The idle time of the record, in milliseconds; [`NEVER`] if it has none.
    idle: AtomicU64,
    /// The moment of its full age; [`NEVER`] if it has none.
    age: AtomicU64,
    /// The generation of a loss that its client was not told of yet; 0 if there is none.
    untold: AtomicU64,
    /// What whoever uses the session notes of it.
    beside: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Its own reference: one that every call counted would be taken by processors from each other.
    clock: Arc<dyn Clock>,
    id: SessionId,
    owner: Owner,
    /// The time of use that the store knows.
    written: AtomicU64,
    /// Which life of the session this is; a revived one is another one.
    life: u32,
    rest: Mutex<Rest>,
}

/// What is asked seldom.
struct Rest {
    record: Arc<Record>,
    /// The record as it was when it last was live.
    last: Arc<Record>,
    /// The handles under which this process has seen it, to forget them with it. Boxed, because few
    /// sessions have any.
    #[allow(clippy::box_collection)]
    handles: Option<Box<Vec<HandleHash>>>,
    /// Why it is being ended, once it is.
    ending: Option<EndReason>,
    /// Whether it was closed for good.
    closed: bool,
    /// Whether its end was told.
    told: bool,
}

const NEVER: u64 = u64::MAX;

/// The part of its idle time by which the store may think that a session is older than it is: one in so many.
const OVERDUE: u64 = 32;

/// And in milliseconds, however long it may idle.
const OVERDUE_AT_MOST: u64 = 60_000;

impl Session {
    pub(crate) fn new(record: Record, clock: Arc<dyn Clock>) -> Self {
        let used = record.last_used.as_millis();
        let record = Arc::new(record);
        let session = Self {
            id: record.id,
            owner: record.owner.clone(),
            life: record.life,
            gate: Gate::default(),
            last_used: AtomicU64::new(used),
            idle: AtomicU64::new(NEVER),
            age: AtomicU64::new(NEVER),
            written: AtomicU64::new(used),
            untold: AtomicU64::new(0),
            rest: Mutex::new(Rest {
                last: record.clone(),
                record,
                handles: None,
                ending: None,
                closed: false,
                told: false,
            }),
            beside: OnceLock::new(),
            clock,
        };
        session.reflect(&session.record());
        session
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what every call asks out of the record.
    fn reflect(&self, record: &Record) {
        let age = record.expiry.absolute.map(|span| record.created.after(span).as_millis());
        let untold = record.untold().map_or(0, |generation| generation.0);
        self.idle.store(record.expiry.idle.map_or(NEVER, millis), Ordering::Relaxed);
        self.age.store(age.unwrap_or(NEVER), Ordering::Relaxed);
        self.untold.store(untold, Ordering::Relaxed);
    }

    /// Its name in logs and tools.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What the store has of it, as far as this process knows. [`Session::last_used`] is fresher.
    #[must_use]
    pub fn record(&self) -> Arc<Record> {
        self.rest().record.clone()
    }

    /// What whoever uses the session notes of it in memory, made when it is first asked for. It goes when
    /// this process lets go of the session, and no store ever sees it. A session has room for one type:
    /// `None` for any other than the first.
    #[must_use]
    pub fn beside<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.beside.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// When the last call on it ended.
    #[must_use]
    pub fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    /// The generation of the latest loss that its client was not told of yet, wherever it was; see [`Sessions::told`](crate::Sessions::told).
    #[must_use]
    pub fn lost(&self) -> Option<Generation> {
        match self.untold.load(Ordering::Relaxed) {
            0 => None,
            generation => Some(Generation(generation)),
        }
    }

    /// The generation of a loss that a call on `server` has to tell of before anything else is done there.
    #[must_use]
    pub fn lost_on(&self, server: &str) -> Option<Generation> {
        // Nearly always there is nothing to tell, and no record is read.
        self.lost().and_then(|_| self.record().lost_on(server))
    }

    /// Whether a call or a stream is using it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.gate.inside() > 0
    }

    /// Whether it is over here: ended, expired, or taken by another process.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.gate.is_closed()
    }

    /// Why nobody may come in at `now`, if its time has come. A session in use does not idle, but
    /// it does age: who is inside stays, and nobody else gets in.
    pub(crate) fn refuses(&self, now: Timestamp) -> Option<EndReason> {
        if self.age.load(Ordering::Relaxed) <= now.as_millis() {
            return Some(EndReason::Age);
        }
        // In this order: who leaves writes the time first and then goes, so whoever is seen to have
        // gone has written it.
        if self.is_in_use() {
            return None;
        }
        let idle = self.idle.load(Ordering::Relaxed);
        let over = self.last_used.load(Ordering::Acquire).saturating_add(idle) <= now.as_millis();
        over.then_some(EndReason::Idle)
    }

    /// Whether a record is of the life that this is.
    pub(crate) fn is_of(&self, record: &Record) -> bool {
        self.id == record.id && self.life == record.life
    }

    /// Takes over a newer record; an older one is passed over.
    pub(crate) fn learn(&self, record: Record) {
        let mut rest = self.rest();
        if record.revision >= rest.record.revision && self.is_of(&record) {
            self.reflect(&record);
            rest.record = Arc::new(record);
            if rest.record.is_live() {
                rest.last = rest.record.clone();
            }
        }
    }

    pub(crate) fn enter(self: Arc<Self>) -> Option<InUse> {
        let nth = self.gate.enter()?;
        Some(InUse { session: self, nth })
    }

    fn leave(&self, now: Timestamp) {
        // The time first: between the two the session must not look both unused and long idle.
        self.last_used.fetch_max(now.as_millis(), Ordering::Release);
        self.gate.leave();
    }

    /// The time of use to be written back, if the store does not know it yet.
    pub(crate) fn unwritten(&self, now: Timestamp) -> Option<Timestamp> {
        self.unwritten_by(now, 1)
    }

    /// The same if the store knows one that is too old by a good part of the idle time.
    pub(crate) fn overdue(&self, now: Timestamp) -> Option<Timestamp> {
        let part = self.idle.load(Ordering::Relaxed) / OVERDUE;
        self.unwritten_by(now, part.clamp(1, OVERDUE_AT_MOST))
    }

    fn unwritten_by(&self, now: Timestamp, least: u64) -> Option<Timestamp> {
        let used = if self.is_in_use() { now } else { self.last_used() };
        let older = used.as_millis().saturating_sub(self.written.load(Ordering::Relaxed));
        (older >= least).then_some(used)
    }

    pub(crate) fn wrote(&self, used: Timestamp) {
        self.written.fetch_max(used.as_millis(), Ordering::Relaxed);
    }

    /// Remembers a handle; returns the one that is forgotten for it, as the store does.
    pub(crate) fn remember_handle(&self, hash: HandleHash) -> Option<HandleHash> {
        let mut rest = self.rest();
        let handles = rest.handles.get_or_insert_default();
        handles.retain(|known| *known != hash);
        handles.push(hash);
        (handles.len() > HANDLES_PER_SESSION).then(|| handles.remove(0))
    }

    pub(crate) fn take_handles(&self) -> Vec<HandleHash> {
        self.rest().handles.take().map(|handles| *handles).unwrap_or_default()
    }

    /// Lets nobody in any more, because it ends. Who is inside stays until done.
    pub(crate) fn close(&self, reason: EndReason) {
        let mut rest = self.rest();
        rest.ending.get_or_insert(reason);
        rest.closed = true;
        self.gate.close();
    }

    /// Lets nobody in any more, because it is not ours any more. It does not end.
    pub(crate) fn let_go(&self) {
        self.rest().closed = true;
        self.gate.close();
    }

    /// As [`Session::close`], but only if its time has come at `now` and nobody is inside whom that
    /// would hurt; says whether it did.
    pub(crate) fn close_if_due(&self, now: Timestamp) -> Option<EndReason> {
        let reason = self.refuses(now)?;
        match reason {
            EndReason::Age => self.close(reason),
            // Between the look and the closing somebody may have come and gone.
            _ if !self.gate.close_if_empty() => return None,
            _ if self.refuses(now).is_none() => {
                // Unless somebody closed it for good meanwhile.
                let rest = self.rest();
                if !rest.closed {
                    self.gate.reopen();
                }
                return None;
            }
            _ => self.close(reason),
        }
        Some(reason)
    }

    /// As [`Session::close`], but only if nobody is inside.
    pub(crate) fn close_if_unused(&self, reason: EndReason) -> bool {
        let closed = self.gate.close_if_empty();
        if closed {
            self.close(reason);
        }
        closed
    }

    /// What was known of it while it lived, for the first one who asks: its end is told once.
    pub(crate) fn last_words(&self) -> Option<Record> {
        let mut rest = self.rest();
        if std::mem::replace(&mut rest.told, true) {
            return None;
        }
        let Record { attachments, ended, .. } = Record::clone(&rest.last);
        Some(Record {
            attachments,
            ended: rest.record.ended.or(ended),
            ..Record::clone(&rest.record)
        })
    }

    /// Whether its time has come, or somebody began to end it.
    pub(crate) fn is_ending(&self, now: Timestamp) -> bool {
        self.is_over() || self.refuses(now).is_some()
    }

    /// Why it is being ended, if somebody began to.
    pub(crate) fn ending(&self) -> Option<EndReason> {
        self.rest().ending
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown
            .field("id", &self.id)
            .field("owner", &self.owner)
            .field("inside", &self.gate.inside());
        shown.finish_non_exhaustive()
    }
}

/// A session in use: while this lives, the session does not idle out.
///
/// Dropping it ends the use and starts the idle clock.
#[derive(Debug)]
#[must_use = "the session idles while nothing holds this"]
pub struct InUse {
    session: Arc<Session>,
    nth: u64,
}

impl InUse {
    /// How many used the session when this began to, itself included.
    #[must_use]
    pub fn nth(&self) -> u64 {
        self.nth
    }

    /// The session, which this keeps in use.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Deref for InUse {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.session.leave(self.session.clock.now());
    }
}

/// Counts who is inside, and closes: both in one word, so that nobody slips in while it closes.
#[derive(Default)]
struct Gate(AtomicU64);

const CLOSED: u64 = 1 << 63;

impl Gate {
    /// Goes in, unless it is closed; says how many are inside then.
    fn enter(&self) -> Option<u64> {
        let open = |word: u64| (word & CLOSED == 0).then_some(word + 1);
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open);
        before.ok().map(|before| before + 1)
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    fn inside(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !CLOSED
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn reopen(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    fn close_if_empty(&self) -> bool {
        self.0.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_closes_behind_whoever_is_inside() {
        let gate = Gate::default();
        assert_eq!((gate.enter(), gate.enter()), (Some(1), Some(2)));
        assert!(!gate.close_if_empty());
        gate.close();
        assert_eq!(gate.enter(), None);
        assert_eq!(gate.inside(), 2);
        gate.leave();
        gate.leave();
        assert_eq!(gate.inside(), 0);
        assert!(gate.is_closed() && gate.enter().is_none());
    }

    #[test]
    fn what_is_noted_beside_a_session_is_there_for_all() {
        let now = Timestamp::from_millis(0);
        let record = Record::new(Owner::local(), crate::Expiry::default(), now);
        let session = Session::new(record, Arc::new(crate::SystemClock));
        session.beside::<AtomicU64>().unwrap().store(7, Ordering::Relaxed);
        assert_eq!(session.beside::<AtomicU64>().unwrap().load(Ordering::Relaxed), 7);
        assert!(session.beside::<Mutex<u8>>().is_none(), "there is room for one");
    }

    /// E20: a long call that ends while somebody looks does not make the session look long idle.
    #[test]
    fn the_end_of_a_call_is_never_taken_for_idling() {
        let (begin, hour) = (Timestamp::from_millis(1_000), std::time::Duration::from_secs(3_600));
        let now = begin.after(hour);
        let (calls, received) = std::sync::mpsc::sync_channel::<Arc<Session>>(0);
        let clock: Arc<dyn Clock> = Arc::new(crate::SystemClock);
        let caller = std::thread::spawn(move || received.iter().for_each(|call| call.leave(now)));
        for _ in 0..3_000 {
            let record = Record::new(Owner::local(), crate::Expiry::idle(hour / 2), begin);
            let session = Arc::new(Session::new(record, clock.clone()));
            assert!(session.gate.enter().is_some());
            calls.send(session.clone()).unwrap();
            while session.is_in_use() {
                assert_eq!(session.close_if_due(now), None);
            }
        }
        drop(calls);
        caller.join().unwrap();
    }
}
