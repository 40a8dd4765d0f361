//! One held session.

use std::{
    any::Any,
    fmt,
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_sync::Mutex;

use crate::{
    Clock, EndReason, Generation, HandleHash, MAX_HANDLES_PER_SESSION, Owner, Record, SessionId,
    Timestamp, clock::millis,
};

/// Session that this process holds: its record and its current users.
///
/// The fields that every call reads are atomics next to each other, so that a call on a held
/// session takes no lock of the session and reads no record.
pub struct Session {
    users: UserCount,
    last_used: AtomicU64,
    /// Idle time of the record in milliseconds; [`NEVER`] if there is none.
    idle: AtomicU64,
    /// Time of the maximum age; [`NEVER`] if there is none.
    age: AtomicU64,
    /// Generation of the latest loss that the client has not acknowledged; 0 if there is none.
    unacknowledged: AtomicU64,
    /// In-memory data of the application.
    extension: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Own reference: a shared count that every call changes would move between the processors.
    clock: Arc<dyn Clock>,
    id: SessionId,
    owner: Owner,
    /// Time of use that the store has.
    written: AtomicU64,
    /// Incarnation; a revived session is another object.
    incarnation: u32,
    details: Mutex<Details>,
}

/// Fields that are read seldom.
struct Details {
    record: Arc<Record>,
    /// Last live record.
    last: Arc<Record>,
    /// Handles by which this process has found the session, or that it has issued: to remove them
    /// from the table, and to store them again. Boxed, because few sessions have any.
    #[allow(clippy::box_collection)]
    handles: Option<Box<Vec<HandleHash>>>,
    /// Reason of the end, once it has begun.
    ending: Option<EndReason>,
    /// Whether it was closed for good.
    closed: bool,
    /// Whether the end was reported.
    end_reported: bool,
}

const NEVER: u64 = u64::MAX;

/// Fraction of the idle time by which the time of use in the store may lag behind: one in this
/// many.
const WRITE_BACK_FRACTION: u64 = 32;

/// Maximum lag in milliseconds, for any idle time.
const MAX_WRITE_BACK_LAG_MILLIS: u64 = 60_000;

impl Session {
    pub(crate) fn new(record: Record, clock: Arc<dyn Clock>) -> Self {
        let used = record.last_used.as_millis();
        let record = Arc::new(record);
        let session = Self {
            id: record.id,
            owner: record.owner.clone(),
            incarnation: record.incarnation,
            users: UserCount::default(),
            last_used: AtomicU64::new(used),
            idle: AtomicU64::new(NEVER),
            age: AtomicU64::new(NEVER),
            written: AtomicU64::new(used),
            unacknowledged: AtomicU64::new(0),
            details: Mutex::new(Details {
                last: record.clone(),
                record,
                handles: None,
                ending: None,
                closed: false,
                end_reported: false,
            }),
            extension: OnceLock::new(),
            clock,
        };
        session.cache_fields(&session.record());
        session
    }

    /// Copies the fields that every call reads out of the record.
    fn cache_fields(&self, record: &Record) {
        let age = record.expiry.absolute.map(|span| record.created.after(span).as_millis());
        let unacknowledged =
            record.latest_unacknowledged_loss().map_or(0, |generation| generation.0);
        self.idle.store(record.expiry.idle.map_or(NEVER, millis), Ordering::Relaxed);
        self.age.store(age.unwrap_or(NEVER), Ordering::Relaxed);
        self.unacknowledged.store(unacknowledged, Ordering::Relaxed);
    }

    /// Returns the id for logs and tools.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns the owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the record as this process last wrote or read it. [`Session::last_used`] is more
    /// recent.
    #[must_use]
    pub fn record(&self) -> Arc<Record> {
        self.details.lock().record.clone()
    }

    /// Returns the in-memory extension of type `T`, created at its first use. It is dropped when
    /// this process releases the session, and it is never stored. A session has one extension:
    /// `None` for any other type than the first.
    #[must_use]
    pub fn extension<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.extension.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Returns the time at which the last call ended.
    #[must_use]
    pub fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    /// Returns the latest loss, on any server, that the client has not acknowledged; see
    /// [`Sessions::acknowledge_loss`](crate::Sessions::acknowledge_loss).
    #[must_use]
    pub fn latest_unacknowledged_loss(&self) -> Option<Generation> {
        match self.unacknowledged.load(Ordering::Relaxed) {
            0 => None,
            generation => Some(Generation(generation)),
        }
    }

    /// Returns the loss that a call on `server` must report before it does anything else.
    #[must_use]
    pub fn unacknowledged_loss_on(&self, server: &str) -> Option<Generation> {
        // Nearly always there is no loss, and the record is not read.
        self.latest_unacknowledged_loss().and_then(|_| self.record().unacknowledged_loss_on(server))
    }

    /// Returns whether a call or a stream uses the session.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.users.count() > 0
    }

    /// Returns the number of calls and streams that use the session.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users.count()
    }

    /// Returns whether the session can no longer be entered in this process: ended, expired, or
    /// released to another process.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.users.is_closed()
    }

    /// Returns why the session may not be entered at `now`. A session in use does not expire by
    /// idling. It does reach its maximum age: current users finish, and new ones are refused.
    pub(crate) fn expiry_reason(&self, now: Timestamp) -> Option<EndReason> {
        if self.age.load(Ordering::Relaxed) <= now.as_millis() {
            return Some(EndReason::Age);
        }
        // The order matters: a leaving user writes the time before it decrements the count, so a
        // count of zero implies that the time was written.
        if self.is_in_use() {
            return None;
        }
        let idle = self.idle.load(Ordering::Relaxed);
        let over = self.last_used.load(Ordering::Acquire).saturating_add(idle) <= now.as_millis();
        over.then_some(EndReason::Idle)
    }

    /// Returns whether `record` belongs to this incarnation.
    pub(crate) fn is_same_incarnation(&self, record: &Record) -> bool {
        self.id == record.id && self.incarnation == record.incarnation
    }

    /// Stores a newer record; an older one is ignored.
    pub(crate) fn update_record(&self, record: Record) {
        let mut details = self.details.lock();
        if record.revision >= details.record.revision && self.is_same_incarnation(&record) {
            self.cache_fields(&record);
            details.record = Arc::new(record);
            if details.record.is_live() {
                details.last = details.record.clone();
            }
        }
    }

    pub(crate) fn enter(self: Arc<Self>) -> Option<ActiveSession> {
        let users_at_start = self.users.enter()?;
        Some(ActiveSession { session: self, users_at_start })
    }

    fn leave(&self, now: Timestamp) {
        // Time before count: otherwise the session could look unused and long idle for a moment.
        self.last_used.fetch_max(now.as_millis(), Ordering::Release);
        self.users.leave();
    }

    /// Returns the time of use that the store does not have yet.
    pub(crate) fn unwritten_use(&self, now: Timestamp) -> Option<Timestamp> {
        self.unwritten_use_older_than(now, 1)
    }

    /// Same, but only if the time in the store is too old by a part of the idle time.
    pub(crate) fn overdue_use(&self, now: Timestamp) -> Option<Timestamp> {
        let part = self.idle.load(Ordering::Relaxed) / WRITE_BACK_FRACTION;
        self.unwritten_use_older_than(now, part.clamp(1, MAX_WRITE_BACK_LAG_MILLIS))
    }

    fn unwritten_use_older_than(&self, now: Timestamp, millis: u64) -> Option<Timestamp> {
        let used = if self.is_in_use() { now } else { self.last_used() };
        let older = used.as_millis().saturating_sub(self.written.load(Ordering::Relaxed));
        (older >= millis).then_some(used)
    }

    pub(crate) fn mark_written(&self, used: Timestamp) {
        self.written.fetch_max(used.as_millis(), Ordering::Relaxed);
    }

    /// Remembers a handle. Returns the one that is dropped for it, as in the store.
    pub(crate) fn remember_handle(&self, hash: HandleHash) -> Option<HandleHash> {
        let mut details = self.details.lock();
        let handles = details.handles.get_or_insert_default();
        handles.retain(|known| *known != hash);
        handles.push(hash);
        (handles.len() > MAX_HANDLES_PER_SESSION).then(|| handles.remove(0))
    }

    /// Returns the handles by which this process has found the session, or that it has issued.
    pub(crate) fn handles(&self) -> Vec<HandleHash> {
        self.details.lock().handles.as_deref().cloned().unwrap_or_default()
    }

    /// Closes the session because it ends. Current users finish.
    pub(crate) fn close(&self, reason: EndReason) {
        let mut details = self.details.lock();
        details.ending.get_or_insert(reason);
        details.closed = true;
        self.users.close();
    }

    /// Closes the session because this process no longer holds it. It does not end.
    pub(crate) fn release(&self) {
        self.details.lock().closed = true;
        self.users.close();
    }

    /// Releases the session if it is not in use and `may_release`, and returns whether it did. No user enters while
    /// `may_release` looks, so that it also sees a user who entered and left before.
    pub(crate) fn release_if_unused(&self, may_release: impl FnOnce(&Self) -> bool) -> bool {
        if !self.users.close_if_empty() {
            return false;
        }
        let released = may_release(self);
        if released {
            self.release();
        } else {
            self.reopen();
        }
        released
    }

    /// Lets users enter again, unless another caller closed the session for good meanwhile.
    fn reopen(&self) {
        let details = self.details.lock();
        if !details.closed {
            self.users.reopen();
        }
    }

    /// Closes the session if it has expired at `now`, and returns the reason. A session in use is
    /// closed only at its maximum age.
    pub(crate) fn close_if_due(&self, now: Timestamp) -> Option<EndReason> {
        let reason = self.expiry_reason(now)?;
        match reason {
            EndReason::Age => self.close(reason),
            // A user may have entered and left between the check and the close.
            _ if !self.users.close_if_empty() => return None,
            _ if self.expiry_reason(now).is_none() => {
                self.reopen();
                return None;
            }
            _ => self.close(reason),
        }
        Some(reason)
    }

    /// Closes the session if it is not in use, and returns whether it did.
    pub(crate) fn close_if_unused(&self, reason: EndReason) -> bool {
        let closed = self.users.close_if_empty();
        if closed {
            self.close(reason);
        }
        closed
    }

    /// Returns the last live record for the first caller, so that the end is reported once.
    pub(crate) fn take_final_record(&self) -> Option<Record> {
        let mut details = self.details.lock();
        if std::mem::replace(&mut details.end_reported, true) {
            return None;
        }
        let Record { attachments, ended, .. } = Record::clone(&details.last);
        Some(Record {
            attachments,
            ended: details.record.ended.or(ended),
            ..Record::clone(&details.record)
        })
    }

    /// Returns whether the session has expired, or its end has begun.
    pub(crate) fn is_ending(&self, now: Timestamp) -> bool {
        self.is_closed() || self.expiry_reason(now).is_some()
    }

    /// Returns why the session is being ended, if its end has begun.
    pub(crate) fn closing_reason(&self) -> Option<EndReason> {
        self.details.lock().ending
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown.field("id", &self.id).field("owner", &self.owner).field("users", &self.users.count());
        shown.finish_non_exhaustive()
    }
}

