//! Index of all pool entries.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::{Hash, Hasher},
    sync::Arc,
};

use stayput_core::{Owner, SessionId};
use stayput_sync::Mutex;

use crate::{
    Budget, Isolation, Link, LinkKey, LinkOwner, RecycleFilter, Server,
    pool::{pool_entry::PoolEntry, pooled_link::PinGuard},
    server::link_key::{LinkKeyParts, LinkKeyRef},
    util::flag::Flag,
};

/// All pool entries. The lock is held for a lookup only, never across an await.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    entries: HashSet<KeyedEntry>,
    /// First entry of each session. Most sessions have only one.
    sessions: HashMap<SessionId, Arc<PoolEntry>>,
    /// Further entries of a session.
    more: HashMap<SessionId, Vec<Arc<PoolEntry>>>,
    /// Requests that have no entry yet, by session: their number, and the flag that is raised when the session ends.
    unopened: HashMap<SessionId, (usize, Arc<Flag>)>,
    /// Sessions that are ending. A new link of such a session waits until the end is complete.
    endings: HashMap<SessionId, Arc<Flag>>,
}

/// Entry that is hashed and compared by its key, so that the key is stored once.
#[derive(Debug)]
struct KeyedEntry(Arc<PoolEntry>);

impl Borrow<LinkKey> for KeyedEntry {
    fn borrow(&self) -> &LinkKey {
        &self.0.key
    }
}

impl<'a> Borrow<dyn LinkKeyParts + 'a> for KeyedEntry {
    fn borrow(&self) -> &(dyn LinkKeyParts + 'a) {
        &self.0.key
    }
}

impl Hash for KeyedEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for KeyedEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for KeyedEntry {}

impl Table {
    /// Returns the entry for this key, or creates it. While the session ends, returns the flag to wait for.
    pub(super) fn pin_entry(
        &self,
        key: &LinkKey,
        server: &Server,
        budget: &Budget,
    ) -> Result<PinGuard, Arc<Flag>> {
        let mut table = self.0.lock();
        if let Some(KeyedEntry(entry)) = table.entries.get(key) {
            return Ok(PinGuard::new(entry.clone()));
        }
        let ending = key.scope().session().and_then(|session| table.endings.get(&session));
        // A raised flag that is still present: the task that ended the session was stopped with its runtime.
        if let Some(ending) = ending.filter(|ending| !ending.is_raised()) {
            return Err(ending.clone());
        }
        let entry = Arc::new(PoolEntry::new(key.clone(), server.clone(), budget.clone()));
        table.insert(entry.clone());
        Ok(PinGuard::new(entry))
    }

    /// Adds entries for `server` as successors of entries with another configuration. Each opens when its
    /// predecessor is gone, and starts with the next generation.
    pub(super) fn succeed<'s>(
        &self,
        old: impl IntoIterator<Item = (&'s Arc<PoolEntry>, Arc<Flag>)>,
        server: &Server,
        budget: &Budget,
    ) {
        for (old, gone) in old {
            let server = server.for_same_era_as(&old.server);
            if !server.is_process() && server.preferred_era() != old.server.preferred_era() {
                // A modern link to a URL has no state, and the new server has no such links.
                continue;
            }
            let key = LinkKey::new(server, old.key.scope().clone());
            let Some(last) = old.last_attachment() else { continue };
            let mut table = self.0.lock();
            if !table.entries.contains(&key) {
                let entry =
                    PoolEntry::new(key, server.clone(), budget.clone()).following(last, gone);
                table.insert(Arc::new(entry));
            }
        }
    }

