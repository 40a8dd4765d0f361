//! What is over, until whoever has links to it has been told.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Record, Session, SessionId};

/// What happened to sessions since somebody last asked. It is noted at once, so nothing is forgotten
/// when whoever made it happen is cancelled.
#[derive(Default)]
pub(super) struct Over(Mutex<Told>);

#[derive(Default)]
struct Told {
    ended: Vec<(Arc<Session>, Record)>,
    lost: Vec<Arc<Session>>,
    strays: Vec<SessionId>,
}

impl Over {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session ended; this is what was known of it.
    pub(super) fn ended(&self, session: &Arc<Session>, record: Record) {
        self.told().ended.push((session.clone(), record));
    }

    /// What ended and has nobody inside any more.
    pub(super) fn take_ended(&self) -> Vec<Record> {
        let empty = |(session, _): &mut (Arc<Session>, _)| !session.is_in_use();
        self.told().ended.extract_if(.., empty).map(|(_, record)| record).collect()
    }

    /// Sessions were let go of without being ended.
    pub(super) fn lost(&self, sessions: impl IntoIterator<Item = Arc<Session>>) {
        self.told().lost.extend(sessions);
    }

    pub(super) fn take_lost(&self) -> Vec<Arc<Session>> {
        std::mem::take(&mut self.told().lost)
    }

    /// The store may have a session that nobody knows of, until [`Stray::found`].
    pub(super) fn stray(&self, id: SessionId) -> Stray<'_> {
        self.told().strays.push(id);
        Stray { over: self, id }
    }

    /// The store does not have it.
    pub(super) fn not_stray(&self, id: SessionId) {
        self.told().strays.retain(|stray| *stray != id);
    }

    /// Those for which nobody is waiting any more.
    pub(super) fn take_strays(&self, awaited: impl Fn(SessionId) -> bool) -> Vec<SessionId> {
        self.told().strays.extract_if(.., |id| !awaited(*id)).collect()
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.told();
        write!(f, "Over({} ended, {} lost)", told.ended.len(), told.lost.len())
    }
}

/// A session that is on its way from the store.
pub(super) struct Stray<'a> {
    over: &'a Over,
    id: SessionId,
}

impl Stray<'_> {
    /// It has arrived.
    pub(super) fn found(self) {
        self.over.not_stray(self.id);
    }
}

/// Lets one in at a time, and says so to the others instead of letting them wait.
#[derive(Debug, Default)]
pub(super) struct Alone(AtomicBool);

impl Alone {
    pub(super) fn enter(&self) -> Option<impl Drop + '_> {
        (!self.0.swap(true, Ordering::SeqCst)).then(|| AloneGuard(self))
    }
}

struct AloneGuard<'a>(&'a Alone);

impl Drop for AloneGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}
