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
    strays: Vec<(SessionId, Known)>,
}

/// Whether anybody outside can know of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was there before.
    Before,
    /// It is just being made, and nobody has been told of it.
    ToNobody,
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

    /// The store may have a session for us that we do not hold, until [`Stray::settled`]: whoever
    /// is waiting for its answer may be cancelled.
    pub(super) fn stray(&self, id: SessionId, known: Known) -> Stray<'_> {
        self.told().strays.push((id, known));
        Stray { over: self, id, known }
    }

    /// Those for which nobody is waiting any more. They stay until they are settled.
    pub(super) fn strays(&self, awaited: impl Fn(SessionId) -> bool) -> Vec<Stray<'_>> {
        let strays = self.told().strays.clone();
        let left = strays.into_iter().filter(|(id, _)| !awaited(*id));
        left.map(|(id, known)| Stray { over: self, id, known }).collect()
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
    known: Known,
}

impl Stray<'_> {
    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn is_known(&self) -> bool {
        self.known == Known::Before
    }

    /// It is held, or the store does not have it for us.
    pub(super) fn settled(self) {
        let mut told = self.over.told();
        let this = (self.id, self.known);
        if let Some(at) = told.strays.iter().position(|stray| *stray == this) {
            told.strays.swap_remove(at);
        }
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
