//! Release of idle sessions, so that another process can hold them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use stayput_sync::Mutex;

use super::{SessionOpenError, Sessions, backlog::Reachability};
use crate::{Session, SessionId, Timestamp};

/// Sessions that this process is about to give up. They cannot be claimed here meanwhile: the claim would be undone by
/// the release.
#[derive(Debug, Default)]
pub(super) struct ReleasingSessions(Mutex<HashSet<SessionId>>);

impl ReleasingSessions {
    pub(super) fn contains(&self, id: SessionId) -> bool {
        self.0.lock().contains(&id)
    }

    fn begin(&self, id: SessionId) -> ReleaseGuard<'_> {
        self.0.lock().insert(id);
        ReleaseGuard { all: self, id }
    }
}

/// Guard of one release. Dropping it, also by cancellation, lets the session be claimed again.
struct ReleaseGuard<'a> {
    all: &'a ReleasingSessions,
    id: SessionId,
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.id);
    }
}

impl Sessions {
    /// Releases the held sessions that were unused for `idle` and that `may_move`, so that any process, also this one,
    /// can claim them at once. They do not end. `close` closes the links of a session; the store is told after that,
    /// so that two processes never have links at the same time. Returns the number of released sessions.
    ///
    /// A caller that opens a session while it is being released gets [`SessionOpenError::HeldElsewhere`] with the holder
    /// of this process, and tries again.
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`] or an error of the store. Nothing is released while the store cannot be reached,
    /// because a held session can be used without it.
    pub async fn release_idle<F: Future<Output = ()>>(
        &self,
        idle: Duration,
        may_move: impl Fn(&Session) -> bool,
        close: impl Fn(SessionId) -> F,
    ) -> Result<u64, SessionOpenError> {
        let now = self.clock.now();
        let due = self.table.select(|session| {
            // Read before the checks: a use after any of them changes the time, and the session then stays.
            let used = session.last_used();
            let unused = !session.is_in_use() && used.after(idle) <= now;
            (unused && !session.is_ending(now) && may_move(session)).then_some(used)
        });
        let times: Vec<_> = due.iter().map(|(session, used)| (session.id(), *used)).collect();
        if times.is_empty() {
            return Ok(0);
        }
        let touched = self.store.touch(&times, Some(self.lease()?)).await?;
        if touched < times.len() as u64 && self.settings().restore {
            self.restore_missing(due.iter().map(|(session, _)| session)).await?;
        }
        let mut released = 0;
        for (session, used) in due {
            session.mark_written(used);
            let may_release = |session: &Session| session.last_used() == used && may_move(session);
            released += u64::from(self.release(&session, now, may_release, &close).await?);
        }
        Ok(released)
    }

    /// Releases one session unless it is in use or was used since it was selected. If this is cancelled or fails, the next sweep claims the session again.
    async fn release<F: Future<Output = ()>>(
        &self,
        session: &Arc<Session>,
        now: Timestamp,
        may_release: impl FnOnce(&Session) -> bool,
        close: &impl Fn(SessionId) -> F,
    ) -> Result<bool, SessionOpenError> {
        let (id, lease) = (session.id(), self.lease()?);
        let _watch = self.table.watch(id);
        let _releasing = self.releasing.begin(id);
        if !session.release_if_unused(may_release) {
            return Ok(false);
        }
        let pending = self.backlog.begin_claim(id, Reachability::Existing);
        self.table.remove(session);
        close(id).await;
        if let Some(used) = session.unwritten_use(now) {
            self.store.touch(&[(id, used)], Some(lease)).await?;
        }
        self.store.release_claim(id, lease).await?;
        pending.settle();
        tracing::debug!(session = %id, "idle session released");
        Ok(true)
    }

    /// Releases a session that may be in use: no caller enters it here any more. `close` lets its users end, for as long as
    /// it waits, and closes its links; the store is told after that. Returns whether the session was held.
    ///
    /// # Errors
    /// Same as [`Sessions::release_idle`].
    pub async fn release_used(
        &self,
        session: &Arc<Session>,
        close: impl Future<Output = ()>,
    ) -> Result<bool, SessionOpenError> {
        let (id, lease) = (session.id(), self.lease()?);
        let _watch = self.table.watch(id);
        let _releasing = self.releasing.begin(id);
        if !self.table.contains(session) {
            return Ok(false);
        }
        session.release();
        let pending = self.backlog.begin_claim(id, Reachability::Existing);
        close.await;
        // Until now its users could write its record.
        self.table.remove(session);
        if let Some(used) = session.unwritten_use(self.clock.now()) {
            self.store.touch(&[(id, used)], Some(lease)).await?;
        }
        self.store.release_claim(id, lease).await?;
        pending.settle();
        tracing::debug!(session = %id, "session released");
        Ok(true)
    }
}
