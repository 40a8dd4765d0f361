//! Sessions that any number of processes serve at once.
//!
//! No process holds a session: state is rows in a store, revisions order the writers, and any process can answer a
//! request. The cache keeps only which session a name refers to and when it was used. It may be out of date; every
//! answer of the store corrects it.

mod cache;
mod create;
mod sweep;
mod transport_session;

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Clock, Connection, EndReason, EventLog, ExpectedRevision, Expiry, Handle, HandleHash,
    Key, Owner, Record, SessionId, SessionOpenError, State, StateLimits, Store, StoreError,
    Timestamp,
};

use self::cache::{CacheKey, SessionCache};
pub(crate) use self::{
    cache::{CachedSession, SessionGuard},
    transport_session::TransportSession,
};

/// Limits and lifetimes of sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) expiry: Expiry,
    /// Idle time of a session that no client has confirmed yet.
    pub(crate) provisional: Duration,
    /// Time for which the tombstone of a session is kept.
    pub(crate) retention: Duration,
    pub(crate) per_owner: usize,
    pub(crate) state: StateLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            expiry: Expiry::default(),
            provisional: Duration::from_secs(2 * 60),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            per_owner: 10_000,
            state: StateLimits::default(),
        }
    }
}

/// Attempts of an optimistic write before it fails.
const MAX_ATTEMPTS: u32 = 16;

/// Time for which a connection counts as existing before the store is asked again. Another process may have ended it.
const CONNECTION_RECHECK: Duration = Duration::from_secs(1);

/// All sessions, as seen by this process.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) events: Arc<dyn EventLog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    cache: SessionCache,
}

/// Result of an attempt to end an expired session.
enum ExpireOutcome {
    Ended(Record),
    /// The session was used or changed meanwhile.
    Changed(Record),
    Missing,
}

