//! Opening sessions: create, resume and revive. `find.rs` finds those that exist.

use std::sync::{Arc, atomic::Ordering};

use super::{
    MAX_ATTEMPTS, OpenOptions, OpenedSession, Origin, SessionOpenError, Sessions,
    backlog::Reachability,
    table::{RemovalWatch, Reservation, ReserveOutcome},
};
use crate::{
    ActiveSession, Agent, ClockReading, Connection, EndReason, ExpectedRevision, Expiry,
    Generation, Key, Lease, Owner, Record, Session, SessionId, StoreError,
};

impl Sessions {
    /// Finds the session of `options`, or creates it.
    ///
    /// Concurrent calls with one key, here or in several processes, get one session.
    ///
    /// # Errors
    /// [`SessionOpenError::HeldElsewhere`], [`SessionOpenError::AtCapacity`],
    /// [`SessionOpenError::LeaseLost`] or an error of the store.
    pub async fn open(&self, options: &OpenOptions) -> Result<OpenedSession, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some((agent, key)) = &options.name
                && let Some(session) = self.enter_held_by_key(&options.owner, agent, key)?
            {
                return self.connect_existing(session, options).await;
            }
            if let Some(session) = self.resume_released(options).await? {
                return self.connect_existing(session, options).await;
            }
            let opened = match self.create(options).await {
                Err(SessionOpenError::Store(StoreError::Taken { by })) => {
                    match self.resume(by).await {
                        Ok(session) => return self.connect_existing(session, options).await,
                        Err(error) => Err(error),
                    }
                }
                created => created,
            };
            match opened {
                // It ended between the insert and the claim; the key is free now.
                Err(SessionOpenError::Unknown | SessionOpenError::Ended(_)) => {}
                opened => return opened,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Claims the released session with the key of `options`. The store may have forgotten it: then a
    /// new session must not take its key.
    async fn resume_released(
        &self,
        options: &OpenOptions,
    ) -> Result<Option<ActiveSession>, SessionOpenError> {
        let Some((agent, key)) = &options.name else { return Ok(None) };
        let Some(released) = self.released.by_key(&options.owner, agent, key) else {
            return Ok(None);
        };
        match self.resume(released.id()).await {
            // Restored without its key, which another session has.
            Ok(session) if session.record().key.is_none() => Ok(None),
            Ok(session) => Ok(Some(session)),
            Err(SessionOpenError::Unknown | SessionOpenError::Ended(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds the connection of `options` to an existing session.
    async fn connect_existing(
        &self,
        session: ActiveSession,
        options: &OpenOptions,
    ) -> Result<OpenedSession, SessionOpenError> {
        if let Some((name, body)) = &options.connection {
            self.put_connection(&session, name, body).await?;
        }
        Ok(OpenedSession::existing(session))
    }

    /// Creates the session of `options`. Never returns an existing one.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if a live session has its key, or as [`Sessions::open`].
    pub async fn open_new(&self, options: &OpenOptions) -> Result<OpenedSession, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.create(options).await {
                Err(SessionOpenError::Store(StoreError::Taken { by })) => {
                    match self.resume(by).await {
                        // It had expired.
                        Err(SessionOpenError::Unknown | SessionOpenError::Ended(_)) => {}
                        _ => return Err(StoreError::Taken { by }.into()),
                    }
                }
                created => return created,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Revives an ended session under its id, without its state; the loss must be reported. A live
    /// session is returned as it is.
    ///
    /// # Errors
    /// [`SessionOpenError::Unknown`] if this owner has no such session, [`StoreError::Taken`] if
    /// another session has its key now, or as [`Sessions::open`].
    pub async fn revive(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<OpenedSession, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.store.load(id).await?;
            let seen =
                found.filter(|record| record.owner == *owner).ok_or(SessionOpenError::Unknown)?;
            let revived = if seen.is_live() {
                self.resume(id).await.map(OpenedSession::existing)
            } else {
                self.revive_tombstone(&seen).await
            };
            match revived {
                // Another caller revived it, or ended it again.
                Err(SessionOpenError::Store(StoreError::Stale) | SessionOpenError::Ended(_)) => {}
                revived => return revived,
            }
        }
        Err(StoreError::Stale.into())
    }

    async fn revive_tombstone(
        &self,
        tombstone: &Record,
    ) -> Result<OpenedSession, SessionOpenError> {
        if let Some(holder) = self.hand_over.successor() {
            return Err(SessionOpenError::HeldElsewhere { holder });
        }
        let reservation = self.reserve(&tombstone.owner, false).await?;
        let lease = self.lease()?;
        let watch = self.table.watch(tombstone.id);
        let pending = self.backlog.begin_claim(tombstone.id, Reachability::Existing);
        let mut record = tombstone.clone();
        record.revive(self.clock.now());
        match self.store.replace(&record, ExpectedRevision::revision(tombstone), Some(lease)).await
        {
            Ok(revision) => record.revision = revision,
            Err(error) => {
                if !matches!(error, StoreError::Unavailable { .. }) {
                    pending.settle();
                }
                return Err(error.into());
            }
        }
        record.holder = Some(lease);
        let session = self.insert_and_enter(record, &watch, reservation)?;
        pending.settle();
        tracing::debug!(session = %session.id(), generation = %session.record().generation, "session revived");
        Ok(OpenedSession::existing(session))
    }

    /// Enters the session that is held here under this key. The owner is part of the digest.
    pub(super) fn enter_held_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<ActiveSession>, SessionOpenError> {
        let now = self.clock.reading();
        self.check_lease(now)?;
        let held = self.table.by_key(&key.digest(owner, agent));
        Ok(held.and_then(|session| enter_without_wait(session, now)))
    }

    /// Enters a held session. An expired one ends now instead of at the next sweep, and an end that
    /// was cancelled is completed.
    pub(super) async fn enter(
        &self,
        session: &Arc<Session>,
    ) -> Result<Option<ActiveSession>, SessionOpenError> {
        let reason = session.close_if_due(self.clock.now()).or_else(|| session.closing_reason());
        match reason {
            Some(reason) => self.finish(session, reason).await.map(|()| None),
            None => Ok(session.clone().enter()),
        }
    }

    async fn create(&self, options: &OpenOptions) -> Result<OpenedSession, SessionOpenError> {
        self.leave_creation(options).await?;
        let reservation = self.reserve(&options.owner, options.provisional).await?;
        let settings = self.settings();
        let expiry = options.expiry.unwrap_or(settings.expiry);
        let mut record = Record::new(options.owner.clone(), expiry, self.clock.now());
        record.id = options.id.unwrap_or(record.id);
        if let Some((agent, key)) = &options.name {
            record = record.with_key(agent.clone(), key.clone());
        }
        if options.provisional {
            record.provisional = true;
            record.confirmed_expiry = Some(expiry.into());
            record.expiry = Expiry { idle: Some(settings.provisional), ..expiry };
        }
        record.holder = Some(self.lease()?);
        let watch = self.table.watch(record.id);
        // The client that chose the id can find the session by it, even if this call is cancelled.
        let reachability =
            if options.id.is_some() { Reachability::Existing } else { Reachability::Unpublished };
        let pending = self.backlog.begin_claim(record.id, reachability);
        let connection = options.connection.as_ref().map(|(name, body)| {
            let (name, session) = (name.hash(&options.owner), record.id);
            Connection { name, session, last_used: record.created, body: body.clone() }
        });
        match self.store.insert(&record, connection.as_ref()).await {
            Ok(generation) => record.generation = generation,
            Err(error) => {
                if matches!(error, StoreError::Taken { .. }) {
                    pending.settle();
                }
                return Err(error.into());
            }
        }
        let session = self.insert_and_enter(record, &watch, reservation)?;
        pending.settle();
        tracing::debug!(session = %session.id(), "session opened");
        Ok(OpenedSession::new(session))
    }

    /// Claims a session of the store, and enters it.
    pub(super) async fn resume(&self, id: SessionId) -> Result<ActiveSession, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let session = self.claim(id).await?;
            if let Some(session) = self.enter(&session).await? {
                return Ok(session);
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Claims a session of the store, and adds it to the table.
    ///
    /// It does not check the expiry. That is done in one place, when a user enters, so that no
    /// caller ends a session that another one has just entered.
    pub(super) async fn claim(&self, id: SessionId) -> Result<Arc<Session>, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let lease = self.lease()?;
            let is_releasing = self.releasing.contains(id);
            if let Some(held) = self.table.by_id(id)
                && !(is_releasing && held.is_closed())
            {
                return Ok(held);
            }
            if is_releasing {
                let holder = self.hand_over.successor().unwrap_or_else(|| self.holder.clone());
                return Err(SessionOpenError::HeldElsewhere { holder });
            }
            self.leave_claim(id).await?;
            let watch = self.table.watch(id);
            let pending = self.backlog.begin_claim(id, Reachability::Existing);
            match self.store.claim(id, lease).await {
                Ok(record) => {
                    if let Some(session) = self.insert_claimed(record, &watch, None)? {
                        pending.settle();
                        self.report_superseded(&session).await?;
                        self.claimed.fetch_add(1, Ordering::Relaxed);
                        tracing::debug!(session = %id, "session claimed from the store");
                        return Ok(session);
                    }
                }
                Err(StoreError::HeldBy { holder }) => {
                    pending.settle();
                    if holder.id != self.holder.id
                        || !self.release_predecessor_lease(id, lease).await?
                    {
                        return Err(SessionOpenError::HeldElsewhere { holder });
                    }
                }
                Err(StoreError::Missing) => {
                    pending.settle();
                    match self.store.load(id).await? {
                        None => match self.released.get(id) {
                            Some(forgotten) if self.settings().restore => {
                                self.restore(&forgotten).await?;
                            }
                            _ => return Err(SessionOpenError::Unknown),
                        },
                        Some(over) if !over.is_live() => {
                            return Err(SessionOpenError::Ended(over.into()));
                        }
                        // Revived between the claim and the load.
                        Some(_) => {}
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Releases the lease that an earlier process with our holder id has on a session. No two live
    /// processes share an id, so there is no need to wait for that lease to expire. Returns whether
    /// the claim is worth another attempt.
    async fn release_predecessor_lease(
        &self,
        id: SessionId,
        lease: Lease,
    ) -> Result<bool, SessionOpenError> {
        let held = self.store.load(id).await?.and_then(|record| record.holder);
        let Some(held) = held else { return Ok(true) };
        // A later lease is our own, acquired meanwhile.
        if held.holder == lease.holder && held.epoch < lease.epoch {
            self.store.release_lease(held).await?;
        }
        Ok(held.holder == lease.holder)
    }

    /// Holds and enters a session that was created under our lease.
    fn insert_and_enter(
        &self,
        record: Record,
        watch: &RemovalWatch<'_>,
        reservation: Reservation<'_>,
    ) -> Result<ActiveSession, SessionOpenError> {
        match self.insert_claimed(record, watch, Some(reservation))?.and_then(Session::enter) {
            Some(session) => Ok(session),
            None => Err(SessionOpenError::Unknown),
        }
    }

    /// Adds a claimed session to the table. `None` if it was released meanwhile.
    ///
    /// The answer of the store may have taken long. Only if our lease is still valid now, no other
    /// process can have claimed the session since.
    fn insert_claimed(
        &self,
        record: Record,
        watch: &RemovalWatch<'_>,
        reservation: Option<Reservation<'_>>,
    ) -> Result<Option<Arc<Session>>, SessionOpenError> {
        let lease: Lease = self.lease()?;
        if record.holder != Some(lease) {
            return Err(SessionOpenError::LeaseLost);
        }
        let handles = self.released.get(record.id).map(|released| released.handles());
        let insert = |record| self.table.insert(record, watch, reservation, &self.clock);
        Ok(self.released.settle(record, insert).map(|(session, earlier)| {
            if let Some(earlier) = earlier {
                self.report_end(&earlier, EndReason::Closed);
            }
            for hash in handles.into_iter().flatten() {
                self.table.note_issued_handle(&session, hash);
            }
            session
        }))
    }

    /// Marks the session as used by a handle. A provisional session becomes permanent.
    pub(super) async fn confirm(&self, session: &Session) -> Result<(), SessionOpenError> {
        let otherwise = self.settings().expiry;
        self.change(session, |record| {
            record.handle_used = true;
            if std::mem::take(&mut record.provisional) {
                record.expiry = record.confirmed_expiry.take().map_or(otherwise, |expiry| *expiry);
            }
        })
        .await
    }

    /// Reserves a place for one more session of `owner`. Ends a provisional session if that is
    /// needed.
    async fn reserve(
        &self,
        owner: &Owner,
        provisional: bool,
    ) -> Result<Reservation<'_>, SessionOpenError> {
        let limits = self.settings().sessions;
        for _ in 0..MAX_ATTEMPTS {
            match self.table.reserve(owner, limits, provisional) {
                ReserveOutcome::Reserved(reservation) => return Ok(reservation),
                ReserveOutcome::Full(Some(oldest)) => {
                    if oldest.close_if_unused(EndReason::Evicted) {
                        self.finish(&oldest, EndReason::Evicted).await?;
                    }
                }
                ReserveOutcome::Full(None) => break,
            }
        }
        let fewer = limits.per_owner.min(limits.provisional_per_owner);
        Err(SessionOpenError::AtCapacity {
            limit: if provisional { fewer } else { limits.per_owner },
        })
    }
}

/// Enters a held session that has not expired.
pub(super) fn enter_without_wait(
    session: Arc<Session>,
    now: ClockReading,
) -> Option<ActiveSession> {
    session.expiry_reason(now.wall).map_or_else(|| session.enter(), |_| None)
}

impl OpenedSession {
    /// Wraps a session that existed before.
    fn existing(session: ActiveSession) -> Self {
        Self::with(session, Origin::Existing)
    }

    /// Wraps a session that was just created.
    fn new(session: ActiveSession) -> Self {
        Self::with(session, Origin::New)
    }

    /// Wraps a session. An unacknowledged loss takes precedence over `otherwise`.
    fn with(session: ActiveSession, otherwise: Origin) -> Self {
        let origin = session
            .latest_unacknowledged_loss()
            .map_or(otherwise, |generation: Generation| Origin::Lost(generation));
        Self { session, origin }
    }
}
