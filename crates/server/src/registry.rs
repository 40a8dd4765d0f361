//! Sessions that any number of processes serve at once.
//!
//! Nothing here claims a session: the state of a server is rows in a store, revisions keep writers apart, and
//! whichever process gets a request may answer it. What is remembered between requests is only where a
//! name leads and when it was used; every answer of the store can prove it wrong.

mod cache;
mod create;
mod sweep;
mod transport_session;

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Clock, Connection, EndReason, Events, Expiry, Handle, HandleHash, Key, OpenError, Owner,
    Record, Seen, SessionId, State, StateLimits, Store, StoreError, Timestamp,
};

use self::cache::{CacheKey, SessionCache};
pub(crate) use self::{
    cache::{CachedSession, SessionGuard},
    transport_session::TransportSession,
};

/// How sessions are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) expiry: Expiry,
    /// The idle time of a session that nobody asked for and nobody came back to.
    pub(crate) provisional: Duration,
    /// How long it is remembered that a session is over.
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

/// How often something begins again when others write first.
const MAX_ATTEMPTS: u32 = 16;

/// How long it is taken for granted that a connection was not ended by another process.
const CONNECTION_RECHECK: Duration = Duration::from_secs(1);

/// All sessions, as this process sees them.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    cache: SessionCache,
}

/// What became of a session that was to end.
enum ExpireOutcome {
    Ended(Record),
    /// Somebody used or changed it meanwhile.
    Changed(Record),
    Missing,
}

