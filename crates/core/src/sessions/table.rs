//! SessionTable of the held sessions, with all its indexes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use rustc_hash::FxBuildHasher;
use stayput_sync::RwLock;

use crate::{Clock, Digest, HandleHash, Lease, Owner, Record, Session, SessionId, SessionLimits};

/// Held sessions. One lock guards all indexes, so that they never disagree; it is never held across
/// an await.
#[derive(Default)]
pub(super) struct SessionTable(RwLock<Indexes>);

#[derive(Default)]
struct Indexes {
    /// Lease under which all sessions are held; `None` after they were released.
    lease: Option<Lease>,
    sessions: HashMap<SessionId, Arc<Session>, FxBuildHasher>,
    keys: HashMap<u128, Arc<Session>>,
    handles: HashMap<HandleHash, Arc<Session>, FxBuildHasher>,
    owners: HashMap<Owner, OwnerEntry>,
    watched: HashMap<SessionId, WatchEntry>,
}

#[derive(Default)]
struct OwnerEntry {
    sessions: HashSet<SessionId>,
    /// Places reserved for openers that wait for the store, and how many of them are for
    /// provisional sessions.
    reserved: usize,
    provisional: usize,
}

/// Calls that wait for the store's answer on a session.
#[derive(Default)]
struct WatchEntry {
    watchers: usize,
    /// Number of times that the session was released meanwhile.
    removals: u64,
}

impl SessionTable {
    /// Sets the lease under which claimed sessions can be inserted.
    pub(super) fn set_lease(&self, lease: Lease) {
        self.0.write().lease = Some(lease);
    }

    pub(super) fn by_id(&self, id: SessionId) -> Option<Arc<Session>> {
        self.0.read().sessions.get(&id).cloned()
    }

    pub(super) fn by_key(&self, key: &Digest) -> Option<Arc<Session>> {
        self.0.read().keys.get(&key.truncate()).cloned()
    }

    pub(super) fn by_handle(&self, hash: &HandleHash) -> Option<Arc<Session>> {
        self.0.read().handles.get(hash).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.0.read().sessions.values().cloned().collect()
    }

    /// Collects the sessions for which `which` returns a value. Reference counts of the others stay
    /// untouched, because they are many.
    pub(super) fn select<T>(
        &self,
        which: impl Fn(&Session) -> Option<T>,
    ) -> Vec<(Arc<Session>, T)> {
        let indexes = self.0.read();
        indexes
            .sessions
            .values()
            .filter_map(|it| which(it).map(|value| (it.clone(), value)))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.read().sessions.len()
    }

    /// Returns whether exactly this object is held. A later incarnation with the same id is another
    /// one.
    pub(super) fn contains(&self, session: &Session) -> bool {
        let indexes = self.0.read();
        indexes.sessions.get(&session.id()).is_some_and(|held| std::ptr::eq(&**held, session))
    }

    /// Returns whether a call waits for the store's answer on this session.
    pub(super) fn is_watched(&self, id: SessionId) -> bool {
        self.0.read().watched.contains_key(&id)
    }

