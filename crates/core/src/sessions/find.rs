//! Finding sessions by key, handle or id, and listing them.

use std::sync::Arc;

use super::{SessionOpenError, Sessions, open::enter_without_wait};
use crate::{
    ActiveSession, Agent, Handle, HandleHash, Holder, Key, Name, Owner, Record, Session, SessionId,
};

impl Sessions {
    /// Finds the session with this key.
    ///
    /// # Errors
    /// [`SessionOpenError::Unknown`] if there is none, [`SessionOpenError::Ended`] if it has just
    /// ended, or as [`Sessions::open`].
    pub async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<ActiveSession, SessionOpenError> {
        if let Some(session) = self.enter_held_by_key(owner, agent, key)? {
            return Ok(session);
        }
        Box::pin(self.load_by_key(owner, agent, key)).await
    }

    async fn load_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<ActiveSession, SessionOpenError> {
        let found = self.store.find_by_key(owner, agent, key).await?;
        let found = found.filter(|record| record.owner == *owner).map(|record| record.id);
        let released = || self.released.by_key(owner, agent, key).map(|released| released.id());
        self.resume(found.or_else(released).ok_or(SessionOpenError::Unknown)?).await
    }

    /// Enters the session with this name if it is held here and needs no wait, as for nearly every
    /// call. `None` has no reason: [`find_by_key`](Self::find_by_key) and the methods beside it
    /// return one. A key is looked up in the namespace without an agent.
    pub fn find_held(&self, owner: &Owner, name: &Name) -> Option<ActiveSession> {
        let now = self.clock.reading();
        self.check_lease(now).ok()?;
        let held = match name {
            Name::Handle(handle) => self.table.by_handle(&handle.hash(owner)),
            Name::Key(key) => self.table.by_key(&key.digest(owner, &Agent::none())),
        };
        enter_without_wait(held?, now)
    }

    /// Enters a session that the caller already has, without a lookup. `None` for a released
    /// session, which must be found by a name again.
    pub fn reenter(&self, session: Arc<Session>) -> Option<ActiveSession> {
        let now = self.clock.reading();
        self.check_lease(now).ok()?;
        enter_without_wait(session, now)
    }

    /// Finds the session with this handle. A provisional session becomes permanent, and
    /// [`Record::handle_used`] is set.
    ///
    /// # Errors
    /// [`SessionOpenError::Unknown`] for an unknown handle and for one of another owner,
    /// [`SessionOpenError::Ended`] if the session has ended, or as [`Sessions::open`].
    pub async fn find_by_handle(
        &self,
        owner: &Owner,
        handle: &Handle,
    ) -> Result<ActiveSession, SessionOpenError> {
        let (hash, now) = (handle.hash(owner), self.clock.reading());
        self.check_lease(now)?;
        let held = self.table.by_handle(&hash);
        if let Some(session) = held.and_then(|session| enter_without_wait(session, now)) {
            return Ok(session);
        }
        // Boxed, so that the future of a call on a held session stays small.
        Box::pin(self.load_by_handle(owner, hash)).await
    }

    async fn load_by_handle(
        &self,
        owner: &Owner,
        hash: HandleHash,
    ) -> Result<ActiveSession, SessionOpenError> {
        let found = self.store.find_by_handle(hash).await?;
        let found = found.filter(|record| record.owner == *owner).map(|record| record.id);
        // The owner is part of the hash.
        let released = || self.released.by_handle(hash).map(|released| released.id());
        let session =
            self.resume(found.or_else(released).ok_or(SessionOpenError::Unknown)?).await?;
        let record = session.record();
        if record.provisional || !record.handle_used {
            self.confirm(&session).await?;
        }
        self.table.add_handle(session.session(), hash);
        Ok(session)
    }

    /// Reads the record of the live session with this key, whichever process holds it.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn load_record_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, SessionOpenError> {
        Ok(self.store.find_by_key(owner, agent, key).await?)
    }

    /// Finds a session of `owner` by its id.
    ///
    /// # Errors
    /// [`SessionOpenError::Unknown`] for an unknown id and for one of another owner, or as
    /// [`Sessions::find_by_handle`].
    pub async fn find_by_id(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<ActiveSession, SessionOpenError> {
        let now = self.clock.reading();
        self.check_lease(now)?;
        let held = self.table.by_id(id).filter(|session| session.owner() == owner);
        if let Some(session) = held.and_then(|session| enter_without_wait(session, now)) {
            return Ok(session);
        }
        Box::pin(self.load_by_id(owner, id)).await
    }

    async fn load_by_id(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<ActiveSession, SessionOpenError> {
        let found = self.store.load(id).await?.map(|record| record.owner);
        let released = || self.released.get(id).map(|released| released.owner().clone());
        found.or_else(released).filter(|it| it == owner).ok_or(SessionOpenError::Unknown)?;
        self.resume(id).await
    }

    /// Lists up to `limit` live sessions of `owner`, held here or not, in the order of their ids,
    /// starting after `after`. A page with fewer records is the last one.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn list(
        &self,
        owner: &Owner,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, SessionOpenError> {
        self.list_page(Some(owner), after, limit).await
    }

    /// Reads a page of sessions. Sessions that are held here get the more recent time of use from
    /// memory.
    async fn list_page(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, SessionOpenError> {
        let mut page = self.store.list(owner, after, limit).await?;
        for record in &mut page {
            let held = self.table.by_id(record.id).map(|held| held.last_used());
            record.last_used = held.unwrap_or_default().max(record.last_used);
        }
        Ok(page)
    }

    /// Lists the live sessions of all owners, in the order of their ids, starting after `after`.
    /// For the operator of the process, not for clients.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn list_all(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, SessionOpenError> {
        self.list_page(None, after, limit).await
    }

    /// Reads the record of a session of any owner, live or tombstone. For the operator of the
    /// process, not for clients.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn load_record(&self, id: SessionId) -> Result<Option<Record>, SessionOpenError> {
        Ok(self.store.load(id).await?)
    }

    /// Returns the process that holds a session, if its lease is alive, without claiming the session.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn find_holder(&self, id: SessionId) -> Result<Option<Holder>, SessionOpenError> {
        if self.table.by_id(id).is_some() {
            return Ok(Some(self.holder.clone()));
        }
        match self.store.load(id).await?.and_then(|record| record.holder) {
            Some(lease) => Ok(self.store.lease_holder(lease).await?),
            None => Ok(None),
        }
    }

    /// Returns the session with this id if it is held here, without entering it.
    #[must_use]
    pub fn get_held(&self, id: SessionId) -> Option<Arc<Session>> {
        self.table.by_id(id)
    }
}