impl SessionRegistry {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        events: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Self {
        Self { store, events, clock, settings, cache: SessionCache::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Opens the session of a handle. A handle of another owner is unknown, because the owner is part of the hash.
    pub(crate) async fn open_by_handle(
        self: &Arc<Self>,
        owner: &Owner,
        handle: &Handle,
    ) -> Result<SessionGuard, SessionOpenError> {
        let hash = handle.hash(owner);
        if let Some(guard) = self.cached(CacheKey::Handle(hash)) {
            return Ok(guard);
        }
        let record = self.store.find_by_handle(hash).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(SessionOpenError::Unknown)?;
        let record = if (record.provisional || !record.handle_used) && record.is_live() {
            self.confirm(record).await?
        } else {
            record
        };
        self.open_record(record, Some(CacheKey::Handle(hash))).await
    }

    /// Opens the live session with this key, if there is one.
    pub(crate) async fn find_by_key(
        self: &Arc<Self>,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<SessionGuard>, SessionOpenError> {
        let cache_key = CacheKey::Key(key.digest(owner, agent));
        if let Some(guard) = self.cached(cache_key) {
            return Ok(Some(guard));
        }
        let Some(record) = self.store.find_by_key(owner, agent, key).await? else {
            return Ok(None);
        };
        match self.open_record(record, Some(cache_key)).await {
            Err(SessionOpenError::Ended(_) | SessionOpenError::Unknown) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Opens the session with this id if `owner` owns it.
    pub(crate) async fn open_by_id(
        self: &Arc<Self>,
        owner: &Owner,
        id: SessionId,
    ) -> Result<SessionGuard, SessionOpenError> {
        let record = self.store.load(id).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(SessionOpenError::Unknown)?;
        self.open_record(record, None).await
    }

    /// Loads the session that a connection is attached to, live or ended.
    pub(crate) async fn connection_record(
        self: &Arc<Self>,
        hash: HandleHash,
    ) -> Result<Option<Record>, SessionOpenError> {
        let Some(connection) = self.store.load_connection(hash).await? else { return Ok(None) };
        Ok(self.store.load(connection.session).await?)
    }

    /// Returns the id of that session.
    pub(crate) async fn connection_session(
        self: &Arc<Self>,
        hash: HandleHash,
    ) -> Result<SessionId, SessionOpenError> {
        if let Some(session) = self.cache.get(CacheKey::Connection(hash)) {
            return Ok(session.id());
        }
        let connection = self.store.load_connection(hash).await?;
        connection.map(|it| it.session).ok_or(SessionOpenError::Unknown)
    }

    /// Returns the connection with this `Mcp-Session-Id` of the owner, if it was verified recently.
    pub(crate) fn verified_connection(&self, owner: &Owner, id: &[u8]) -> Option<HandleHash> {
        self.cache.verified_connection(owner, id, self.now())
    }

    /// Returns whether the connection exists. If so, caches its `Mcp-Session-Id`.
    pub(crate) async fn verify_connection_id(
        &self,
        owner: &Owner,
        id: &[u8],
        hash: HandleHash,
    ) -> Result<bool, StoreError> {
        let known = self.connection_exists(hash).await?;
        if known {
            self.cache.set_connection_id(owner, id, hash);
        }
        Ok(known)
    }

    /// Returns whether the connection was verified recently.
    fn is_verified(&self, hash: HandleHash) -> bool {
        self.cache.is_verified(hash, self.now())
    }

    /// Returns whether the connection exists. The store is asked again after [`CONNECTION_RECHECK`].
    pub(crate) async fn connection_exists(&self, hash: HandleHash) -> Result<bool, StoreError> {
        if self.is_verified(hash) {
            return Ok(true);
        }
        let now = self.now();
        let Some(known) = self.store.load_connection(hash).await? else { return Ok(false) };
        self.cache.mark_verified(hash, now.after(CONNECTION_RECHECK));
        if now.since(known.last_used) > Connection::TOUCH_INTERVAL {
            // The store keeps recently used connections of a session over older ones. A failed write is repeated
            // later.
            let _ = self.store.touch_connections(&[(hash, now)], None).await;
        }
        Ok(true)
    }

    /// Opens a cached session unless it has expired or reports a loss. The store is not asked: a session that ended
    /// elsewhere has no state, and every read that finds nothing asks the store.
    pub(crate) fn cached(self: &Arc<Self>, key: CacheKey) -> Option<SessionGuard> {
        self.use_cached(self.cache.get(key)?)
    }

    /// Does the same by id.
    pub(crate) fn cached_by_id(self: &Arc<Self>, id: SessionId) -> Option<SessionGuard> {
        self.use_cached(self.cache.by_id(id)?)
    }

    fn use_cached(self: &Arc<Self>, session: Arc<CachedSession>) -> Option<SessionGuard> {
        let over =
            session.due(self.now()).is_some() || session.record().unacknowledged_loss().is_some();
        (!over).then(|| SessionGuard::new(self, session, false))
    }

    /// Opens a session that was just loaded, unless it has ended or expired.
    pub(crate) async fn open_record(
        self: &Arc<Self>,
        mut record: Record,
        key: Option<CacheKey>,
    ) -> Result<SessionGuard, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            if !record.is_live() {
                self.cache.remove(record.id);
                return Err(SessionOpenError::Ended(record.into()));
            }
            let session = self.cache.insert(record.clone(), key);
            let Some(reason) = session.due(self.now()) else {
                return Ok(SessionGuard::new(self, session, true));
            };
            match self.expire(&record, reason).await? {
                ExpireOutcome::Ended(over) => return Err(SessionOpenError::Ended(over.into())),
                ExpireOutcome::Changed(newer) => record = newer,
                ExpireOutcome::Missing => return Err(SessionOpenError::Unknown),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Caches that a connection is attached to a session. A provisional session is not cached: its next use must load
    /// the record and confirm it.
    pub(crate) fn cache_connection(&self, session: &Arc<CachedSession>, hash: HandleHash) {
        if !session.record().provisional {
            self.cache.add_key(session, CacheKey::Connection(hash));
        }
        self.cache.mark_verified(hash, self.now().after(CONNECTION_RECHECK));
    }

    /// Deletes a connection, and ends the session that was created with it.
    pub(crate) async fn disconnect(&self, hash: HandleHash) -> Result<(), SessionOpenError> {
        if let Some(connection) = self.store.load_connection(hash).await? {
            self.store.remove_connection(hash, None).await?;
            self.cache.remove_key(CacheKey::Connection(hash));
            self.end_if_unnamed(connection.session).await?;
        }
        Ok(())
    }

    /// Returns the state of a session.
    pub(crate) fn state(&self, id: SessionId) -> State {
        State::new(self.store.clone(), id, None, self.settings.state)
    }

    /// Returns an error if the session has ended. Called when the store has no value, to tell an empty session from
    /// an ended one.
    pub(crate) async fn check_live(&self, id: SessionId) -> Result<(), SessionOpenError> {
        match self.store.load(id).await? {
            Some(record) if record.is_live() => Ok(()),
            Some(record) => {
                self.cache.remove(id);
                Err(SessionOpenError::Ended(record.into()))
            }
            None => {
                self.cache.remove(id);
                Err(SessionOpenError::Unknown)
            }
        }
    }

    /// Issues a new handle. Older handles stay valid.
    pub(crate) async fn issue_handle(
        &self,
        session: &CachedSession,
    ) -> Result<Handle, SessionOpenError> {
        let handle = Handle::generate();
        match self.store.add_handle(session.id(), handle.hash(session.owner()), None).await {
            Ok(()) => Ok(handle),
            Err(StoreError::Missing) => {
                self.check_live(session.id()).await?;
                Err(SessionOpenError::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a session.
    pub(crate) async fn end(
        &self,
        id: SessionId,
        reason: EndReason,
    ) -> Result<(), SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(record) = self.store.load(id).await?.filter(Record::is_live) else {
                self.cache.remove(id);
                return Ok(());
            };
            if self.write_end(&record, reason, ExpectedRevision::revision(&record)).await?.is_some()
            {
                return Ok(());
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Ends a session that a connection created, unless it has a key or its handle was used.
    pub(crate) async fn end_if_unnamed(&self, id: SessionId) -> Result<(), SessionOpenError> {
        match self.store.load(id).await? {
            Some(record) if record.is_live() && !record.handle_used && record.key.is_none() => {
                self.end(id, EndReason::Closed).await
            }
            _ => Ok(()),
        }
    }

    /// Ends an expired session unless it was used meanwhile.
    async fn expire(
        &self,
        record: &Record,
        reason: EndReason,
    ) -> Result<ExpireOutcome, SessionOpenError> {
        if let Some(over) = self.write_end(record, reason, ExpectedRevision::unused(record)).await?
        {
            tracing::debug!(session = %record.id, reason = reason.as_str(), "session expired");
            return Ok(ExpireOutcome::Ended(over));
        }
        Ok(match self.store.load(record.id).await? {
            Some(newer) => ExpireOutcome::Changed(newer),
            None => ExpireOutcome::Missing,
        })
    }

    /// Writes the tombstone of a session if the record is as expected. Returns the tombstone.
    async fn write_end(
        &self,
        record: &Record,
        reason: EndReason,
        seen: ExpectedRevision,
    ) -> Result<Option<Record>, SessionOpenError> {
        let mut over = record.clone();
        over.end(reason, self.now());
        match self.store.replace(&over, seen, None).await {
            Ok(revision) => over.revision = revision,
            Err(StoreError::Stale | StoreError::Missing) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        self.cache.remove(record.id);
        self.cache.release(&record.owner);
        self.events.remove_session(&record.owner, record.id).await?;
        Ok(Some(over))
    }

    /// Changes a record and stores it.
    pub(crate) async fn update_record(
        &self,
        id: SessionId,
        mut change: impl FnMut(&mut Record),
    ) -> Result<Record, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.store.load(id).await?.ok_or(SessionOpenError::Unknown)?;
            if !found.is_live() {
                return Err(SessionOpenError::Ended(found.into()));
            }
            let mut record = found.clone();
            change(&mut record);
            if record == found {
                // Another process has made the same change.
                self.cache.update(&record);
                return Ok(record);
            }
            match self.store.replace(&record, ExpectedRevision::revision(&found), None).await {
                Ok(revision) => {
                    record.revision = revision;
                    self.cache.update(&record);
                    return Ok(record);
                }
                Err(StoreError::Stale) => {}
                Err(StoreError::Missing) => return Err(SessionOpenError::Unknown),
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Confirms a session whose handle came back: a provisional session gets its full lifetime.
    async fn confirm(&self, record: Record) -> Result<Record, SessionOpenError> {
        if record.expiry.due(record.created, record.last_used, self.now()).is_some() {
            return Ok(record);
        }
        let otherwise = self.settings.expiry;
        self.update_record(record.id, |record| {
            record.handle_used = true;
            if std::mem::take(&mut record.provisional) {
                record.expiry = record.confirmed_expiry.take().map_or(otherwise, |wanted| *wanted);
            }
        })
        .await
    }

    /// Records that the client knows about the loss.
    pub(crate) async fn acknowledge_loss(&self, id: SessionId) -> Result<(), SessionOpenError> {
        self.update_record(id, |record| record.acknowledged = record.generation).await.map(drop)
    }
}
