//! The sessions held by this process, by every name they have.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{Digest, HandleHash, Owner, Record, Session, SessionId, SessionLimits, Timestamp};

/// What is held. One lock over all names, so they never disagree; it is never held across an await.
#[derive(Debug, Default)]
pub(super) struct Table(RwLock<Names>);

#[derive(Debug, Default)]
struct Names {
    sessions: HashMap<SessionId, Arc<Session>>,
    keys: HashMap<u128, Arc<Session>>,
    handles: HashMap<HandleHash, Arc<Session>>,
    owners: HashMap<Owner, Own>,
    removals: Removals,
}

#[derive(Debug, Default)]
struct Own {
    sessions: HashSet<SessionId>,
    /// Places promised to openers that are still waiting for the store.
    reserved: usize,
}

/// Counts removals, spread by id. A record that was read before a removal of its session must not be
/// held after it; the counter tells, at the price of a rare second look.
#[derive(Debug)]
struct Removals([AtomicU64; 64]);

impl Default for Removals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Removals {
    fn of(&self, id: SessionId) -> &AtomicU64 {
        &self.0[usize::from(id.as_uuid().as_bytes()[15] & 63)]
    }
}

impl Table {
    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
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

    /// To be taken before a record is read, and given to [`Table::hold`].
    pub(super) fn mark(&self, id: SessionId) -> u64 {
        self.read().removals.of(id).load(Ordering::Relaxed)
    }

    /// Holds the session of a record; `None` if it may have been removed since `mark`.
    pub(super) fn hold(&self, record: Record, mark: u64) -> Option<Arc<Session>> {
        let id = record.id;
        let mut names = self.write();
        if let Some(held) = names.sessions.get(&id) {
            return Some(held.clone());
        }
        if names.removals.of(id).load(Ordering::Relaxed) != mark {
            return None;
        }
        let digest = digest(&record);
        names.owners.entry(record.owner.clone()).or_default().sessions.insert(id);
        let session = Arc::new(Session::new(record));
        names.keys.extend(digest.map(|digest| (digest, session.clone())));
        names.sessions.insert(id, session.clone());
        Some(session)
    }

    /// Lets a handle lead to a held session without asking the store.
    pub(super) fn name(&self, session: &Session, hash: HandleHash) {
        let mut names = self.write();
        if let Some(held) = names.sessions.get(&session.id()).cloned() {
            held.remember_handle(hash);
            names.handles.insert(hash, held);
        }
    }

    /// Lets go of a session; says whether it was held.
    pub(super) fn remove(&self, id: SessionId) -> bool {
        let mut names = self.write();
        names.removals.of(id).fetch_add(1, Ordering::Relaxed);
        let Some(session) = names.sessions.remove(&id) else {
            return false;
        };
        for hash in session.take_handles() {
            names.handles.remove(&hash);
        }
        let record = session.record();
        let digest = digest(&record);
        // A successor may have the key by now.
        if let Some(digest) =
            digest.filter(|it| names.keys.get(it).is_some_and(|held| held.id() == id))
        {
            names.keys.remove(&digest);
        }
        if let Some(own) = names.owners.get_mut(&record.owner) {
            own.sessions.remove(&id);
            if own.sessions.is_empty() && own.reserved == 0 {
                names.owners.remove(&record.owner);
            }
        }
        true
    }

    /// Promises a place for one more session of `owner`, or names the session that could make room.
    pub(super) fn reserve(
        &self,
        owner: &Owner,
        limits: SessionLimits,
        provisional: bool,
    ) -> Room<'_> {
        let mut names = self.write();
        let held: Vec<_> = match names.owners.get(owner) {
            // Only at a limit is it worth looking at each.
            Some(own) if provisional || own.sessions.len() + own.reserved >= limits.per_owner => {
                own.sessions.iter().filter_map(|id| names.sessions.get(id)).cloned().collect()
            }
            _ => Vec::new(),
        };
        let own = names.owners.entry(owner.clone()).or_default();
        let mut unproven: Vec<_> =
            held.into_iter().filter(|held| held.record().provisional).collect();
        let full = own.sessions.len() + own.reserved >= limits.per_owner;
        if !full && (!provisional || unproven.len() < limits.provisional_per_owner) {
            own.reserved += 1;
            return Room::Reserved(Reservation { table: self, owner: owner.clone() });
        }
        unproven.retain(|held| !held.is_in_use() && !held.is_over());
        Room::Full(unproven.into_iter().min_by_key(|held| -> Timestamp { held.last_used() }))
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
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    table: &'a Table,
    owner: Owner,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut names = self.table.write();
        if let Some(own) = names.owners.get_mut(&self.owner) {
            own.reserved -= 1;
            if own.sessions.is_empty() && own.reserved == 0 {
                names.owners.remove(&self.owner);
            }
        }
    }
}

fn digest(record: &Record) -> Option<u128> {
    let key = record.key.as_ref()?;
    Some(key.digest(&record.owner, &record.agent).half())
}