    /// Registers a request of this session that has no entry yet. Its flag is raised if the session ends.
    pub(super) fn register(&self, session: SessionId) -> OpenGuard<'_> {
        let mut table = self.0.lock();
        let (count, over) = table.unopened.entry(session).or_default();
        *count += 1;
        OpenGuard { table: self, session, over: over.clone() }
    }

    /// Finds the entry for a borrowed key.
    pub(super) fn find(&self, sought: &LinkKeyRef<'_>) -> Option<Arc<PoolEntry>> {
        let sought: &dyn LinkKeyParts = sought;
        self.0.lock().entries.get(sought).map(|entry| entry.0.clone())
    }

    pub(super) fn all(&self) -> Vec<Arc<PoolEntry>> {
        self.0.lock().entries.iter().map(|entry| entry.0.clone()).collect()
    }

    /// Removes all entries of a session. New requests wait for `gone`. Also returns the flag of an earlier
    /// end that is still in progress.
    pub(super) fn remove_session(
        &self,
        session: SessionId,
        gone: Arc<Flag>,
    ) -> (Vec<Arc<PoolEntry>>, Option<Arc<Flag>>) {
        let mut table = self.0.lock();
        if let Some((_, over)) = table.unopened.remove(&session) {
            over.raise();
        }
        let mut entries = table.more.remove(&session).unwrap_or_default();
        entries.extend(table.sessions.remove(&session));
        entries.iter().for_each(|entry| table.remove(entry));
        (entries, table.endings.insert(session, gone))
    }

    /// Marks the end of a session as complete.
    pub(super) fn finish_end(&self, session: SessionId, gone: &Arc<Flag>) {
        let mut table = self.0.lock();
        if table.endings.get(&session).is_some_and(|ending| Arc::ptr_eq(ending, gone)) {
            table.endings.remove(&session);
        }
    }

    /// Returns all entries whose key matches.
    pub(super) fn all_where(&self, which: impl Fn(&LinkKey) -> bool) -> Vec<Arc<PoolEntry>> {
        let table = self.0.lock();
        let all = table.entries.iter().filter(|entry| which(&entry.0.key));
        all.map(|entry| entry.0.clone()).collect()
    }

    /// Removes these entries.
    pub(super) fn remove_all<'s>(&self, entries: impl Iterator<Item = &'s Arc<PoolEntry>>) {
        let mut table = self.0.lock();
        for entry in entries {
            if table.entries.get(&entry.key).is_some_and(|known| Arc::ptr_eq(&known.0, entry)) {
                table.remove(entry);
            }
        }
    }

    /// Removes all entries whose key matches.
    pub(super) fn remove_where(&self, which: impl Fn(&LinkKey) -> bool) -> Vec<Arc<PoolEntry>> {
        let mut table = self.0.lock();
        let all = table.entries.iter().filter(|entry| which(&entry.0.key));
        let entries: Vec<_> = all.map(|entry| entry.0.clone()).collect();
        entries.iter().for_each(|entry| table.remove(entry));
        entries
    }

    /// Returns the live links to `server` of this owner, and the shared ones, that reported a changed list
    /// since their lists were last fetched. Most recently used first.
    pub(super) fn changed(&self, server: &Server, owner: &Owner) -> Vec<Link> {
        let entries: Vec<_> = {
            let table = self.0.lock();
            let own = table.entries.iter().map(|entry| &entry.0).filter(|entry| {
                let key = &entry.key;
                key.server() == server.name()
                    && key.configuration() == server.configuration()
                    && key.scope().owner().is_none_or(|it| it == owner)
            });
            own.cloned().collect()
        };
        let links = entries.iter().filter_map(|entry| Some((entry.last_used(), entry.live()?.0)));
        let mut links: Vec<_> = links.filter(|(_, link)| link.lists_changed() > 0).collect();
        links.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
        links.into_iter().map(|(_, link)| link).collect()
    }

    /// Returns the entries through which `link_owner` may reach `server`, for every isolation.
    pub(super) fn entries_for(
        &self,
        server: &Server,
        link_owner: &LinkOwner,
    ) -> Vec<Arc<PoolEntry>> {
        let table = self.0.lock();
        let all = [Isolation::PerSession, Isolation::PerOwner, Isolation::Shared];
        let keys = all.map(|isolation| LinkKey::for_owner(server, isolation, link_owner));
        keys.iter().filter_map(|key| Some(table.entries.get(key)?.0.clone())).collect()
    }

    /// Ends the link that was idle for longest, first among those of owners that have more links than their share.
    /// Returns whether there was one.
    pub(super) fn recycle(&self, wanted: RecycleFilter<'_>) -> bool {
        let fits: Vec<_> = {
            let table = self.0.lock();
            let fits = table.entries.iter().map(|entry| &entry.0).filter(|entry| {
                (!wanted.process || entry.server.is_process())
                    && (wanted.owner.is_none() || entry.key.scope().owner() == wanted.owner)
            });
            fits.cloned().collect()
        };
        let mut counts: HashMap<Option<&Owner>, usize> = HashMap::new();
        for entry in &fits {
            *counts.entry(entry.key.scope().owner()).or_default() += 1;
        }
        // All owners that have links have the same share.
        let share = fits.len() / counts.len().max(1);
        let is_within = |entry: &PoolEntry| {
            counts.get(&entry.key.scope().owner()).is_none_or(|count| *count <= share)
        };
        let idle = fits.iter().filter_map(|entry| Some((entry.idle_since()?, entry)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(since, entry)| (is_within(entry), *since));
        // The first one may be in use again; then try the next.
        idle.iter().any(|(_, entry)| entry.recycle())
    }
}

/// Registration of a request, see [`Table::register`].
pub(super) struct OpenGuard<'a> {
    table: &'a Table,
    session: SessionId,
    over: Arc<Flag>,
}

impl OpenGuard<'_> {
    /// Waits until the session ends.
    pub(super) async fn over(&self) {
        self.over.wait().await;
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.table.0.lock();
        let Entry::Occupied(mut unopened) = table.unopened.entry(self.session) else { return };
        let (count, over) = unopened.get_mut();
        // After the end of the session, the entry is that of later requests.
        if Arc::ptr_eq(over, &self.over) {
            *count -= 1;
            if *count == 0 {
                unopened.remove();
            }
        }
    }
}

impl Entries {
    fn insert(&mut self, entry: Arc<PoolEntry>) {
        if let Some(session) = entry.key.scope().session() {
            match self.sessions.entry(session) {
                Entry::Vacant(first) => {
                    first.insert(entry.clone());
                }
                Entry::Occupied(_) => self.more.entry(session).or_default().push(entry.clone()),
            }
        }
        self.entries.insert(KeyedEntry(entry));
    }

    fn remove(&mut self, entry: &PoolEntry) {
        if let Some(session) = entry.key.scope().session() {
            let mut more = self.more.remove(&session).unwrap_or_default();
            more.retain(|other| other.key != entry.key);
            if self.sessions.get(&session).is_some_and(|first| first.key == entry.key) {
                match more.pop() {
                    Some(next) => self.sessions.insert(session, next),
                    None => self.sessions.remove(&session),
                };
            }
            if !more.is_empty() {
                self.more.insert(session, more);
            }
        }
        self.entries.remove(&entry.key);
        entry.take_out();
    }
}
