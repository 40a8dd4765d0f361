//! The sessions held by this process, by every name they have.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use crate::{
    BuildQuick, Clock, Digest, HandleHash, Lease, Owner, Record, Session, SessionId, SessionLimits,
};

/// What is held. One lock over all names, so they never disagree; it is never held across an await.
#[derive(Default)]
pub(super) struct Table(RwLock<Names>);

#[derive(Default)]
struct Names {
    /// The lease under which all of them are held; none after they were let go.
    lease: Option<Lease>,
    sessions: HashMap<SessionId, Arc<Session>, BuildQuick>,
    keys: HashMap<u128, Arc<Session>>,
    handles: HashMap<HandleHash, Arc<Session>, BuildQuick>,
    owners: HashMap<Owner, Own>,
    watched: HashMap<SessionId, Watched>,
}

#[derive(Default)]
struct Own {
    sessions: HashSet<SessionId>,
    /// Places promised to openers that are still waiting for the store, and how many of them are
    /// for provisional sessions.
    reserved: usize,
    provisional: usize,
}

/// Somebody is waiting for the store's word on this session.
#[derive(Default)]
struct Watched {
    watchers: usize,
    /// How often it was let go meanwhile.
    removals: u64,
}

impl Table {
    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever is claimed under this lease can be held from now on.
    pub(super) fn set_lease(&self, lease: Lease) {
        self.write().lease = Some(lease);
    }

    pub(super) fn by_id(&self, id: SessionId) -> Option<Arc<Session>> {
        self.read().sessions.get(&id).cloned()
    }

    pub(super) fn by_key(&self, key: &Digest) -> Option<Arc<Session>> {
        self.read().keys.get(&key.half()).cloned()
    }

    pub(super) fn by_handle(&self, hash: &HandleHash) -> Option<Arc<Session>> {
        self.read().handles.get(hash).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.read().sessions.values().cloned().collect()
    }

    /// What `which` says of those that it says anything of. Nothing is counted for the others: they are many.
    pub(super) fn select<T>(
        &self,
        which: impl Fn(&Session) -> Option<T>,
    ) -> Vec<(Arc<Session>, T)> {
        let names = self.read();
        names.sessions.values().filter_map(|it| which(it).map(|said| (it.clone(), said))).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.read().sessions.len()
    }

    /// Whether it is this very session that is held: a later life of the same id is another one.
    pub(super) fn holds(&self, session: &Session) -> bool {
        let names = self.read();
        names.sessions.get(&session.id()).is_some_and(|held| std::ptr::eq(&**held, session))
    }

    /// Whether somebody is waiting for the store's word on this session.
    pub(super) fn is_watched(&self, id: SessionId) -> bool {
        self.read().watched.contains_key(&id)
    }