/// Guard of a session in use: the session does not expire by idling while a guard exists.
///
/// Dropping the guard ends the use and restarts the idle time.
#[derive(Debug)]
#[must_use = "the session is idle when no guard exists"]
pub struct ActiveSession {
    session: Arc<Session>,
    users_at_start: u64,
}

impl ActiveSession {
    /// Returns the number of users when this use began, itself included.
    #[must_use]
    pub fn users_at_start(&self) -> u64 {
        self.users_at_start
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Deref for ActiveSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.session.leave(self.session.clock.now());
    }
}

/// Number of users and a closed flag in one word, so that no user can enter while it closes.
#[derive(Default)]
struct UserCount(AtomicU64);

const CLOSED_BIT: u64 = 1 << 63;

impl UserCount {
    /// Adds a user, unless it is closed, and returns the new number of users.
    fn enter(&self) -> Option<u64> {
        let open = |word: u64| (word & CLOSED_BIT == 0).then_some(word + 1);
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open);
        before.ok().map(|before| before + 1)
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !CLOSED_BIT
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED_BIT != 0
    }

    fn close(&self) {
        self.0.fetch_or(CLOSED_BIT, Ordering::AcqRel);
    }

    fn reopen(&self) {
        self.0.fetch_and(!CLOSED_BIT, Ordering::AcqRel);
    }

    fn close_if_empty(&self) -> bool {
        self.0.compare_exchange(0, CLOSED_BIT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_count_refuses_new_users_and_keeps_current_ones() {
        let users = UserCount::default();
        assert_eq!((users.enter(), users.enter()), (Some(1), Some(2)));
        assert!(!users.close_if_empty());
        users.close();
        assert_eq!(users.enter(), None);
        assert_eq!(users.count(), 2);
        users.leave();
        users.leave();
        assert_eq!(users.count(), 0);
        assert!(users.is_closed() && users.enter().is_none());
    }

    #[test]
    fn extension_is_shared_by_all_users() {
        let now = Timestamp::from_millis(0);
        let record = Record::new(Owner::local(), crate::Expiry::default(), now);
        let session = Session::new(record, Arc::new(crate::SystemClock));
        session.extension::<AtomicU64>().unwrap().store(7, Ordering::Relaxed);
        assert_eq!(session.extension::<AtomicU64>().unwrap().load(Ordering::Relaxed), 7);
        assert!(session.extension::<Mutex<u8>>().is_none(), "a session has one extension");
    }

    /// E20: a long call that ends during a check does not make the session look long idle.
    #[test]
    fn session_is_not_idle_at_the_end_of_a_call() {
        let (begin, hour) = (Timestamp::from_millis(1_000), std::time::Duration::from_secs(3_600));
        let now = begin.after(hour);
        let (calls, received) = std::sync::mpsc::sync_channel::<Arc<Session>>(0);
        let clock: Arc<dyn Clock> = Arc::new(crate::SystemClock);
        let caller = std::thread::spawn(move || received.iter().for_each(|call| call.leave(now)));
        for _ in 0..3_000 {
            let record = Record::new(Owner::local(), crate::Expiry::idle(hour / 2), begin);
            let session = Arc::new(Session::new(record, clock.clone()));
            assert!(session.users.enter().is_some());
            calls.send(session.clone()).unwrap();
            while session.is_in_use() {
                assert_eq!(session.close_if_due(now), None);
            }
        }
        drop(calls);
        caller.join().unwrap();
    }
}
