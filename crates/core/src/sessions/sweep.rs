//! Periodic work: claims after a lost lease, write-back, and the end of expired sessions.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use super::{LostReason, SessionOpenError, Sessions, backlog::UnsettledClaim};
use crate::{EndReason, Lease, Record, Session, SessionId, StoreError, Timestamp};

/// Maximum records that are read from the store in one call.
const PAGE_SIZE: usize = 256;

/// Result of a sweep.
#[derive(Debug, Default)]
#[must_use = "the links of these sessions must be closed"]
pub struct SweepReport {
    /// Sessions that ended since the last sweep, with their last live records: their links can be
    /// closed. A session that is still in use comes with a later sweep.
    pub ended: Vec<Record>,
    /// Number of tombstones that were removed.
    pub purged: u64,
    /// First error, if there was one. The sweep went on as far as it could, and the next one tries
    /// again.
    pub error: Option<SessionOpenError>,
}

impl Sessions {
    /// Sets the function that closes the links of a released session that this process cannot claim
    /// again unchanged, because another process holds the session or has used it. A session is
    /// released when the lease is lost or a write is refused. Call it once, before the first session
    /// is opened.
    ///
    /// The function must start to close the links before it returns, and must not wait: a session
    /// that is claimed again is entered right after the function has returned.
    pub fn on_lost(&self, close: impl Fn(SessionId, LostReason) + Send + Sync + 'static) {
        self.released.set_on_lost(Box::new(close));
    }

    /// Claims the sessions that this process released without ending them. The links to a session
    /// stay open if no other process has used it; otherwise [`Sessions::on_lost`] closes them. A
    /// session that the store forgot is inserted again, see [`Settings::restore`](super::Settings). Call
    /// it after [`Sessions::renew`]: links that are open while the session is not held can outlive
    /// it.
    ///
    /// Sessions that the store could not be asked for are claimed by the next call.
    pub async fn reclaim(&self) {
        for session in self.released.all() {
            let reason = match self.claim(session.id()).await {
                Ok(_) | Err(SessionOpenError::LeaseLost | SessionOpenError::Store(_)) => continue,
                Err(SessionOpenError::HeldElsewhere { .. }) => LostReason::Moved,
                Err(_) => LostReason::Ended,
            };
            tracing::debug!(session = %session.id(), ?reason, "session lost to another process");
            self.released.lose(&session, reason);
        }
    }

    /// Writes all times of use back and returns how many.
    ///
    /// # Errors
    /// An error of the store. Times that were not written are written next time.
    pub async fn flush(&self) -> Result<u64, SessionOpenError> {
        self.write_uses(Session::unwritten_use).await
    }

    /// Writes back the times of use that are too old in the store, by a 32nd of the session's idle
    /// time or by a minute, whichever is less. Call it periodically: a session in constant use is
    /// not written constantly. If this process dies or loses its lease, a session may expire
    /// earlier by that time and by the time since the last call; it never expires later.
    ///
    /// # Errors
    /// Same as [`Sessions::flush`].
    pub async fn write_back(&self) -> Result<u64, SessionOpenError> {
        self.write_uses(Session::overdue_use).await
    }

    async fn write_uses(
        &self,
        which: impl Fn(&Session, Timestamp) -> Option<Timestamp>,
    ) -> Result<u64, SessionOpenError> {
        let now = self.clock.now();
        let mut used = self.table.select(|session| which(session, now));
        // In the order of creation, which is the order in most stores: a batch then touches few
        // pages.
        used.sort_unstable_by_key(|(session, _)| session.id());
        let mut written = 0;
        for batch in used.chunks(PAGE_SIZE) {
            let times: Vec<_> = batch.iter().map(|(session, used)| (session.id(), *used)).collect();
            let touched = self.store.touch(&times, Some(self.lease()?)).await?;
            if touched < times.len() as u64 && self.settings().restore {
                self.restore_missing(batch.iter().map(|(session, _)| session)).await?;
            }
            written += touched;
            batch.iter().for_each(|(session, used)| session.mark_written(*used));
        }
        Ok(written)
    }

