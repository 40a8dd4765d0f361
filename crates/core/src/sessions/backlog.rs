//! Results that the next sweep reports or completes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use stayput_sync::Mutex;

use crate::{Record, Session, SessionId};

/// Ended sessions that were not reported yet, and claims that were not settled. Each entry is
/// written at once, so that it survives the cancellation of its caller.
#[derive(Default)]
pub(super) struct SweepBacklog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    ended: Vec<(Arc<Session>, Record)>,
    unsettled: Vec<(SessionId, Reachability)>,
}

/// Whether a client can refer to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachability {
    /// The session existed before, or its client chose the id.
    Existing,
    /// The session is being created, and no client knows it.
    Unpublished,
}

impl SweepBacklog {
    /// Adds an ended session with its last live record.
    pub(super) fn add_ended(&self, session: &Arc<Session>, record: Record) {
        self.0.lock().ended.push((session.clone(), record));
    }

    /// Takes the ended sessions that are no longer in use.
    pub(super) fn take_ended(&self) -> Vec<Record> {
        let unused = |(session, _): &mut (Arc<Session>, _)| !session.is_in_use();
        self.0.lock().ended.extract_if(.., unused).map(|(_, record)| record).collect()
    }

    /// Notes that the store may have a session claimed for this process that the process does not
    /// hold yet. The note stays until [`UnsettledClaim::settle`], because the caller may be
    /// cancelled before the store answers.
    pub(super) fn begin_claim(
        &self,
        id: SessionId,
        reachability: Reachability,
    ) -> UnsettledClaim<'_> {
        self.0.lock().unsettled.push((id, reachability));
        UnsettledClaim { backlog: self, id, reachability }
    }

    /// Returns the claims whose caller is gone. They stay until they are settled.
    pub(super) fn unsettled_claims(
        &self,
        awaited: impl Fn(SessionId) -> bool,
    ) -> Vec<UnsettledClaim<'_>> {
        let unsettled = self.0.lock().unsettled.clone();
        let left = unsettled.into_iter().filter(|(id, _)| !awaited(*id));
        left.map(|(id, reachability)| UnsettledClaim { backlog: self, id, reachability }).collect()
    }
}

impl fmt::Debug for SweepBacklog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SweepBacklog({} ended)", self.0.lock().ended.len())
    }
}

/// Session that the store may have claimed for this process.
pub(super) struct UnsettledClaim<'a> {
    backlog: &'a SweepBacklog,
    id: SessionId,
    reachability: Reachability,
}

impl UnsettledClaim<'_> {
    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn is_existing(&self) -> bool {
        self.reachability == Reachability::Existing
    }

    /// Removes the note: the session is held, or the store has no claim on it for this process.
    pub(super) fn settle(self) {
        let mut entries = self.backlog.0.lock();
        let this = (self.id, self.reachability);
        if let Some(at) = entries.unsettled.iter().position(|claim| *claim == this) {
            entries.unsettled.swap_remove(at);
        }
    }
}

/// Lets one caller in at a time, and turns the others away instead of making them wait.
#[derive(Debug, Default)]
pub(super) struct SingleFlight(AtomicBool);

impl SingleFlight {
    pub(super) fn try_enter(&self) -> Option<impl Drop + '_> {
        (!self.0.swap(true, Ordering::SeqCst)).then(|| SingleFlightGuard(self))
    }
}

struct SingleFlightGuard<'a>(&'a SingleFlight);

impl Drop for SingleFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}