    /// Starts to count the releases of a session. Call it before the store is asked for the
    /// session, and pass it to [`SessionTable::insert`]: a session that was released after the
    /// question must not be held because of the answer.
    pub(super) fn watch(&self, id: SessionId) -> RemovalWatch<'_> {
        let mut indexes = self.0.write();
        let watched = indexes.watched.entry(id).or_default();
        watched.watchers += 1;
        RemovalWatch { table: self, id, removals: watched.removals }
    }

    /// Inserts the session of a record that this process has claimed. Returns `None` if it was
    /// released since the store was asked, or if it was claimed under another lease than the
    /// current one.
    ///
    /// An earlier incarnation that is still here is closed and removed; it is returned second. The
    /// reservation is consumed under the same lock: otherwise the session would count twice for a
    /// moment, and another opener could be refused.
    pub(super) fn insert(
        &self,
        record: Record,
        watch: &RemovalWatch<'_>,
        reservation: Option<Reservation<'_>>,
        clock: &Arc<dyn Clock>,
    ) -> Option<(Arc<Session>, Option<Arc<Session>>)> {
        let id = record.id;
        let mut indexes = self.0.write();
        let held = indexes.sessions.get(&id).cloned();
        let earlier = match held {
            Some(held) if held.is_same_incarnation(&record) => return Some((held, None)),
            earlier => earlier,
        };
        let removals = indexes.watched.get(&id).map(|watched| watched.removals);
        let ours = record.holder.is_some() && record.holder == indexes.lease;
        if removals != Some(watch.removals) || !ours {
            return None;
        }
        if let Some(earlier) = &earlier {
            earlier.release();
            indexes.remove(earlier);
        }
        let digest = key_digest(&record);
        indexes.owners.entry(record.owner.clone()).or_default().sessions.insert(id);
        let session = Arc::new(Session::new(record, clock.clone()));
        indexes.keys.extend(digest.map(|digest| (digest, session.clone())));
        indexes.sessions.insert(id, session.clone());
        if let Some(mut reservation) = reservation {
            indexes.cancel_reservation(&mut reservation);
        }
        Some((session, earlier))
    }

    /// Adds a handle of a held session, so that the handle is found without the store.
    pub(super) fn add_handle(&self, session: &Arc<Session>, hash: HandleHash) {
        let mut indexes = self.0.write();
        if indexes.sessions.get(&session.id()).is_some_and(|held| Arc::ptr_eq(held, session)) {
            if let Some(forgotten) = session.remember_handle(hash) {
                indexes.handles.remove(&forgotten);
            }
            indexes.handles.insert(hash, session.clone());
        }
    }

    /// Notes a handle that this process has issued. It is not found by it before its first use.
    pub(super) fn note_issued_handle(&self, session: &Session, hash: HandleHash) {
        if let Some(forgotten) = session.remember_handle(hash) {
            self.0.write().handles.remove(&forgotten);
        }
    }

    /// Removes exactly this object and returns whether it was held.
    pub(super) fn remove(&self, session: &Arc<Session>) -> bool {
        self.0.write().remove(session)
    }

    /// Removes all sessions, and accepts no new one until there is a lease again.
    pub(super) fn clear(&self) -> Vec<Arc<Session>> {
        let mut indexes = self.0.write();
        indexes.lease = None;
        let held: Vec<_> = indexes.sessions.values().cloned().collect();
        for session in &held {
            session.release();
            indexes.remove(session);
        }
        held
    }

    /// Reserves a place for one more session of `owner`, or returns the session that could be
    /// evicted.
    pub(super) fn reserve(
        &self,
        owner: &Owner,
        limits: SessionLimits,
        provisional: bool,
    ) -> ReserveOutcome<'_> {
        let mut indexes = self.0.write();
        let own = indexes.owners.entry(owner.clone()).or_default();
        let full = own.sessions.len() + own.reserved >= limits.per_owner;
        let mut provisional_sessions = Vec::new();
        if full || provisional {
            // The sessions are scanned only at a limit.
            let Indexes { sessions, owners, .. } = &*indexes;
            let ids = owners.get(owner).into_iter().flat_map(|own| &own.sessions);
            let held = ids.filter_map(|id| sessions.get(id));
            provisional_sessions.extend(held.filter(|held| held.record().provisional).cloned());
        }
        let own = indexes.owners.entry(owner.clone()).or_default();
        let at_provisional_limit = provisional
            && provisional_sessions.len() + own.provisional >= limits.provisional_per_owner;
        if !full && !at_provisional_limit {
            own.reserved += 1;
            own.provisional += usize::from(provisional);
            let owner = owner.clone();
            return ReserveOutcome::Reserved(Reservation {
                table: self,
                owner,
                provisional,
                open: true,
            });
        }
        indexes.remove_owner_if_empty(owner);
        provisional_sessions.retain(|held| !held.is_in_use() && !held.is_closed());
        ReserveOutcome::Full(provisional_sessions.into_iter().min_by_key(|held| held.last_used()))
    }
}

impl Indexes {
    fn remove(&mut self, session: &Arc<Session>) -> bool {
        let id = session.id();
        if !self.sessions.get(&id).is_some_and(|held| Arc::ptr_eq(held, session)) {
            return false;
        }
        self.sessions.remove(&id);
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.removals += 1;
        }
        for hash in session.handles() {
            self.handles.remove(&hash);
        }
        let record = session.record();
        let key = key_digest(&record);
        // A successor may have the key by now.
        if let Some(key) = key.filter(|key| self.keys.get(key).is_some_and(|held| held.id() == id))
        {
            self.keys.remove(&key);
        }
        if let Some(own) = self.owners.get_mut(&record.owner) {
            own.sessions.remove(&id);
        }
        self.remove_owner_if_empty(&record.owner);
        true
    }

    /// Cancels a reservation.
    fn cancel_reservation(&mut self, reservation: &mut Reservation<'_>) {
        reservation.open = false;
        if let Some(own) = self.owners.get_mut(&reservation.owner) {
            own.reserved -= 1;
            own.provisional -= usize::from(reservation.provisional);
        }
        self.remove_owner_if_empty(&reservation.owner);
    }

    /// Removes the entry of an owner without sessions and reservations.
    fn remove_owner_if_empty(&mut self, owner: &Owner) {
        if self.owners.get(owner).is_some_and(|own| own.sessions.is_empty() && own.reserved == 0) {
            self.owners.remove(owner);
        }
    }
}

impl fmt::Debug for SessionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionTable({} sessions)", self.len())
    }
}

/// Guard that counts the releases of one session, see [`SessionTable::watch`].
pub(super) struct RemovalWatch<'a> {
    table: &'a SessionTable,
    id: SessionId,
    removals: u64,
}

impl Drop for RemovalWatch<'_> {
    fn drop(&mut self) {
        let mut indexes = self.table.0.write();
        if let Some(watched) = indexes.watched.get_mut(&self.id) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                indexes.watched.remove(&self.id);
            }
        }
    }
}

/// Outcome of [`SessionTable::reserve`].
pub(super) enum ReserveOutcome<'a> {
    /// A place was reserved.
    Reserved(Reservation<'a>),
    /// The owner is at its limit. This session can be evicted, if there is one.
    Full(Option<Arc<Session>>),
}

/// Reserved place of an opener. Dropping it frees the place, also when the opener is cancelled.
pub(super) struct Reservation<'a> {
    table: &'a SessionTable,
    owner: Owner,
    provisional: bool,
    /// Whether the place still counts.
    open: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            self.table.0.write().cancel_reservation(self);
        }
    }
}

/// Returns the digest of a record's key, with its owner and agent.
pub(super) fn key_digest(record: &Record) -> Option<u128> {
    let key = record.key.as_ref()?;
    Some(key.digest(&record.owner, &record.agent).truncate())
}
