//! Creation of sessions.

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Connection, EndReason, Expiry, Generation, HandleHash, Key, Owner, Record,
    SessionOpenError, StoreError,
};

use super::{MAX_ATTEMPTS, SessionGuard, SessionRegistry, cache::CacheKey};

/// Records read at once to count the sessions of an owner.
const COUNT_PAGE: usize = 256;

/// Time after which the sessions of an owner at its limit are counted again.
const FULL_RECHECK: Duration = Duration::from_secs(1);

impl SessionRegistry {
    /// Creates a session without a key. A provisional one ends soon unless the client comes back to it.
    pub(crate) async fn create(
        self: &Arc<Self>,
        owner: &Owner,
        provisional: bool,
    ) -> Result<SessionGuard, SessionOpenError> {
        let record = self.new_record(owner, provisional);
        self.insert(record, None).await
    }

    /// Creates the successor of an ended session. A generation above the default means that state was lost.
    pub(crate) async fn create_generation(
        self: &Arc<Self>,
        owner: &Owner,
        generation: Generation,
    ) -> Result<SessionGuard, SessionOpenError> {
        let mut record = self.new_record(owner, false);
        record.generation = generation;
        self.insert(record, None).await
    }

    /// Opens the session with this key, or creates it.
    pub(crate) async fn find_or_create(
        self: &Arc<Self>,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<SessionGuard, SessionOpenError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(found) = self.find_by_key(owner, agent, key).await? {
                return Ok(found);
            }
            let record = self.new_record(owner, false).with_key(agent.clone(), key.clone());
            let cache_key = CacheKey::Key(key.digest(owner, agent));
            match self.insert(record, Some(cache_key)).await {
                // Another process was faster.
                Err(SessionOpenError::Store(StoreError::Taken { .. })) => {}
                created => return created,
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Stores a new connection with a new session. `body` is stored for the caller.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        owner: &Owner,
        hash: HandleHash,
        body: Vec<u8>,
    ) -> Result<(), SessionOpenError> {
        let created = self.create(owner, true).await?;
        tracing::info!(session = %created.session().id(), "initialize");
        self.attach_connection(hash, &created, body).await
    }

    /// Attaches a connection to a session.
    pub(crate) async fn attach_connection(
        &self,
        hash: HandleHash,
        target: &SessionGuard,
        body: Vec<u8>,
    ) -> Result<(), SessionOpenError> {
        let used = self.now();
        let unused = Connection::stale_before(used, self.settings.expiry);
        let connection =
            Connection { name: hash, session: target.session().id(), last_used: used, body };
        self.store.put_connection(&connection, unused, None).await?;
        self.cache_connection(target.session(), hash);
        Ok(())
    }

    /// Attaches a known connection to another session.
    pub(crate) async fn switch_connection(
        &self,
        hash: HandleHash,
        target: &SessionGuard,
    ) -> Result<(), SessionOpenError> {
        let known = self.store.load_connection(hash).await?.ok_or(SessionOpenError::Unknown)?;
        self.attach_connection(hash, target, known.body).await
    }

    /// Opens the session that a connection is attached to. If that session has ended, attaches the connection to a
    /// new one, which reports the loss.
    pub(crate) async fn open_connection(
        self: &Arc<Self>,
        owner: &Owner,
        hash: HandleHash,
    ) -> Result<SessionGuard, SessionOpenError> {
        if let Some(guard) = self.cached(CacheKey::Connection(hash)) {
            return Ok(guard);
        }
        let record = self.connection_record(hash).await?;
        let record = record.filter(|it| it.owner == *owner).ok_or(SessionOpenError::Unknown)?;
        let over = match self.open_record(record, None).await {
            Ok(guard) if guard.session().record().provisional => {
                // Its first use confirms it.
                self.confirm_by_use(&guard).await?;
                self.cache_connection(guard.session(), hash);
                return Ok(guard);
            }
            Ok(guard) => {
                self.cache_connection(guard.session(), hash);
                return Ok(guard);
            }
            Err(SessionOpenError::Ended(over)) => over,
            Err(error) => return Err(error),
        };
        let closed = over.ended.is_some_and(|it| it.reason == EndReason::Closed);
        let lost = !over.provisional && !closed;
        let generation = if lost { over.generation.next() } else { Generation::default() };
        let created = self.create_generation(owner, generation).await?;
        self.switch_connection(hash, &created).await?;
        Ok(created)
    }

    async fn confirm_by_use(&self, guard: &SessionGuard) -> Result<(), SessionOpenError> {
        let expiry = self.settings.expiry;
        self.update_record(guard.session().id(), |record| {
            if std::mem::take(&mut record.provisional) {
                record.expiry = expiry;
            }
        })
        .await
        .map(drop)
    }

    fn new_record(&self, owner: &Owner, provisional: bool) -> Record {
        let mut record = Record::new(owner.clone(), self.settings.expiry, self.now());
        if provisional {
            let idle = self.settings.expiry.idle;
            let provisional_idle = self.settings.provisional;
            record.provisional = true;
            record.confirmed_expiry = Some(record.expiry.into());
            record.expiry = Expiry {
                idle: idle.map_or(Some(provisional_idle), |it| Some(it.min(provisional_idle))),
                ..record.expiry
            };
        }
        record
    }

    async fn insert(
        self: &Arc<Self>,
        mut record: Record,
        key: Option<CacheKey>,
    ) -> Result<SessionGuard, SessionOpenError> {
        self.reserve(&record.owner).await?;
        match self.store.insert(&record, None).await {
            Ok(generation) => {
                record.generation = generation;
                let mut guard = SessionGuard::new(self, self.cache.insert(record, key), true);
                guard.is_new = true;
                tracing::debug!(session = %guard.session().id(), "session opened");
                Ok(guard)
            }
            Err(error) => {
                self.cache.release(&record.owner);
                Err(error.into())
            }
        }
    }

    /// Counts one more session of an owner. At the limit, evicts the oldest unused provisional session.
    async fn reserve(self: &Arc<Self>, owner: &Owner) -> Result<(), SessionOpenError> {
        let limit = self.settings.per_owner;
        if self.cache.try_reserve(owner, limit) {
            return Ok(());
        }
        let at_capacity = SessionOpenError::AtCapacity { limit };
        if self.cache.is_full(owner, self.now()) {
            return Err(at_capacity);
        }
        // Other processes may have ended some, so count in the store.
        let (mut live, mut after, mut oldest) = (0, None, None::<Record>);
        loop {
            let page = self.store.list(Some(owner), after, COUNT_PAGE).await?;
            live += page.len();
            after = page.last().map(|record| record.id);
            let more = page.len() == COUNT_PAGE;
            let provisional = page.into_iter().filter(|it| it.provisional);
            let provisional = provisional.filter(|it| !self.cache.is_in_use(it.id));
            oldest = oldest.into_iter().chain(provisional).min_by_key(|it| it.last_used);
            if !more {
                break;
            }
        }
        if live >= limit {
            let Some(oldest) = oldest else {
                self.cache.set_count(owner, live, self.now().after(FULL_RECHECK));
                return Err(at_capacity);
            };
            self.end(oldest.id, EndReason::Evicted).await?;
            live -= 1;
        }
        self.cache.set_count(owner, live + 1, self.now());
        Ok(())
    }
}
