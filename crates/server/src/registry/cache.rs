//! Cache of sessions: names, users and times of last use.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustc_hash::FxBuildHasher;
use stayput_core::{Digest, EndReason, HandleHash, Owner, Record, SessionId, Timestamp};
use stayput_sync::Mutex;

use super::SessionRegistry;

/// Session that was used in this process recently.
pub(crate) struct CachedSession {
    id: SessionId,
    owner: Owner,
    record: Mutex<Arc<Record>>,
    users: AtomicUsize,
    /// Time of last use in this process, in milliseconds.
    last_used: AtomicU64,
    /// Time of last use that the store knows, in milliseconds.
    last_written: AtomicU64,
}

impl CachedSession {
    fn new(record: Record) -> Self {
        let used = record.last_used.as_millis();
        Self {
            id: record.id,
            owner: record.owner.clone(),
            record: Mutex::new(Arc::new(record)),
            users: AtomicUsize::new(0),
            last_used: AtomicU64::new(used),
            last_written: AtomicU64::new(used),
        }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the record as it was last loaded.
    pub(crate) fn record(&self) -> Arc<Record> {
        self.record.lock().clone()
    }

    fn update(&self, newer: Record) {
        self.last_used.fetch_max(newer.last_used.as_millis(), Ordering::AcqRel);
        let mut known = self.record.lock();
        if newer.revision >= known.revision {
            *known = Arc::new(newer);
        }
    }

    /// Returns the time of last use known to this process.
    pub(crate) fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Acquire))
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Returns the reason if the session has expired. A session in use does not idle out.
    pub(super) fn due(&self, now: Timestamp) -> Option<EndReason> {
        let record = self.record();
        let used = if self.is_in_use() { now } else { self.last_used() };
        record.expiry.due(record.created, used, now)
    }

    /// Returns the time of last use if the store does not know it yet. A session in use counts as used now.
    pub(super) fn unwritten(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_in_use() {
            self.last_used.fetch_max(now.as_millis(), Ordering::AcqRel);
        }
        let used = self.last_used.load(Ordering::Acquire);
        (used > self.last_written.load(Ordering::Acquire)).then(|| Timestamp::from_millis(used))
    }

    pub(super) fn mark_written(&self, used: Timestamp) {
        self.last_written.fetch_max(used.as_millis(), Ordering::AcqRel);
    }
}

impl fmt::Debug for CachedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedSession({})", self.id)
    }
}

/// Guard of a session in use. The session does not idle out while a guard exists.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    registry: Arc<SessionRegistry>,
    session: Arc<CachedSession>,
    /// Whether the record was loaded from the store for this use.
    pub(crate) just_loaded: bool,
    /// Whether the session was created for this use.
    pub(crate) is_new: bool,
}

impl SessionGuard {
    pub(crate) fn new(
        registry: &Arc<SessionRegistry>,
        session: Arc<CachedSession>,
        just_loaded: bool,
    ) -> Self {
        session.users.fetch_add(1, Ordering::AcqRel);
        Self { registry: registry.clone(), session, just_loaded, is_new: false }
    }

    pub(crate) fn session(&self) -> &Arc<CachedSession> {
        &self.session
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.session.last_used.fetch_max(self.registry.now().as_millis(), Ordering::AcqRel);
        self.session.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Key under which a session is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheKey {
    Handle(HandleHash),
    Key(Digest),
    Connection(HandleHash),
}

/// All cached sessions. The lock is held for map lookups only.
#[derive(Debug, Default)]
pub(super) struct SessionCache(Mutex<CacheMaps>);

#[derive(Debug, Default)]
struct CacheMaps {
    sessions: HashMap<SessionId, Arc<CachedSession>>,
    by_key: HashMap<CacheKey, Arc<CachedSession>>,
    /// Connections that were verified recently.
    verified: HashMap<HandleHash, Arc<VerifiedConnection>>,
    /// The same connections by `Mcp-Session-Id`, to save hashing it for every request. Only ids that the server made
    /// are inserted, so a fast hasher is safe.
    by_connection_id: HashMap<ConnectionId, (Owner, Arc<VerifiedConnection>), FxBuildHasher>,
    /// Live sessions of each owner: an upper bound.
    counts: HashMap<Owner, OwnerCount>,
}

/// Connection that the store confirmed recently.
#[derive(Debug)]
struct VerifiedConnection {
    hash: HandleHash,
    /// Time until which the store need not be asked, in milliseconds.
    until: AtomicU64,
}

impl VerifiedConnection {
    fn is_valid(&self, now: Timestamp) -> bool {
        self.until.load(Ordering::Acquire) > now.as_millis()
    }
}

/// `Mcp-Session-Id`, which is a secret.
#[derive(PartialEq, Eq, Hash)]
struct ConnectionId(Box<[u8]>);

impl Borrow<[u8]> for ConnectionId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionId(…)")
    }
}