impl SessionRegistry {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        events: Arc<dyn Events>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Self {
        Self { store, events, clock, settings, cache: SessionCache::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The session that a handle of this owner leads to. One of somebody else is as unknown as one that
    /// never was: the owner is part of what is looked for.
    pub(crate) async fn open_by_handle(
        self: &Arc<Self>,
        owner: &Owner,
        handle: &Handle,
    ) -> Result<SessionGuard, OpenError> {
        let hash = handle.hash(owner);
        if let Some(guard) = self.cached(CacheKey::Handle(hash)) {
            return Ok(guard);
        }
        let record = self.store.find_handle(hash).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(OpenError::Unknown)?;
        let record = if (record.provisional || !record.named) && record.is_live() {
            self.confirm(record).await?
        } else {
            record
        };
        self.open_record(record, Some(CacheKey::Handle(hash))).await
    }

    /// The live session with this key, if there is one.
    pub(crate) async fn find_by_key(
        self: &Arc<Self>,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<SessionGuard>, OpenError> {
        let cache_key = CacheKey::Key(key.digest(owner, agent));
        if let Some(guard) = self.cached(cache_key) {
            return Ok(Some(guard));
        }
        let Some(record) = self.store.find(owner, agent, key).await? else { return Ok(None) };
        match self.open_record(record, Some(cache_key)).await {
            Err(OpenError::Over(_) | OpenError::Unknown) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The session with this id, for its owner.
    pub(crate) async fn open_by_id(
        self: &Arc<Self>,
        owner: &Owner,
        id: SessionId,
    ) -> Result<SessionGuard, OpenError> {
        let record = self.store.load(id).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(OpenError::Unknown)?;
        self.open_record(record, None).await
    }

    /// The session that a connection of this owner leads to; over or not.
    pub(crate) async fn connection_record(
        self: &Arc<Self>,
        name: HandleHash,
    ) -> Result<Option<Record>, OpenError> {
        let Some(connection) = self.store.connection(name).await? else { return Ok(None) };
        Ok(self.store.load(connection.session).await?)
    }

    /// The id of that session.
    pub(crate) async fn connection_session(
        self: &Arc<Self>,
        name: HandleHash,
    ) -> Result<SessionId, OpenError> {
        if let Some(session) = self.cache.get(CacheKey::Connection(name)) {
            return Ok(session.id());
        }
        let led = self.store.connection(name).await?;
        led.map(|it| it.session).ok_or(OpenError::Unknown)
    }

    /// The connection that an owner calls so, if it was there a moment ago.
    pub(crate) fn verified_connection(&self, owner: &Owner, id: &[u8]) -> Option<HandleHash> {
        self.cache.verified_connection(owner, id, self.now())
    }

    /// Whether there is this connection, which an owner calls so.
    pub(crate) async fn verify_connection_id(
        &self,
        owner: &Owner,
        id: &[u8],
        name: HandleHash,
    ) -> Result<bool, StoreError> {
        let known = self.connection_exists(name).await?;
        if known {
            self.cache.set_connection_id(owner, id, name);
        }
        Ok(known)
    }

    /// Whether there was a connection of this name a moment ago.
    fn is_verified(&self, name: HandleHash) -> bool {
        self.cache.is_verified(name, self.now())
    }

    /// Whether there is a connection of this name. It is asked again after a while: another process may
    /// have ended it.
    pub(crate) async fn connection_exists(&self, name: HandleHash) -> Result<bool, StoreError> {
        if self.is_verified(name) {
            return Ok(true);
        }
        let now = self.now();
        let Some(known) = self.store.connection(name).await? else { return Ok(false) };
        self.cache.mark_verified(name, now.after(CONNECTION_RECHECK));
        if now.since(known.used) > Connection::NOTED {
            // Else others that lead to the same session would outlive it. What fails now is noted later.
            let _ = self.store.touch_connections(&[(name, now)], None).await;
        }
        Ok(true)
    }

    /// Uses what is known of a name, if that still can be true. Nothing is asked: a session that is over
    /// has no state, and every look at one that seems empty asks the store.
    pub(crate) fn cached(self: &Arc<Self>, key: CacheKey) -> Option<SessionGuard> {
        self.use_cached(self.cache.get(key)?)
    }

    /// The same for an id.
    pub(crate) fn cached_by_id(self: &Arc<Self>, id: SessionId) -> Option<SessionGuard> {
        self.use_cached(self.cache.by_id(id)?)
    }

    fn use_cached(self: &Arc<Self>, session: Arc<CachedSession>) -> Option<SessionGuard> {
        let over = session.due(self.now()).is_some() || session.record().lost().is_some();
        (!over).then(|| SessionGuard::new(self, session, false))
    }

    /// Uses a session that was just read, if it is not over.
    pub(crate) async fn open_record(
        self: &Arc<Self>,
        mut record: Record,
        key: Option<CacheKey>,
    ) -> Result<SessionGuard, OpenError> {
        for _ in 0..MAX_ATTEMPTS {
            if !record.is_live() {
                self.cache.remove(record.id);
                return Err(OpenError::Over(record.into()));
            }
            let session = self.cache.insert(record.clone(), key);
            let Some(reason) = session.due(self.now()) else {
                return Ok(SessionGuard::new(self, session, true));
            };
            match self.expire(&record, reason).await? {
                ExpireOutcome::Ended(over) => return Err(OpenError::Over(over.into())),
                ExpireOutcome::Changed(newer) => record = newer,
                ExpireOutcome::Missing => return Err(OpenError::Unknown),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Remembers that a connection leads to a session. Not to one that nobody wanted yet: whoever does
    /// looks into the store, and lets it live as long as others.
    pub(crate) fn cache_connection(&self, session: &Arc<CachedSession>, name: HandleHash) {
        if !session.record().provisional {
            self.cache.add_key(session, CacheKey::Connection(name));
        }
        self.cache.mark_verified(name, self.now().after(CONNECTION_RECHECK));
    }

    /// A connection is over, and the session that was made with it, too.
    pub(crate) async fn disconnect(&self, name: HandleHash) -> Result<(), OpenError> {
        if let Some(connection) = self.store.connection(name).await? {
            self.store.remove_connection(name, None).await?;
            self.cache.remove_key(CacheKey::Connection(name));
            self.end_if_unnamed(connection.session).await?;
        }
        Ok(())
    }

    /// The values of a session.
    pub(crate) fn state(&self, id: SessionId) -> State {
        State::new(self.store.clone(), id, None, self.settings.state)
    }

    /// Why the store has nothing of a session that was there: to be asked when something seems missing.
    pub(crate) async fn check_live(&self, id: SessionId) -> Result<(), OpenError> {
        match self.store.load(id).await? {
            Some(record) if record.is_live() => Ok(()),
            Some(record) => {
                self.cache.remove(id);
                Err(OpenError::Over(record.into()))
            }
            None => {
                self.cache.remove(id);
                Err(OpenError::Unknown)
            }
        }
    }

    /// A new handle for a session. Older ones stay good.
    pub(crate) async fn issue_handle(&self, session: &CachedSession) -> Result<Handle, OpenError> {
        let handle = Handle::generate();
        match self.store.add_handle(session.id(), handle.hash(session.owner()), None).await {
            Ok(()) => Ok(handle),
            Err(StoreError::Missing) => {
                self.check_live(session.id()).await?;
                Err(OpenError::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a session for good.
    pub(crate) async fn end(&self, id: SessionId, reason: EndReason) -> Result<(), OpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(record) = self.store.load(id).await?.filter(Record::is_live) else {
                self.cache.remove(id);
                return Ok(());
            };
            if self.write_end(&record, reason, Seen::revision(&record)).await?.is_some() {
                return Ok(());
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Ends a session that a connection made, unless somebody else counts on it.
    pub(crate) async fn end_if_unnamed(&self, id: SessionId) -> Result<(), OpenError> {
        match self.store.load(id).await? {
            Some(record) if record.is_live() && !record.named && record.key.is_none() => {
                self.end(id, EndReason::Closed).await
            }
            _ => Ok(()),
        }
    }

    /// Ends a session whose time has come, unless somebody came back to it.
    async fn expire(&self, record: &Record, reason: EndReason) -> Result<ExpireOutcome, OpenError> {
        if let Some(over) = self.write_end(record, reason, Seen::unused(record)).await? {
            return Ok(ExpireOutcome::Ended(over));
        }
        Ok(match self.store.load(record.id).await? {
            Some(newer) => ExpireOutcome::Changed(newer),
            None => ExpireOutcome::Missing,
        })
    }

    /// Writes the end of a session, if it is as it was seen; gives the tombstone.
    async fn write_end(
        &self,
        record: &Record,
        reason: EndReason,
        seen: Seen,
    ) -> Result<Option<Record>, OpenError> {
        let mut over = record.clone();
        over.end(reason, self.now());
        match self.store.replace(&over, seen, None).await {
            Ok(revision) => over.revision = revision,
            Err(StoreError::Stale | StoreError::Missing) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        self.cache.remove(record.id);
        self.cache.release(&record.owner);
        self.events.forget(&record.owner, record.id).await?;
        Ok(Some(over))
    }

    /// Changes a record, durably.
    pub(crate) async fn update_record(
        &self,
        id: SessionId,
        mut change: impl FnMut(&mut Record),
    ) -> Result<Record, OpenError> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.store.load(id).await?.ok_or(OpenError::Unknown)?;
            if !found.is_live() {
                return Err(OpenError::Over(found.into()));
            }
            let mut record = found.clone();
            change(&mut record);
            if record == found {
                // Somebody else has done it.
                self.cache.update(&record);
                return Ok(record);
            }
            match self.store.replace(&record, Seen::revision(&found), None).await {
                Ok(revision) => {
                    record.revision = revision;
                    self.cache.update(&record);
                    return Ok(record);
                }
                Err(StoreError::Stale) => {}
                Err(StoreError::Missing) => return Err(OpenError::Unknown),
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// A handle came back: somebody counts on the session, and one that nobody asked for lives as long as
    /// others.
    async fn confirm(&self, record: Record) -> Result<Record, OpenError> {
        if record.expiry.due(record.created, record.last_used, self.now()).is_some() {
            return Ok(record);
        }
        let otherwise = self.settings.expiry;
        self.update_record(record.id, |record| {
            record.named = true;
            if std::mem::take(&mut record.provisional) {
                record.expiry = record.wanted.take().map_or(otherwise, |wanted| *wanted);
            }
        })
        .await
    }

    /// Notes that its client was told what it lost.
    pub(crate) async fn acknowledge_loss(&self, id: SessionId) -> Result<(), OpenError> {
        self.update_record(id, |record| record.told = record.generation).await.map(drop)
    }
}
