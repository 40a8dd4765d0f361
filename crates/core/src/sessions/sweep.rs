//! What has to be done from time to time.

use std::sync::{Arc, Mutex, PoisonError};

use super::{OpenError, Sessions};
use crate::{EndReason, Record, Session, SessionId, StoreError, Tenure};

/// How many sessions one round of a sweep reads from the store.
const BATCH: usize = 256;

/// What a sweep found.
#[derive(Debug, Default)]
#[must_use = "whoever has links to these sessions must close them"]
pub struct Swept {
    /// The sessions that are over since the last sweep, as they were before: their links can be
    /// closed. Those that somebody is still inside come with a later sweep.
    pub ended: Vec<Record>,
    /// The sessions that another process has taken over meanwhile.
    pub lost: Vec<SessionId>,
    /// How many tombstones were forgotten.
    pub purged: u64,
    /// Why the sweep stopped early, if it did. What ended before that has ended.
    pub error: Option<OpenError>,
}

/// What became of the lease.
#[derive(Debug)]
#[must_use = "sessions that were lost must not be used any more"]
pub enum Renewed {
    /// It runs on.
    Kept,
    /// It had run out, and a new one was taken. These sessions may be others' by now: their links
    /// must be closed, and whoever comes back to one opens it again.
    Lost(Vec<Arc<Session>>),
}

impl Sessions {
    /// Renews the lease. To be called several times in each [`lease`](super::Settings::lease).
    ///
    /// # Errors
    /// What the store says. The old lease is good until it runs out; try again before it does.
    pub async fn renew(&self) -> Result<Renewed, StoreError> {
        let asked = self.clock.monotonic();
        let ttl = self.settings.lease;
        let lease = self.tenure.read().unwrap_or_else(PoisonError::into_inner).renewable();
        let (lease, result) = match self.store.renew(lease, ttl).await {
            Ok(()) => (lease, Renewed::Kept),
            Err(StoreError::LeaseLost) => {
                let lost = self.let_go();
                (self.store.hold(&self.holder, ttl).await?, Renewed::Lost(lost))
            }
            Err(error) => return Err(error),
        };
        *self.tenure.write().unwrap_or_else(PoisonError::into_inner) =
            Tenure::new(lease, asked, ttl);
        Ok(result)
    }

    /// Writes times of use back; returns how many.
    ///
    /// # Errors
    /// What the store says. What was not written is written next time.
    pub async fn flush(&self) -> Result<u64, OpenError> {
        let now = self.clock.now();
        let used: Vec<_> = self
            .held()
            .into_iter()
            .filter_map(|session| session.unwritten(now).map(|used| (session, used)))
            .collect();
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
    /// It returns what ended, because this crate has no links to close. A session in use is left
    /// alone, however old it is.
    pub async fn sweep(&self) -> Swept {
        let mut swept = Swept::default();
        swept.error = match self.sweep_held().await {
            Ok(()) => self.sweep_store(&mut swept).await.err(),
            Err(error) => Some(error),
        };
        self.over.take(&mut swept);
        swept
    }

    /// Writes what is unwritten and gives the lease up, so that others can take over at once.
    ///
    /// Returns the sessions that were held here. They are not over.
    ///
    /// # Errors
    /// What the store says.
    pub async fn close(&self) -> Result<Vec<Arc<Session>>, OpenError> {
        let flushed = self.flush().await;
        let lease = self.lease()?;
        let held = self.let_go();
        self.store.leave(lease).await?;
        flushed.map(|_| held)
    }

    async fn sweep_held(&self) -> Result<(), OpenError> {
        let now = self.clock.now();
        for session in self.held() {
            let reason = match session.ending() {
                // Somebody began to end it and was cancelled.
                Some(reason) => Some(reason),
                None => session.refuses(now).filter(|reason| session.close_if_unused(*reason)),
            };
            if let Some(reason) = reason {
                self.finish(&session, reason).await?;
            }
        }
        Ok(())
    }

    async fn sweep_store(&self, swept: &mut Swept) -> Result<(), OpenError> {
        let now = self.clock.now();
        for record in self.store.due(now, BATCH).await? {
            if self.table.by_id(record.id).is_none() {
                swept.ended.extend(self.expire_unheld(&record).await?);
            }
        }
        let retention = self.settings.retention;
        swept.purged = self.store.purge(now.before(retention), BATCH).await?;
        Ok(())
    }

    /// Ends a session that nobody holds, unless somebody came back to it meanwhile.
    async fn expire_unheld(&self, record: &Record) -> Result<Option<Record>, OpenError> {
        let lease = self.lease()?;
        let ended = match self.store.claim(record.id, lease).await {
            Ok(claimed) => {
                let due = claimed.expiry.due(claimed.created, claimed.last_used, self.clock.now());
                match due.filter(|_| claimed.is_live()) {
                    Some(reason) => self.expire(&claimed, reason, Some(lease)).await.map(Some),
                    None => self.store.release(record.id, lease).await.map(|()| None),
                }
            }
            Err(error) => Err(error),
        };
        match ended {
            // Its holder will see to it; or somebody was faster.
            Err(
                StoreError::HeldBy { .. }
                | StoreError::Missing
                | StoreError::Stale
                | StoreError::NotHolder,
            ) => Ok(None),
            ended => Ok(ended?),
        }
    }

    /// Lets go of everything that is held. Who is inside stays until done.
    fn let_go(&self) -> Vec<Arc<Session>> {
        let held = self.held();
        for session in &held {
            session.close(EndReason::Closed);
            self.table.remove(session.id());
        }
        held
    }
}

/// What ended between two sweeps, for the next one to tell.
#[derive(Debug, Default)]
pub(super) struct Over(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    ended: Vec<(Option<Arc<Session>>, Record)>,
    lost: Vec<SessionId>,
}

impl Over {
    /// A session ended; `session` is set if somebody may still be inside.
    pub(super) fn ended(&self, session: Option<&Arc<Session>>, record: Record) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended
            .push((session.cloned(), record));
    }

    /// Another process took a session over.
    pub(super) fn lost(&self, id: SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lost.push(id);
    }

    fn take(&self, swept: &mut Swept) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = |(session, _): &mut (Option<Arc<Session>>, _)| {
            !session.as_ref().is_some_and(|session| session.is_in_use())
        };
        swept.ended.extend(told.ended.extract_if(.., empty).map(|(_, record)| record));
        swept.lost.append(&mut told.lost);
    }
}