    /// To be taken before the store is asked for a session, and shown to [`Table::hold`]: what was
    /// let go after the store was asked must not be held on its answer.
    pub(super) fn watch(&self, id: SessionId) -> Watch<'_> {
        let mut names = self.write();
        let watched = names.watched.entry(id).or_default();
        watched.watchers += 1;
        Watch { table: self, id, removals: watched.removals }
    }

    /// Holds the session of a record that this process has claimed. `None` if it was let go since
    /// the store was asked, or claimed under a lease that is not ours any more.
    ///
    /// If an earlier life of it is still here, that one is over and goes; it comes second. The
    /// promised place is taken in the same moment, or the session would count twice for a while
    /// and somebody else be refused.
    pub(super) fn hold(
        &self,
        record: Record,
        watch: &Watch<'_>,
        place: Option<Reservation<'_>>,
        clock: &Arc<dyn Clock>,
    ) -> Option<(Arc<Session>, Option<Arc<Session>>)> {
        let id = record.id;
        let mut names = self.write();
        let held = names.sessions.get(&id).cloned();
        let earlier = match held {
            Some(held) if held.is_of(&record) => return Some((held, None)),
            earlier => earlier,
        };
        let removals = names.watched.get(&id).map(|watched| watched.removals);
        let ours = record.holder.is_some() && record.holder == names.lease;
        if removals != Some(watch.removals) || !ours {
            return None;
        }
        if let Some(earlier) = &earlier {
            earlier.let_go();
            names.remove(earlier);
        }
        let digest = digest(&record);
        names.owners.entry(record.owner.clone()).or_default().sessions.insert(id);
        let session = Arc::new(Session::new(record, clock.clone()));
        names.keys.extend(digest.map(|digest| (digest, session.clone())));
        names.sessions.insert(id, session.clone());
        if let Some(mut place) = place {
            names.give_back(&mut place);
        }
        Some((session, earlier))
    }

    /// Lets a handle lead to a held session without asking the store.
    pub(super) fn name(&self, session: &Arc<Session>, hash: HandleHash) {
        let mut names = self.write();
        if names.sessions.get(&session.id()).is_some_and(|held| Arc::ptr_eq(held, session)) {
            if let Some(forgotten) = session.remember_handle(hash) {
                names.handles.remove(&forgotten);
            }
            names.handles.insert(hash, session.clone());
        }
    }

    /// Lets go of this very session; says whether it was held.
    pub(super) fn remove(&self, session: &Arc<Session>) -> bool {
        self.write().remove(session)
    }

    /// Lets go of all sessions, and holds none until there is a lease again.
    pub(super) fn clear(&self) -> Vec<Arc<Session>> {
        let mut names = self.write();
        names.lease = None;
        let held: Vec<_> = names.sessions.values().cloned().collect();
        for session in &held {
            session.let_go();
            names.remove(session);
        }
        held
    }

    /// Promises a place for one more session of `owner`, or names the session that could make room.
    pub(super) fn reserve(
        &self,
        owner: &Owner,
        limits: SessionLimits,
        provisional: bool,
    ) -> Room<'_> {
        let mut names = self.write();
        let own = names.owners.entry(owner.clone()).or_default();
        let full = own.sessions.len() + own.reserved >= limits.per_owner;
        let mut unproven = Vec::new();
        if full || provisional {
            // Only at a limit is it worth looking at each.
            let Names { sessions, owners, .. } = &*names;
            let ids = owners.get(owner).into_iter().flat_map(|own| &own.sessions);
            let held = ids.filter_map(|id| sessions.get(id));
            unproven.extend(held.filter(|held| held.record().provisional).cloned());
        }
        let own = names.owners.entry(owner.clone()).or_default();
        let many = provisional && unproven.len() + own.provisional >= limits.provisional_per_owner;
        if !full && !many {
            own.reserved += 1;
            own.provisional += usize::from(provisional);
            let owner = owner.clone();
            return Room::Reserved(Reservation { table: self, owner, provisional, open: true });
        }
        names.tidy(owner);
        unproven.retain(|held| !held.is_in_use() && !held.is_over());
        Room::Full(unproven.into_iter().min_by_key(|held| held.last_used()))
    }
}

impl Names {
    fn remove(&mut self, session: &Arc<Session>) -> bool {
        let id = session.id();
        if !self.sessions.get(&id).is_some_and(|held| Arc::ptr_eq(held, session)) {
            return false;
        }
        self.sessions.remove(&id);
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.removals += 1;
        }
        for hash in session.take_handles() {
            self.handles.remove(&hash);
        }
        let record = session.record();
        let key = digest(&record);
        // A successor may have the key by now.
        if let Some(key) = key.filter(|key| self.keys.get(key).is_some_and(|held| held.id() == id))
        {
            self.keys.remove(&key);
        }
        if let Some(own) = self.owners.get_mut(&record.owner) {
            own.sessions.remove(&id);
        }
        self.tidy(&record.owner);
        true
    }

    /// Takes back the promise of a place.
    fn give_back(&mut self, place: &mut Reservation<'_>) {
        place.open = false;
        if let Some(own) = self.owners.get_mut(&place.owner) {
            own.reserved -= 1;
            own.provisional -= usize::from(place.provisional);
        }
        self.tidy(&place.owner);
    }

    /// Forgets an owner of whom nothing is left.
    fn tidy(&mut self, owner: &Owner) {
        if self.owners.get(owner).is_some_and(|own| own.sessions.is_empty() && own.reserved == 0) {
            self.owners.remove(owner);
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} sessions)", self.len())
    }
}

/// See [`Table::watch`].
pub(super) struct Watch<'a> {
    table: &'a Table,
    id: SessionId,
    removals: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut names = self.table.write();
        if let Some(watched) = names.watched.get_mut(&self.id) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                names.watched.remove(&self.id);
            }
        }
    }
}

/// What [`Table::reserve`] found.
pub(super) enum Room<'a> {
    /// There is a place.
    Reserved(Reservation<'a>),
    /// There is none, unless this session goes.
    Full(Option<Arc<Session>>),
}

/// A promised place. Dropped, it is free again, also when its opener was cancelled.
pub(super) struct Reservation<'a> {
    table: &'a Table,
    owner: Owner,
    provisional: bool,
    /// Whether it still counts.
    open: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            self.table.write().give_back(self);
        }
    }
}

fn digest(record: &Record) -> Option<u128> {
    let key = record.key.as_ref()?;
    Some(key.digest(&record.owner, &record.agent).half())
}
