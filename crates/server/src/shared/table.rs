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

use super::Shared;

/// A session that was used here not long ago.
pub(crate) struct Held {
    id: SessionId,
    owner: Owner,
    record: Mutex<Arc<Record>>,
    users: AtomicUsize,
    /// When it was last used here.
    used: AtomicU64,
    /// The time of use that the store knows.
    written: AtomicU64,
}

impl Held {
    fn new(record: Record) -> Self {
        let used = record.last_used.as_millis();
        Self {
            id: record.id,
            owner: record.owner.clone(),
            record: Mutex::new(Arc::new(record)),
            users: AtomicUsize::new(0),
            used: AtomicU64::new(used),
            written: AtomicU64::new(used),
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

    fn learn(&self, newer: Record) {
        self.used.fetch_max(newer.last_used.as_millis(), Ordering::AcqRel);
        let mut known = lock(&self.record);
        if newer.revision >= known.revision {
            *known = Arc::new(newer);
        }
    }

    /// When it was last used, as far as is known here.
    pub(crate) fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.used.load(Ordering::Acquire))
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
            self.used.fetch_max(now.as_millis(), Ordering::AcqRel);
        }
        let used = self.used.load(Ordering::Acquire);
        (used > self.written.load(Ordering::Acquire)).then(|| Timestamp::from_millis(used))
    }

    pub(super) fn wrote(&self, used: Timestamp) {
        self.written.fetch_max(used.as_millis(), Ordering::AcqRel);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.id)
    }
}

/// A session in use. While one of these lives, it does not idle out.
#[derive(Debug)]
pub(crate) struct Use {
    shared: Arc<Shared>,
    held: Arc<Held>,
    /// Whether its record was read from the store for this very use.
    pub(crate) fresh: bool,
}

impl Use {
    pub(crate) fn of(shared: &Arc<Shared>, held: Arc<Held>, fresh: bool) -> Self {
        held.users.fetch_add(1, Ordering::AcqRel);
        Self { shared: shared.clone(), held, fresh }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.held.used.fetch_max(self.shared.now().as_millis(), Ordering::AcqRel);
        self.held.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What leads to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Handle(HandleHash),
    Key(Digest),
    Connection(HandleHash),
}

/// All that is remembered. One lock, held for a look into a map.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Maps>);

#[derive(Debug, Default)]
struct Maps {
    held: HashMap<SessionId, Arc<Held>>,
    names: HashMap<Name, Arc<Held>>,
    /// Connections that are taken for granted.
    trusted: HashMap<HandleHash, Arc<Trust>>,
    /// The same by what their clients call them, so that not every request costs a digest. A server made these ids, and
    /// only those of connections that it has come here.
    called: HashMap<Called, (Owner, Arc<Trust>), BuildQuick>,
    /// How many live sessions each owner has, at most.
    counts: HashMap<Owner, Count>,
}

/// A connection that was there a moment ago.
#[derive(Debug)]
struct Trust {
    name: HandleHash,
    /// Until when that is enough.
    until: AtomicU64,
}

impl Trust {
    fn holds(&self, now: Timestamp) -> bool {
        self.until.load(Ordering::Acquire) > now.as_millis()
    }
}

/// `Mcp-Session-Id` as a client says it, which is a secret.
#[derive(PartialEq, Eq, Hash)]
struct Called(Box<[u8]>);

impl Borrow<[u8]> for Called {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Called(…)")
    }
}

/// What is known of how many sessions an owner has.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    live: usize,
    /// Until when it is believed that there is no place.
    full_until: Timestamp,
}

impl Table {
    pub(super) fn get(&self, name: Name) -> Option<Arc<Held>> {
        lock(&self.0).names.get(&name).cloned()
    }

    pub(super) fn held(&self, id: SessionId) -> Option<Arc<Held>> {
        lock(&self.0).held.get(&id).cloned()
    }

    /// Remembers a record that was just read, and what led to it.
    pub(super) fn hold(&self, record: Record, name: Option<Name>) -> Arc<Held> {
        let mut maps = lock(&self.0);
        let held = match maps.held.get(&record.id) {
            Some(held) => {
                held.learn(record);
                held.clone()
            }
            None => {
                let held = Arc::new(Held::new(record));
                maps.held.insert(held.id, held.clone());
                held
            }
        };
        if let Some(name) = name {
            maps.names.insert(name, held.clone());
        }
        held
    }

    pub(super) fn learn(&self, record: &Record) {
        if let Some(held) = lock(&self.0).held.get(&record.id) {
            held.learn(record.clone());
        }
    }