/// Count of an owner's live sessions.
#[derive(Clone, Copy, Debug, Default)]
struct OwnerCount {
    live: usize,
    /// Time until which the owner counts as being at its limit.
    full_until: Timestamp,
}

impl SessionCache {
    pub(super) fn get(&self, key: CacheKey) -> Option<Arc<CachedSession>> {
        self.0.lock().by_key.get(&key).cloned()
    }

    pub(super) fn by_id(&self, id: SessionId) -> Option<Arc<CachedSession>> {
        self.0.lock().sessions.get(&id).cloned()
    }

    /// Caches a record that was just loaded, under its id and `key`.
    pub(super) fn insert(&self, record: Record, key: Option<CacheKey>) -> Arc<CachedSession> {
        let mut maps = self.0.lock();
        let session = match maps.sessions.get(&record.id) {
            Some(session) => {
                session.update(record);
                session.clone()
            }
            None => {
                let session = Arc::new(CachedSession::new(record));
                maps.sessions.insert(session.id, session.clone());
                session
            }
        };
        if let Some(key) = key {
            maps.by_key.insert(key, session.clone());
        }
        session
    }

    pub(super) fn update(&self, record: &Record) {
        if let Some(session) = self.0.lock().sessions.get(&record.id) {
            session.update(record.clone());
        }
    }

    pub(super) fn add_key(&self, session: &Arc<CachedSession>, key: CacheKey) {
        self.0.lock().by_key.insert(key, session.clone());
    }

    pub(super) fn remove_key(&self, key: CacheKey) {
        let mut maps = self.0.lock();
        maps.by_key.remove(&key);
        if let CacheKey::Connection(hash) = key
            && let Some(connection) = maps.verified.remove(&hash)
        {
            connection.until.store(0, Ordering::Release);
        }
    }

    pub(super) fn remove(&self, id: SessionId) {
        let mut maps = self.0.lock();
        if maps.sessions.remove(&id).is_some() {
            maps.by_key.retain(|_, session| session.id != id);
        }
    }

    pub(super) fn is_verified(&self, hash: HandleHash, now: Timestamp) -> bool {
        self.0.lock().verified.get(&hash).is_some_and(|connection| connection.is_valid(now))
    }

    pub(super) fn mark_verified(&self, hash: HandleHash, until: Timestamp) {
        let mut maps = self.0.lock();
        let connection = maps
            .verified
            .entry(hash)
            .or_insert_with(|| Arc::new(VerifiedConnection { hash, until: AtomicU64::default() }));
        connection.until.store(until.as_millis(), Ordering::Release);
    }

    /// Returns the connection with this `Mcp-Session-Id` if `owner` owns it and it was verified recently.
    pub(super) fn verified_connection(
        &self,
        owner: &Owner,
        id: &[u8],
        now: Timestamp,
    ) -> Option<HandleHash> {
        let maps = self.0.lock();
        let (known_owner, connection) = maps.by_connection_id.get(id)?;
        (known_owner == owner && connection.is_valid(now)).then_some(connection.hash)
    }

