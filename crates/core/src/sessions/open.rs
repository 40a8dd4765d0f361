//! Opening and finding sessions.

use std::sync::Arc;

use super::{
    ATTEMPTS, OpenError, Opened, Origin, Sessions, Wish,
    table::{Reservation, Room},
};
use crate::session::InUse;
use crate::{
    Agent, EndReason, Expiry, Generation, Handle, Key, Lease, Owner, Record, Seen, Session,
    SessionId, StoreError,
};

impl Sessions {
    /// Finds the session that is wished for, or creates it.
    ///
    /// One call or fifty at once, here or in several processes: a key leads to one session.
    ///
    /// # Errors
    /// [`OpenError::HeldElsewhere`], [`OpenError::AtCapacity`], [`OpenError::LeaseLost`] or what the
    /// store says.
    pub async fn open(&self, wish: &Wish) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            if let Some((agent, key)) = &wish.name
                && let Some(session) = self.held_by_key(&wish.owner, agent, key)?
            {
                return Ok(Opened { session, origin: Origin::Kept });
            }
            let opened = match self.create(wish).await {
                Err(OpenError::Store(StoreError::Taken { by })) => self.resume(by).await,
                created => created,
            };
            match opened {
                // It ended between being found and being claimed; the key is free now.
                Err(OpenError::Unknown | OpenError::Over(_)) => {}
                opened => return opened,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Finds the session with this key.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] if there is none, or as [`Sessions::open`].
    pub async fn by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<InUse, OpenError> {
        if let Some(session) = self.held_by_key(owner, agent, key)? {
            return Ok(session);
        }
        let found = self.store.find(owner, agent, key).await?;
        let record = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        Ok(self.resume(record.id).await?.session)
    }

    /// Finds the session that a handle names. A provisional session is one no longer.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] for an unknown handle and for one of another owner,
    /// [`OpenError::Over`] if the session is over, or as [`Sessions::open`].
    pub async fn by_handle(&self, owner: &Owner, handle: &Handle) -> Result<InUse, OpenError> {
        let hash = handle.hash(owner);
        self.lease()?;
        if let Some(session) = self.table.by_handle(&hash)
            && let Some(session) = self.enter(&session).await?
        {
            return Ok(session);
        }
        let found = self.store.find_handle(hash).await?;
        let record = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        let session = self.resume(record.id).await?.session;
        if session.record().provisional {
            self.confirm(&session).await?;
        }
        self.table.name(&session, hash);
        Ok(session)
    }

    /// Finds a session of `owner` by its id.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] for an unknown id and for one of another owner, or as
    /// [`Sessions::by_handle`].
    pub async fn by_id(&self, owner: &Owner, id: SessionId) -> Result<InUse, OpenError> {
        self.lease()?;
        if let Some(session) = self.table.by_id(id).filter(|session| session.owner() == owner)
            && let Some(session) = self.enter(&session).await?
        {
            return Ok(session);
        }
        let found = self.store.load(id).await?;
        found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        Ok(self.resume(id).await?.session)
    }

    /// Lets a session that is over live again under its id, with nothing of its state.
    ///
    /// # Errors
    /// [`OpenError::Unknown`] if this owner has no such session, [`StoreError::Taken`] if another
    /// session has its key by now, or as [`Sessions::open`].
    pub async fn revive(&self, owner: &Owner, id: SessionId) -> Result<Opened, OpenError> {
        let found = self.store.load(id).await?;
        let found = found.filter(|record| record.owner == *owner).ok_or(OpenError::Unknown)?;
        if found.is_live() {
            return self.resume(id).await;
        }
        let _place = self.place(owner, false).await?;
        let lease = self.lease()?;
        let mark = self.table.mark(id);
        let seen = self.claim(id, lease).await?;
        let mut record = seen.clone();
        record.revive(self.clock.now());
        record.revision = self.store.replace(&record, Seen::revision(&seen), Some(lease)).await?;
        let generation = record.generation;
        self.keep(record, mark, Origin::Lost(generation)).ok_or(OpenError::Unknown)
    }

    /// A session held here under this key, in use.
    fn held_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<InUse>, OpenError> {
        self.lease()?;
        let held = self.table.by_key(&key.digest(owner, agent));
        Ok(held
            .filter(|session| session.refuses(self.clock.now()).is_none())
            .and_then(|session| session.enter(&self.clock)))
    }