    pub(super) fn name(&self, held: &Arc<Held>, name: Name) {
        lock(&self.0).names.insert(name, held.clone());
    }

    pub(super) fn unname(&self, name: Name) {
        let mut maps = lock(&self.0);
        maps.names.remove(&name);
        if let Name::Connection(name) = name
            && let Some(trust) = maps.trusted.remove(&name)
        {
            trust.until.store(0, Ordering::Release);
        }
    }

    pub(super) fn forget(&self, id: SessionId) {
        let mut maps = lock(&self.0);
        if maps.held.remove(&id).is_some() {
            maps.names.retain(|_, held| held.id != id);
        }
    }

    pub(super) fn trusts(&self, name: HandleHash, now: Timestamp) -> bool {
        lock(&self.0).trusted.get(&name).is_some_and(|trust| trust.holds(now))
    }

    pub(super) fn trust(&self, name: HandleHash, until: Timestamp) {
        let mut maps = lock(&self.0);
        let trust = maps
            .trusted
            .entry(name)
            .or_insert_with(|| Arc::new(Trust { name, until: AtomicU64::default() }));
        trust.until.store(until.as_millis(), Ordering::Release);
    }

    /// The connection that an owner calls so, if it is taken for granted. Whoever else calls one so is not known.
    pub(super) fn trusted(&self, owner: &Owner, id: &[u8], now: Timestamp) -> Option<HandleHash> {
        let maps = lock(&self.0);
        let (whose, trust) = maps.called.get(id)?;
        (whose == owner && trust.holds(now)).then_some(trust.name)
    }

    /// Remembers what an owner calls a connection that is taken for granted.
    pub(super) fn call(&self, owner: &Owner, id: &[u8], name: HandleHash) {
        let mut maps = lock(&self.0);
        if let Some(trust) = maps.trusted.get(&name).cloned() {
            maps.called.insert(Called(id.into()), (owner.clone(), trust));
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Held>> {
        lock(&self.0).held.values().cloned().collect()
    }

    pub(super) fn is_in_use(&self, id: SessionId) -> bool {
        lock(&self.0).held.get(&id).is_some_and(|held| held.is_in_use())
    }

    /// Forgets what nobody used since `before`, so that this does not grow.
    pub(super) fn trim(&self, before: Timestamp, now: Timestamp) {
        let mut maps = lock(&self.0);
        let Maps { held, names, trusted, called, .. } = &mut *maps;
        let stays =
            |it: &Held| it.is_in_use() || it.last_used() > before || it.unwritten(now).is_some();
        held.retain(|_, it| stays(it));
        names.retain(|_, it| held.contains_key(&it.id));
        trusted.retain(|_, trust| trust.holds(now));
        called.retain(|_, (_, trust)| trust.holds(now));
    }

    /// Takes a place for one more session of an owner; `false` if there seems to be none.
    pub(super) fn one_more(&self, owner: &Owner, limit: usize) -> bool {
        let mut maps = lock(&self.0);
        let count = maps.counts.entry(owner.clone()).or_default();
        let room = count.live < limit;
        count.live += usize::from(room);
        room
    }

    pub(super) fn one_less(&self, owner: &Owner) {
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
    pub(super) fn counted(&self, owner: &Owner, live: usize, full_until: Timestamp) {
        lock(&self.0).counts.insert(owner.clone(), Count { live, full_until });
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
        let (table, name) = (Table::default(), HandleHash::from_bytes([7; 32]));
        table.call(&ann, b"secret", name);
        assert_eq!(table.trusted(&ann, b"secret", one), None, "nobody saw it");
        table.trust(name, two);
        table.call(&ann, b"secret", name);
        assert_eq!(table.trusted(&ann, b"secret", one), Some(name));
        assert_eq!(table.trusted(&bob, b"secret", one), None);
        assert_eq!(table.trusted(&ann, b"secre", one), None);
        assert_eq!(table.trusted(&ann, b"secret", two), None);
        table.trust(name, three);
        assert_eq!(table.trusted(&ann, b"secret", two), Some(name), "it was seen again");
        let shown = format!("{table:?}");
        let bytes = format!("{:?}", b"secret");
        assert!(!shown.contains("secret") && !shown.contains(bytes.trim_matches(['[', ']'])));
        table.unname(Name::Connection(name));
        assert_eq!(table.trusted(&ann, b"secret", one), None, "it was ended");
        table.trim(one, one);
        assert!(lock(&table.0).called.is_empty());
    }
}
