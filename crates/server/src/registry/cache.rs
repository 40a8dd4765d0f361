//! What this process remembers of sessions: where names lead, who is inside, when they were used.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use stayput_core::{
    BuildQuick, Digest, EndReason, HandleHash, Owner, Record, SessionId, Timestamp,
};

use super::SessionRegistry;

/// A session that was used here not long ago.
pub(crate) struct CachedSession {
    id: SessionId,
    owner: Owner,
    record: Mutex<Arc<Record>>,
    users: AtomicUsize,
    /// When it was last used here.
    last_used: AtomicU64,
    /// The time of use that the store knows.
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

    /// What was last read of it.
    pub(crate) fn record(&self) -> Arc<Record> {
        lock(&self.record).clone()
    }

    fn update(&self, newer: Record) {
        self.last_used.fetch_max(newer.last_used.as_millis(), Ordering::AcqRel);
        let mut known = lock(&self.record);
        if newer.revision >= known.revision {
            *known = Arc::new(newer);
        }
    }

    /// When it was last used, as far as is known here.
    pub(crate) fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Acquire))
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Why it is over, if it is. Who is inside keeps it from idling.
    pub(super) fn due(&self, now: Timestamp) -> Option<EndReason> {
        let record = self.record();
        let used = if self.is_in_use() { now } else { self.last_used() };
        record.expiry.due(record.created, used, now)
    }

    /// The time of use that the store does not know yet. Whoever is inside uses it all the time.
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

/// A session in use. While one of these lives, it does not idle out.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    registry: Arc<SessionRegistry>,
    session: Arc<CachedSession>,
    /// Whether its record was read from the store for this very use.
    pub(crate) just_loaded: bool,
}

impl SessionGuard {
    pub(crate) fn new(
        registry: &Arc<SessionRegistry>,
        session: Arc<CachedSession>,
        just_loaded: bool,
    ) -> Self {
        session.users.fetch_add(1, Ordering::AcqRel);
        Self { registry: registry.clone(), session, just_loaded }
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

/// What leads to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheKey {
    Handle(HandleHash),
    Key(Digest),
    Connection(HandleHash),
}

/// All that is remembered. One lock, session for a look into a map.
#[derive(Debug, Default)]
pub(super) struct SessionCache(Mutex<Maps>);

#[derive(Debug, Default)]
struct Maps {
    sessions: HashMap<SessionId, Arc<CachedSession>>,
    by_key: HashMap<CacheKey, Arc<CachedSession>>,
    /// Connections that are taken for granted.
    verified: HashMap<HandleHash, Arc<VerifiedConnection>>,
    /// The same by what their clients call them, so that not every request costs a digest. A server made these ids, and
    /// only those of connections that it has come here.
    by_connection_id: HashMap<ConnectionId, (Owner, Arc<VerifiedConnection>), BuildQuick>,
    /// How many live sessions each owner has, at most.
    counts: HashMap<Owner, OwnerCount>,
}

/// A connection that was there a moment ago.
#[derive(Debug)]
struct VerifiedConnection {
    hash: HandleHash,
    /// Until when that is enough.
    until: AtomicU64,
}

impl VerifiedConnection {
    fn is_valid(&self, now: Timestamp) -> bool {
        self.until.load(Ordering::Acquire) > now.as_millis()
    }
}

/// `Mcp-Session-Id` as a client says it, which is a secret.
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

/// What is known of how many sessions an owner has.
#[derive(Clone, Copy, Debug, Default)]
struct OwnerCount {
    live: usize,
    /// Until when it is believed that there is no place.
    full_until: Timestamp,
}

impl SessionCache {
    pub(super) fn get(&self, key: CacheKey) -> Option<Arc<CachedSession>> {
        lock(&self.0).by_key.get(&key).cloned()
    }

    pub(super) fn by_id(&self, id: SessionId) -> Option<Arc<CachedSession>> {
        lock(&self.0).sessions.get(&id).cloned()
    }

    /// Remembers a record that was just read, and what led to it.
    pub(super) fn insert(&self, record: Record, key: Option<CacheKey>) -> Arc<CachedSession> {
        let mut maps = lock(&self.0);
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
        if let Some(session) = lock(&self.0).sessions.get(&record.id) {
            session.update(record.clone());
        }
    }

    pub(super) fn add_key(&self, session: &Arc<CachedSession>, key: CacheKey) {
        lock(&self.0).by_key.insert(key, session.clone());
    }

    pub(super) fn remove_key(&self, key: CacheKey) {
        let mut maps = lock(&self.0);
        maps.by_key.remove(&key);
        if let CacheKey::Connection(hash) = key
            && let Some(connection) = maps.verified.remove(&hash)
        {
            connection.until.store(0, Ordering::Release);
        }
    }

    pub(super) fn remove(&self, id: SessionId) {
        let mut maps = lock(&self.0);
        if maps.sessions.remove(&id).is_some() {
            maps.by_key.retain(|_, session| session.id != id);
        }
    }

