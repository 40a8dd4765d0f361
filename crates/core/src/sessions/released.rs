//! Sessions that this process released without an end, and whose links may still be open.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use stayput_sync::Mutex;

use super::table::key_digest;
use crate::{Agent, Generation, HandleHash, Key, Owner, Record, Session, SessionId};

/// Function that closes the links of a lost session, see
/// [`Sessions::on_lost`](super::Sessions::on_lost).
type OnLost = Box<dyn Fn(SessionId, LostReason) + Send + Sync>;

/// Reason why a released session did not come back as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// Another process holds the session, or has used it meanwhile. Close the links locally, and end
    /// nothing at the servers: the other process may go on there.
    Moved,
    /// The session has ended.
    Ended,
}

/// Released sessions. Each stays here until the process holds it again, or until it is lost.
///
/// Its lock is taken before the lock of the table, so that a session is never in neither of both.
#[derive(Default)]
pub(super) struct ReleasedSessions {
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Generations of forgotten sessions whose key another session has now, by the digest of the key.
    superseded: Mutex<HashMap<u128, Generation>>,
    on_lost: OnceLock<OnLost>,
}

impl ReleasedSessions {
    pub(super) fn set_on_lost(&self, on_lost: OnLost) {
        let _ = self.on_lost.set(on_lost);
    }

    /// Adds the sessions that `remove` removes from the table.
    pub(super) fn add<I: IntoIterator<Item = Arc<Session>>>(&self, remove: impl FnOnce() -> I) {
        let mut sessions = self.sessions.lock();
        sessions.extend(remove().into_iter().map(|session| (session.id(), session)));
    }

    /// Returns the sessions that are neither held again nor lost yet.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    /// Returns the released session with this id.
    pub(super) fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// Returns the released session with this key.
    pub(super) fn by_key(&self, owner: &Owner, agent: &Agent, key: &Key) -> Option<Arc<Session>> {
        self.find(|record| {
            record.owner == *owner && record.agent == *agent && record.key.as_ref() == Some(key)
        })
    }

    fn find(&self, which: impl Fn(&Record) -> bool) -> Option<Arc<Session>> {
        self.sessions.lock().values().find(|session| which(&session.record())).cloned()
    }

    /// Returns the released session with this handle.
    pub(super) fn by_handle(&self, hash: HandleHash) -> Option<Arc<Session>> {
        self.sessions.lock().values().find(|session| session.handles().contains(&hash)).cloned()
    }

    /// Notes that another session has the key of this forgotten one.
    pub(super) fn supersede(&self, record: &Record) {
        self.superseded.lock().extend(key_digest(record).map(|digest| (digest, record.generation)));
    }

    /// Returns the generation of the forgotten session that had the key of this one before.
    pub(super) fn superseded(&self, record: &Record) -> Option<Generation> {
        self.superseded.lock().get(&key_digest(record)?).copied()
    }

    /// Forgets it: its loss is in the record of the later session.
    pub(super) fn remove_superseded(&self, record: &Record) {
        if let Some(digest) = key_digest(record) {
            self.superseded.lock().remove(&digest);
        }
    }

    /// Runs `insert`, which inserts the session of a claimed record into the table. If the session
    /// was released and another process has changed it since, its links are closed before any
    /// caller can enter it: they lead to older state than the record.
    pub(super) fn settle<T>(
        &self,
        record: Record,
        insert: impl FnOnce(Record) -> Option<T>,
    ) -> Option<T> {
        let (mut sessions, id) = (self.sessions.lock(), record.id);
        if sessions.get(&id).is_some_and(|released| is_changed(&released.record(), &record)) {
            sessions.remove(&id);
            self.report(id, LostReason::Moved);
        }
        let inserted = insert(record);
        if inserted.is_some() {
            sessions.remove(&id);
        }
        inserted
    }

    /// Reports that a released session is lost, unless it was held again meanwhile.
    pub(super) fn lose(&self, session: &Arc<Session>, reason: LostReason) {
        let mut sessions = self.sessions.lock();
        if sessions.get(&session.id()).is_some_and(|released| Arc::ptr_eq(released, session)) {
            sessions.remove(&session.id());
            self.report(session.id(), reason);
        }
    }

    fn report(&self, id: SessionId, reason: LostReason) {
        if let Some(on_lost) = self.on_lost.get() {
            on_lost(id, reason);
        }
    }
}

/// Returns whether state was lost since `before`: a process has opened a link, has ended the session,
/// or has raised its generation.
pub(super) fn is_changed(before: &Record, now: &Record) -> bool {
    let links = |record: &Record| -> Vec<_> {
        let all = record.attachments.iter();
        all.map(|(server, it)| (server.clone(), it.generation, it.body.clone())).collect()
    };
    before.incarnation != now.incarnation
        || before.generation != now.generation
        || links(before) != links(now)
}

impl fmt::Debug for ReleasedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReleasedSessions({})", self.sessions.lock().len())
    }
}