    /// Uses a held session, unless its time has come: then it ends now rather than at the next sweep.
    async fn enter(&self, session: &Arc<Session>) -> Result<Option<InUse>, OpenError> {
        let closed = session.refuses(self.clock.now()).filter(|reason| match reason {
            EndReason::Age => {
                session.close(*reason);
                true
            }
            _ => session.close_if_unused(*reason),
        });
        match closed {
            Some(reason) => self.finish(session, reason).await.map(|()| None),
            None => Ok(session.enter(&self.clock)),
        }
    }

    async fn create(&self, wish: &Wish) -> Result<Opened, OpenError> {
        let _place = self.place(&wish.owner, wish.provisional).await?;
        let now = self.clock.now();
        let expiry = wish.expiry.unwrap_or(self.settings.expiry);
        let mut record = Record::new(wish.owner.clone(), expiry, now);
        if let Some((agent, key)) = &wish.name {
            record = record.keyed(agent.clone(), key.clone());
        }
        if wish.provisional {
            record.provisional = true;
            record.expiry = Expiry { idle: Some(self.settings.provisional), ..expiry };
        }
        record.holder = Some(self.lease()?);
        let mark = self.table.mark(record.id);
        record.generation = self.store.insert(&record).await?;
        let origin = match record.generation {
            Generation(0) => Origin::Fresh,
            generation => Origin::Lost(generation),
        };
        self.keep(record, mark, origin).ok_or(OpenError::Unknown)
    }

    /// Takes over a session that the store has.
    async fn resume(&self, id: SessionId) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            let lease = self.lease()?;
            let mark = self.table.mark(id);
            let record = self.claim(id, lease).await?;
            if let Some(held) = self.table.by_id(id)
                && let Some(session) = self.enter(&held).await?
            {
                return Ok(Opened { session, origin: Origin::Kept });
            }
            if !record.is_live() {
                self.store.release(id, lease).await?;
                return Err(OpenError::Over(record.into()));
            }
            let now = self.clock.now();
            if let Some(reason) = record.expiry.due(record.created, record.last_used, now) {
                match self.expire(&record, reason, Some(lease)).await {
                    Ok(record) => {
                        self.over.ended(None, record.clone());
                        return Err(OpenError::Over(record.into()));
                    }
                    Err(StoreError::Stale) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            if let Some(opened) = self.keep(record, mark, Origin::Kept) {
                return Ok(opened);
            }
        }
        Err(StoreError::Stale.into())
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, OpenError> {
        self.store.claim(id, lease).await.map_err(|error| match error {
            StoreError::HeldBy { holder } => OpenError::HeldElsewhere { holder },
            StoreError::Missing => OpenError::Unknown,
            error => error.into(),
        })
    }

    /// Holds a record that this process has claimed; `None` if it was let go of meanwhile.
    fn keep(&self, record: Record, mark: u64, origin: Origin) -> Option<Opened> {
        let session = self.table.hold(record, mark)?.enter(&self.clock)?;
        Some(Opened { session, origin })
    }

    /// Writes the end of a session that nobody came back to; returns what was known of it.
    pub(super) async fn expire(
        &self,
        record: &Record,
        reason: EndReason,
        lease: Option<Lease>,
    ) -> Result<Record, StoreError> {
        let mut tombstone = record.clone();
        tombstone.end(reason, self.clock.now());
        self.store.replace(&tombstone, Seen::unused(record), lease).await?;
        Ok(Record { ended: tombstone.ended, ..record.clone() })
    }

    /// The handle of a provisional session came back: it is wanted.
    async fn confirm(&self, session: &Session) -> Result<(), OpenError> {
        let idle = self.settings.expiry.idle;
        self.change(session, |record| {
            record.provisional = false;
            record.expiry.idle = idle;
        })
        .await
    }

    /// A place for one more session of `owner`, made by ending a provisional one if need be.
    async fn place(&self, owner: &Owner, provisional: bool) -> Result<Reservation<'_>, OpenError> {
        let limits = self.settings.sessions;
        for _ in 0..ATTEMPTS {
            match self.table.reserve(owner, limits, provisional) {
                Room::Reserved(place) => return Ok(place),
                Room::Full(Some(oldest)) => {
                    if oldest.close_if_unused(EndReason::Evicted) {
                        self.finish(&oldest, EndReason::Evicted).await?;
                    }
                }
                Room::Full(None) => break,
            }
        }
        let limit = if provisional {
            limits.provisional_per_owner.min(limits.per_owner)
        } else {
            limits.per_owner
        };
        Err(OpenError::AtCapacity { limit })
    }
}