    pub(super) fn is_verified(&self, hash: HandleHash, now: Timestamp) -> bool {
        lock(&self.0).verified.get(&hash).is_some_and(|connection| connection.is_valid(now))
    }

    pub(super) fn mark_verified(&self, hash: HandleHash, until: Timestamp) {
        let mut maps = lock(&self.0);
        let connection = maps
            .verified
            .entry(hash)
            .or_insert_with(|| Arc::new(VerifiedConnection { hash, until: AtomicU64::default() }));
        connection.until.store(until.as_millis(), Ordering::Release);
    }

    /// The connection that an owner calls so, if it is taken for granted. Whoever else calls one so is not known.
    pub(super) fn verified_connection(
        &self,
        owner: &Owner,
        id: &[u8],
        now: Timestamp,
    ) -> Option<HandleHash> {
        let maps = lock(&self.0);
        let (known_owner, connection) = maps.by_connection_id.get(id)?;
        (known_owner == owner && connection.is_valid(now)).then_some(connection.hash)
    }

    /// Remembers what an owner calls a connection that is taken for granted.
    pub(super) fn set_connection_id(&self, owner: &Owner, id: &[u8], hash: HandleHash) {
        let mut maps = lock(&self.0);
        if let Some(connection) = maps.verified.get(&hash).cloned() {
            maps.by_connection_id.insert(ConnectionId(id.into()), (owner.clone(), connection));
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<CachedSession>> {
        lock(&self.0).sessions.values().cloned().collect()
    }

    pub(super) fn is_in_use(&self, id: SessionId) -> bool {
        lock(&self.0).sessions.get(&id).is_some_and(|session| session.is_in_use())
    }

    /// Forgets what nobody used since `before`, so that this does not grow.
    pub(super) fn prune(&self, before: Timestamp, now: Timestamp) {
        let mut maps = lock(&self.0);
        let Maps { sessions, by_key, verified, by_connection_id, .. } = &mut *maps;
        let stays = |it: &CachedSession| {
            it.is_in_use() || it.last_used() > before || it.unwritten(now).is_some()
        };
        sessions.retain(|_, it| stays(it));
        by_key.retain(|_, it| sessions.contains_key(&it.id));
        verified.retain(|_, connection| connection.is_valid(now));
        by_connection_id.retain(|_, (_, connection)| connection.is_valid(now));
    }

    /// Takes a place for one more session of an owner; `false` if there seems to be none.
    pub(super) fn try_reserve(&self, owner: &Owner, limit: usize) -> bool {
        let mut maps = lock(&self.0);
        let count = maps.counts.entry(owner.clone()).or_default();
        let room = count.live < limit;
        count.live += usize::from(room);
        room
    }

    pub(super) fn release(&self, owner: &Owner) {
        let mut maps = lock(&self.0);
        if let Some(count) = maps.counts.get_mut(owner) {
            count.live = count.live.saturating_sub(1);
            if count.live == 0 {
                maps.counts.remove(owner);
            }
        }
    }

    /// Whether it was counted just now that there is no place.
    pub(super) fn is_full(&self, owner: &Owner, now: Timestamp) -> bool {
        lock(&self.0).counts.get(owner).is_some_and(|count| count.full_until > now)
    }

    /// Notes what was counted in the store.
    pub(super) fn set_count(&self, owner: &Owner, live: usize, full_until: Timestamp) {
        lock(&self.0).counts.insert(owner.clone(), OwnerCount { live, full_until });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E30, E31: what one owner calls a connection is known for nobody else, and no longer than it is sure that the
    /// connection is there.
    #[test]
    fn a_connection_is_trusted_for_its_owner_and_for_a_while() {
        let [ann, bob] = ["ann", "bob"].map(|it| Owner::verified("i", it).unwrap());
        let [one, two, three] = [1, 2, 3].map(Timestamp::from_millis);
        let (cache, hash) = (SessionCache::default(), HandleHash::from_bytes([7; 32]));
        cache.set_connection_id(&ann, b"secret", hash);
        assert_eq!(cache.verified_connection(&ann, b"secret", one), None, "nobody saw it");
        cache.mark_verified(hash, two);
        cache.set_connection_id(&ann, b"secret", hash);
        assert_eq!(cache.verified_connection(&ann, b"secret", one), Some(hash));
        assert_eq!(cache.verified_connection(&bob, b"secret", one), None);
        assert_eq!(cache.verified_connection(&ann, b"secre", one), None);
        assert_eq!(cache.verified_connection(&ann, b"secret", two), None);
        cache.mark_verified(hash, three);
        assert_eq!(
            cache.verified_connection(&ann, b"secret", two),
            Some(hash),
            "it was seen again"
        );
        let shown = format!("{cache:?}");
        let bytes = format!("{:?}", b"secret");
        assert!(!shown.contains("secret") && !shown.contains(bytes.trim_matches(['[', ']'])));
        cache.remove_key(CacheKey::Connection(hash));
        assert_eq!(cache.verified_connection(&ann, b"secret", one), None, "it was ended");
        cache.prune(one, one);
        assert!(lock(&cache.0).by_connection_id.is_empty());
    }
}