    /// Caches the `Mcp-Session-Id` of a verified connection.
    pub(super) fn set_connection_id(&self, owner: &Owner, id: &[u8], hash: HandleHash) {
        let mut maps = self.0.lock();
        if let Some(connection) = maps.verified.get(&hash).cloned() {
            maps.by_connection_id.insert(ConnectionId(id.into()), (owner.clone(), connection));
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<CachedSession>> {
        self.0.lock().sessions.values().cloned().collect()
    }

    pub(super) fn is_in_use(&self, id: SessionId) -> bool {
        self.0.lock().sessions.get(&id).is_some_and(|session| session.is_in_use())
    }

    /// Removes sessions not used since `before` and connections that must be verified again.
    pub(super) fn prune(&self, before: Timestamp, now: Timestamp) {
        let mut maps = self.0.lock();
        let CacheMaps { sessions, by_key, verified, by_connection_id, .. } = &mut *maps;
        let stays = |it: &CachedSession| {
            it.is_in_use() || it.last_used() > before || it.unwritten(now).is_some()
        };
        sessions.retain(|_, it| stays(it));
        by_key.retain(|_, it| sessions.contains_key(&it.id));
        verified.retain(|_, connection| connection.is_valid(now));
        by_connection_id.retain(|_, (_, connection)| connection.is_valid(now));
    }

    /// Counts one more session of an owner; `false` if the owner is at its limit.
    pub(super) fn try_reserve(&self, owner: &Owner, limit: usize) -> bool {
        let mut maps = self.0.lock();
        let count = maps.counts.entry(owner.clone()).or_default();
        let room = count.live < limit;
        count.live += usize::from(room);
        room
    }

    pub(super) fn release(&self, owner: &Owner) {
        let mut maps = self.0.lock();
        if let Some(count) = maps.counts.get_mut(owner) {
            count.live = count.live.saturating_sub(1);
            if count.live == 0 {
                maps.counts.remove(owner);
            }
        }
    }

    /// Returns whether the store confirmed recently that the owner is at its limit.
    pub(super) fn is_full(&self, owner: &Owner, now: Timestamp) -> bool {
        self.0.lock().counts.get(owner).is_some_and(|count| count.full_until > now)
    }

    /// Sets the count to the number found in the store.
    pub(super) fn set_count(&self, owner: &Owner, live: usize, full_until: Timestamp) {
        self.0.lock().counts.insert(owner.clone(), OwnerCount { live, full_until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E30, E31: a cached connection id is valid for its owner only, and only until it must be verified again.
    #[test]
    fn connection_is_verified_for_its_owner_until_it_expires() {
        let [ann, bob] = ["ann", "bob"].map(|it| Owner::verified("i", it).unwrap());
        let [one, two, three] = [1, 2, 3].map(Timestamp::from_millis);
        let (cache, hash) = (SessionCache::default(), HandleHash::from_bytes([7; 32]));
        cache.set_connection_id(&ann, b"secret", hash);
        assert_eq!(cache.verified_connection(&ann, b"secret", one), None, "not verified yet");
        cache.mark_verified(hash, two);
        cache.set_connection_id(&ann, b"secret", hash);
        assert_eq!(cache.verified_connection(&ann, b"secret", one), Some(hash));
        assert_eq!(cache.verified_connection(&bob, b"secret", one), None);
        assert_eq!(cache.verified_connection(&ann, b"secre", one), None);
        assert_eq!(cache.verified_connection(&ann, b"secret", two), None);
        cache.mark_verified(hash, three);
        assert_eq!(cache.verified_connection(&ann, b"secret", two), Some(hash), "verified again");
        let shown = format!("{cache:?}");
        let bytes = format!("{:?}", b"secret");
        assert!(!shown.contains("secret") && !shown.contains(bytes.trim_matches(['[', ']'])));
        cache.remove_key(CacheKey::Connection(hash));
        assert_eq!(cache.verified_connection(&ann, b"secret", one), None, "deleted");
        cache.prune(one, one);
        assert!(cache.0.lock().by_connection_id.is_empty());
    }
}