    /// Inserts those of these held sessions again that the store has forgotten.
    pub(super) async fn restore_missing(
        &self,
        held: impl Iterator<Item = &Arc<Session>>,
    ) -> Result<(), SessionOpenError> {
        for session in held.filter(|session| !session.is_closed()) {
            if self.store.load(session.id()).await?.is_none() && self.table.contains(session) {
                match self.restore_held(session).await {
                    // The next call of `reclaim` reports the loss.
                    Ok(()) | Err(SessionOpenError::Store(StoreError::NotHolder)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Ends every expired session that is held here or by no process.
    ///
    /// The report lists the ended sessions, because this crate has no links to close. A session in
    /// use is left alone at any age. If this call is cancelled, the next sweep reports what it
    /// ended.
    pub async fn sweep(&self) -> SweepReport {
        let mut first = None;
        let mut note = |result: Result<(), SessionOpenError>| match result {
            // The holder ends it, or another caller was faster.
            Ok(())
            | Err(
                SessionOpenError::HeldElsewhere { .. }
                | SessionOpenError::Unknown
                | SessionOpenError::Ended(_),
            ) => {}
            Err(error) => {
                first.get_or_insert(error);
            }
        };
        for claim in self.backlog.unsettled_claims(|id| self.table.is_watched(id)) {
            note(self.settle_claim(claim).await);
        }
        let now = self.clock.now();
        for (session, ()) in self.table.select(|session| session.is_ending(now).then_some(())) {
            note(self.end_if_due(&session).await);
        }
        note(self.sweep_store().await);
        let purged = self.purge().await;
        let purged = purged.map_err(|error| note(Err(error.into()))).unwrap_or_default();
        SweepReport { ended: self.backlog.take_ended(), purged, error: first }
    }

    /// Writes all times of use back and releases the lease, so that other processes can take over
    /// at once. After that no session can be opened here. The sessions do not end. Close the links
    /// before.
    ///
    /// # Errors
    /// An error of the store. The lease then expires by itself.
    pub async fn close(&self) -> Result<(), SessionOpenError> {
        self.closed.store(true, Ordering::SeqCst);
        let flushed = self.flush().await;
        let validity = self.validity();
        self.set_validity(validity.invalidate());
        self.release_all();
        self.store.release_lease(validity.renewable_lease()).await?;
        flushed.map(drop)
    }

    /// Releases all held sessions. Current users finish.
    pub(super) fn release_all(&self) {
        self.released.add(|| self.table.clear());
    }

    /// Ends a held session if it has expired, idle or by age, or if its end has begun and was cancelled.
    async fn end_if_due(&self, session: &Arc<Session>) -> Result<(), SessionOpenError> {
        // The maximum age refuses new users; it does not end the session under current ones.
        let due = || session.close_if_due(self.clock.now());
        let reason =
            session.closing_reason().or_else(|| if session.is_in_use() { None } else { due() });
        match reason {
            Some(reason) => self.finish(session, reason).await,
            None => Ok(()),
        }
    }

    /// Takes over a session that the store claimed for this process and whose opener is gone. One
    /// that was just created without a key is ended and removed, because no client can ever find
    /// it.
    async fn settle_claim(&self, claim: UnsettledClaim<'_>) -> Result<(), SessionOpenError> {
        match self.claim(claim.id()).await {
            // An earlier incarnation is still closing; the next sweep handles this one.
            Ok(session) if session.is_closed() => return Ok(()),
            Ok(session) => {
                let findable = claim.is_existing() || session.record().key.is_some();
                if !findable && session.close_if_unused(EndReason::Closed) {
                    self.finish(&session, EndReason::Closed).await?;
                    self.remove_unfindable(session.id()).await?;
                }
            }
            // It ended before and could not be removed then.
            Err(SessionOpenError::Ended(over)) if !claim.is_existing() && over.key.is_none() => {
                self.remove_unfindable(over.id).await?;
            }
            // Left for the next sweep.
            Err(error @ (SessionOpenError::Store(_) | SessionOpenError::LeaseLost)) => {
                return Err(error);
            }
            // Another process holds it, or it does not exist.
            Err(_) => {}
        }
        claim.settle();
        Ok(())
    }

    /// Removes a session without a tombstone, unless another process has claimed it meanwhile.
    async fn remove_unfindable(&self, id: SessionId) -> Result<(), SessionOpenError> {
        match self.store.remove(id, Some(self.lease()?)).await {
            Ok(()) | Err(StoreError::NotHolder) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads all expired sessions from the store, and ends those that no process holds.
    async fn sweep_store(&self) -> Result<(), SessionOpenError> {
        let (now, mut after, mut first) = (self.clock.now(), None, None);
        let mut alive: HashMap<Lease, bool> = HashMap::new();
        loop {
            let page = self.store.list_due(now, after, PAGE_SIZE).await?;
            for record in &page {
                if !self.is_held_or_pending(record, &mut alive).await? {
                    match self.claim(record.id).await {
                        Ok(session) => first = first.or(self.end_if_due(&session).await.err()),
                        Err(error @ SessionOpenError::Store(_)) => first = first.or(Some(error)),
                        Err(_) => {}
                    }
                }
            }
            after = page.last().and_then(|last| Some((last.deadline()?, last.id)));
            if after.is_none() {
                return first.map_or(Ok(()), Err);
            }
        }
    }

    /// Returns whether a live holder has the session, or a call of this process waits for it.
    async fn is_held_or_pending(
        &self,
        record: &Record,
        alive: &mut HashMap<Lease, bool>,
    ) -> Result<bool, SessionOpenError> {
        if self.table.by_id(record.id).is_some() || self.table.is_watched(record.id) {
            return Ok(true);
        }
        match record.holder {
            None => Ok(false),
            Some(lease) if lease == self.lease()? => Ok(false),
            Some(lease) => Ok(match alive.get(&lease) {
                Some(alive) => *alive,
                None => {
                    let lives = self.store.lease_holder(lease).await?.is_some();
                    alive.insert(lease, lives);
                    lives
                }
            }),
        }
    }

    async fn purge(&self) -> Result<u64, StoreError> {
        let before = self.clock.now().before(self.settings().retention);
        let mut purged = 0;
        loop {
            let some = self.store.purge(before, PAGE_SIZE).await?;
            purged += some;
            if some < PAGE_SIZE as u64 {
                return Ok(purged);
            }
        }
    }
}
