//! Cache of the holders of sessions.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use stayput_core::{Agent, Digest, HandleHash, Holder, Name, Owner, SessionId};

/// Largest number of entries. Beyond it the cache begins anew, and the store is asked again.
const MAX_ENTRIES: usize = 1 << 17;

/// Name of a session in the cache. The owner is part of each hash; an id was read from a connection of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SessionName {
    Id(SessionId),
    Handle(HandleHash),
    Key(Digest),
}

impl SessionName {
    /// Hashes a name that a client of `owner` has sent.
    pub(crate) fn new(owner: &Owner, name: &Name) -> Self {
        match name {
            Name::Handle(handle) => Self::Handle(handle.hash(owner)),
            Name::Key(key) => Self::Key(key.digest(owner, &Agent::none())),
        }
    }
}

/// Holders of sessions, as the store or a replica has named them. An entry may be out of date: the holder then says that
/// it does not hold the session, and the store is asked.
#[derive(Default)]
pub(crate) struct HolderCache(RwLock<HashMap<SessionName, Holder>>);

impl HolderCache {
    /// Returns the holder of a session, if it is cached.
    pub(crate) fn get(&self, name: &SessionName) -> Option<Holder> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Adds the holder of a session.
    pub(crate) fn insert(&self, name: SessionName, holder: &Holder) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_ENTRIES {
            all.clear();
        }
        all.insert(name, holder.clone());
    }

    /// Whether a replica is cached as the holder of the session with this id.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(&SessionName::Id(session))
    }

    /// Removes all entries of a holder.
    pub(crate) fn forget_holder(&self, holder: &Holder) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, known| known.id != holder.id);
    }
}
