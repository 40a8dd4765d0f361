//! What has to be done from time to time.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use super::{OpenError, Sessions, over::Stray};
use crate::{EndReason, Lease, Record, Session, SessionId, StoreError, Tenure, Timestamp};

/// How many sessions are read from the store at once.
const BATCH: usize = 256;

/// What a sweep found.
#[derive(Debug, Default)]
#[must_use = "whoever has links to these sessions must close them"]
pub struct Swept {
    /// The sessions that are over since the last sweep, as they were before: their links can be
    /// closed. Those that somebody is still inside come with a later sweep.
    pub ended: Vec<Record>,
    /// How many tombstones were forgotten.
    pub purged: u64,
    /// The first thing that went wrong, if anything did. The sweep went on as far as it could, and
    /// the next one tries again.
    pub error: Option<OpenError>,
}

/// What became of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It runs on.
    Kept,
    /// It had run out, and a new one was taken. All sessions were let go of, see [`Sessions::lost`];
    /// whoever comes back to one opens it again.
    Regained,
}

impl Sessions {
    /// Renews the lease. To be called several times in each [`lease`](super::Settings::lease).
    ///
    /// Whatever it answers, ask [`Sessions::lost`] afterwards.
    ///
    /// # Errors
    /// What the store says; the lease is then good until it runs out. [`StoreError::LeaseLost`] after
    /// [`Sessions::close`].
    pub async fn renew(&self) -> Result<Renewed, StoreError> {
        let Some(_alone) = self.renewing.enter() else { return Ok(Renewed::Kept) };
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::LeaseLost);
        }
        let (asked, ttl) = (self.clock.reading(), self.settings().lease);
        let lease = self.tenure().renewable();
        match self.store.renew(lease, ttl).await {
            Ok(()) => {
                self.set_tenure(Tenure::new(lease, asked, ttl));
                Ok(Renewed::Kept)
            }
            Err(StoreError::LeaseLost) => {
                self.let_go();
                let asked = self.clock.reading();
                let lease = self.store.hold(&self.holder, ttl).await?;
                self.table.set_lease(lease);
                self.set_tenure(Tenure::new(lease, asked, ttl));
                Ok(Renewed::Regained)
            }
            Err(error) => Err(error),
        }
    }

    /// The sessions that this process has let go of without ending them, since this was last asked:
    /// the lease was lost, another process took one over, or [`Sessions::close`] was called.
    ///
    /// Links to them must be closed here and left alone at the servers: somebody else goes on.
    #[must_use = "links to these sessions must be closed"]
    pub fn lost(&self) -> Vec<Arc<Session>> {
        self.over.take_lost()
    }

    /// Writes all times of use back; returns how many.
    ///
    /// # Errors
    /// What the store says. What was not written is written next time.
    pub async fn flush(&self) -> Result<u64, OpenError> {
        self.write(Session::unwritten).await
    }

    /// Writes those times of use back of which the store knows too old a one, by a thirtieth of the session's idle time
    /// or by a minute, whichever is less. To be called from time to time: what is used all the time is not written all
    /// the time. If this process dies or loses its lease, a session may end earlier by that and by the time since the
    /// last call of this; it never ends later.
    ///
    /// # Errors
    /// As for [`Sessions::flush`].
    pub async fn write_back(&self) -> Result<u64, OpenError> {
        self.write(Session::overdue).await
    }

    async fn write(
        &self,
        which: impl Fn(&Session, Timestamp) -> Option<Timestamp>,
    ) -> Result<u64, OpenError> {
        let now = self.clock.now();
        let mut used = self.table.select(|session| which(session, now));
        // As they were made, which is how most stores have them: a batch is then in few places.
        used.sort_unstable_by_key(|(session, _)| session.id());
        let mut written = 0;
        for batch in used.chunks(BATCH) {
            let times: Vec<_> = batch.iter().map(|(session, used)| (session.id(), *used)).collect();
            written += self.store.touch(&times, Some(self.lease()?)).await?;
            batch.iter().for_each(|(session, used)| session.wrote(*used));
        }
        Ok(written)
    }

    /// Ends every session whose time has come: those held here, and those that nobody holds.
    ///
    /// It tells what ended, because this crate has no links to close. A session in use is left alone,
    /// however old it is. If it is cancelled, the next one tells what this one ended.
    pub async fn sweep(&self) -> Swept {
        let mut first = None;
        let mut note = |result: Result<(), OpenError>| match result {
            // Its holder will see to it; or somebody was faster.
            Ok(())
            | Err(OpenError::HeldElsewhere { .. } | OpenError::Unknown | OpenError::Over(_)) => {}
            Err(error) => {
                first.get_or_insert(error);
            }
        };
        for stray in self.over.strays(|id| self.table.is_watched(id)) {
            note(self.collect(stray).await);
        }
        let now = self.clock.now();
        for (session, ()) in self.table.select(|session| session.is_ending(now).then_some(())) {
            note(self.end_if_due(&session).await);
        }
        note(self.sweep_store().await);
        let purged = self.purge().await;
        let purged = purged.map_err(|error| note(Err(error.into()))).unwrap_or_default();
        Swept { ended: self.over.take_ended(), purged, error: first }
    }

    /// Writes what is unwritten and gives the lease up, so that others can take over at once. From
    /// then on nothing can be opened here. The sessions are not over; [`Sessions::lost`] names them.
    ///
    /// # Errors
    /// What the store says. Then the lease runs out by itself.
    pub async fn close(&self) -> Result<(), OpenError> {
        self.closed.store(true, Ordering::SeqCst);
        let flushed = self.flush().await;
        let tenure = self.tenure();
        self.set_tenure(tenure.ended());
        self.let_go();
        self.store.leave(tenure.renewable()).await?;
        flushed.map(drop)
    }

    /// Lets go of everything that is held. Who is inside stays until done.
    fn let_go(&self) {
        self.over.lost(self.table.clear());
    }

    /// Ends a held session if its time has come, or if somebody began to and was cancelled.
    async fn end_if_due(&self, session: &Arc<Session>) -> Result<(), OpenError> {
        // Age shuts the door to those who come, and not on those who are inside.
        let due = || session.close_if_due(self.clock.now());
        let reason = session.ending().or_else(|| if session.is_in_use() { None } else { due() });
        match reason {
            Some(reason) => self.finish(session, reason).await,
            None => Ok(()),
        }
    }

    /// Holds a session that the store has for us and whose opener did not wait for it. One that was
    /// just made without a key ends at once, and nothing of it is kept: nobody can ever find it.
    async fn collect(&self, stray: Stray<'_>) -> Result<(), OpenError> {
        match self.take(stray.id()).await {
            // An earlier life is still on its way out; the next sweep finds this one.
            Ok(session) if session.is_over() => return Ok(()),
            Ok(session) => {
                let findable = stray.is_known() || session.record().key.is_some();
                if !findable && session.close_if_unused(EndReason::Closed) {
                    self.finish(&session, EndReason::Closed).await?;
                    self.erase(session.id()).await?;
                }
            }
            // It ended before, and could not be forgotten then.
            Err(OpenError::Over(over)) if !stray.is_known() && over.key.is_none() => {
                self.erase(over.id).await?;
            }
            // For the next sweep.
            Err(error @ (OpenError::Store(_) | OpenError::LeaseLost)) => return Err(error),
            // Others have it, or nobody.
            Err(_) => {}
        }
        stray.settled();
        Ok(())
    }

    /// Keeps nothing of a session. One that another process has by now is for that one to end.
    async fn erase(&self, id: SessionId) -> Result<(), OpenError> {
        match self.store.remove(id, Some(self.lease()?)).await {
            Ok(()) | Err(StoreError::NotHolder) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes through all that the store says is due, and ends what nobody holds.
    async fn sweep_store(&self) -> Result<(), OpenError> {
        let (now, mut after, mut first) = (self.clock.now(), None, None);
        let mut alive: HashMap<Lease, bool> = HashMap::new();
        loop {
            let page = self.store.due(now, after, BATCH).await?;
            for record in &page {
                if !self.is_somebodys(record, &mut alive).await? {
                    match self.take(record.id).await {
                        Ok(session) => first = first.or(self.end_if_due(&session).await.err()),
                        Err(error @ OpenError::Store(_)) => first = first.or(Some(error)),
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

    /// Whether a live holder has a session, here or elsewhere, or somebody here is about to.
    async fn is_somebodys(
        &self,
        record: &Record,
        alive: &mut HashMap<Lease, bool>,
    ) -> Result<bool, OpenError> {
        if self.table.by_id(record.id).is_some() || self.table.is_watched(record.id) {
            return Ok(true);
        }
        match record.holder {
            None => Ok(false),
            Some(lease) if lease == self.lease()? => Ok(false),
            Some(lease) => Ok(match alive.get(&lease) {
                Some(alive) => *alive,
                None => {
                    let lives = self.store.holder(lease).await?.is_some();
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
            let some = self.store.purge(before, BATCH).await?;
            purged += some;
            if some < BATCH as u64 {
                return Ok(purged);
            }
        }
    }

    pub(super) fn tenure(&self) -> Tenure {
        *self.tenure.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tenure(&self, tenure: Tenure) {
        let mut known = self.tenure.write().unwrap_or_else(PoisonError::into_inner);
        *known = tenure;
        // Under the lock: of two who set it, both are set by the later one.
        self.until.set(&tenure);
    }
}
