//! Sessions that the store forgot, such as a database that was emptied or restarted without its data.

use std::sync::Arc;

use stayput_sync::Mutex;

use super::{SessionOpenError, Sessions, released::is_changed};
use crate::{Record, Session, SessionId, StoreError};

/// Ids of sessions that were inserted again, until the caller takes them.
#[derive(Debug, Default)]
pub(super) struct RestoredSessions(Mutex<Vec<SessionId>>);

impl RestoredSessions {
    fn add(&self, id: SessionId) {
        self.0.lock().push(id);
    }

    fn take(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Sessions {
    /// Takes the sessions that the store forgot and that were inserted again. Their connections are
    /// not in the store any more: store each again with [`Sessions::put_connection`].
    #[must_use]
    pub fn take_restored(&self) -> Vec<SessionId> {
        self.restored.take()
    }

    /// Returns whether the session is held here, or was released and not yet claimed again.
    #[must_use]
    pub fn is_held_or_released(&self, id: SessionId) -> bool {
        self.table.by_id(id).is_some() || self.released.get(id).is_some()
    }

    /// Inserts a session again that the store has no record of, with its generation and its handles.
    /// If another session has its key now, this one is inserted without a key and without its state,
    /// so that its clients get the loss.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if sessions are not to be restored, [`SessionOpenError::LeaseLost`] or
    /// an error of the store.
    pub(super) async fn restore(&self, session: &Session) -> Result<(), SessionOpenError> {
        if !self.settings().restore {
            return Err(StoreError::Missing.into());
        }
        let lease = self.lease()?;
        let known = Record::clone(&session.record());
        let record = Record { holder: Some(lease), last_used: session.last_used(), ..known };
        match self.insert_again(record).await {
            Ok(()) => {}
            // Another caller was faster.
            Err(StoreError::Taken { by }) if by == session.id() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for hash in session.handles() {
            self.store.add_handle(session.id(), hash, Some(lease)).await?;
        }
        self.restored.add(session.id());
        Ok(())
    }

    /// Inserts a held session again. If its key is taken, or another process has inserted it, it is
    /// released, and [`Sessions::reclaim`] reports the loss.
    ///
    /// # Errors
    /// [`StoreError::NotHolder`] if it was released, or as [`Sessions::restore`].
    pub(super) async fn restore_held(&self, session: &Session) -> Result<(), SessionOpenError> {
        self.restore(session).await?;
        let before = session.record();
        let stored = self.store.load(session.id()).await?.ok_or(StoreError::Missing)?;
        let is_same = stored.holder == Some(self.lease()?) && !is_changed(&before, &stored);
        let kept = if is_same { Ok(()) } else { Err(StoreError::NotHolder) };
        Ok(self.release_if_not_holder(session, kept)?)
    }

    async fn insert_again(&self, record: Record) -> Result<(), StoreError> {
        match self.store.insert(&record, None).await {
            Err(StoreError::Taken { by }) if by != record.id => {
                self.released.supersede(&record);
                let mut unnamed = Record { key: None, ..record };
                unnamed.lose_state();
                self.store.insert(&unnamed, None).await.map(drop)
            }
            inserted => inserted.map(drop),
        }
    }

    /// Reports the loss to the clients of a key whose session the store forgot, and that belongs to
    /// another session now.
    pub(super) async fn report_superseded(
        &self,
        session: &Arc<Session>,
    ) -> Result<(), SessionOpenError> {
        let record = session.record();
        let Some(generation) = self.released.superseded(&record) else { return Ok(()) };
        let raise =
            |record: &mut Record| record.generation = record.generation.max(generation).next();
        self.change(session, raise).await?;
        self.released.remove_superseded(&record);
        Ok(())
    }
}
