//! All slots, by what they are found by.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use stayput_core::SessionId;

use super::slot::Slot;
use crate::{Budget, Isolation, LinkKey, Place, Server, Wanted, lock::lock};

/// All slots. The lock is held for a look, never while something is waited for.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    slots: HashMap<LinkKey, Arc<Slot>>,
    /// A session has few links, most have one: a list takes a quarter of what a set would.
    sessions: HashMap<SessionId, Vec<LinkKey>>,
}

impl Table {
    /// The slot for this key; made if it is not there.
    pub(super) fn slot(&self, key: LinkKey, server: &Server, budget: &Budget) -> Arc<Slot> {
        let mut table = lock(&self.0);
        if let Some(slot) = table.slots.get(&key) {
            return slot.clone();
        }
        if let Some(session) = key.scope().session() {
            let keys = table.sessions.entry(session).or_default();
            keys.reserve_exact(1);
            keys.push(key.clone());
        }
        let slot = Arc::new(Slot::new(key.clone(), server.clone(), budget.clone()));
        table.slots.insert(key, slot.clone());
        slot
    }

    pub(super) fn get(&self, key: &LinkKey) -> Option<Arc<Slot>> {
        lock(&self.0).slots.get(key).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        lock(&self.0).slots.values().cloned().collect()
    }

    /// Takes out all slots of a session.
    pub(super) fn remove_session(&self, session: SessionId) -> Vec<Arc<Slot>> {
        let mut table = lock(&self.0);
        let keys = table.sessions.remove(&session).unwrap_or_default();
        keys.iter().filter_map(|key| table.remove(key)).collect()
    }

    /// Takes out all slots with such a key.
    pub(super) fn remove_where(&self, which: impl Fn(&LinkKey) -> bool) -> Vec<Arc<Slot>> {
        let mut table = lock(&self.0);
        let keys: Vec<LinkKey> = table.slots.keys().filter(|key| which(key)).cloned().collect();
        keys.iter().filter_map(|key| table.remove(key)).collect()
    }

    /// The slots through which `place` may reach `server`, whatever the isolation.
    pub(super) fn of_place(&self, server: &Server, place: &Place) -> Vec<Arc<Slot>> {
        let table = lock(&self.0);
        let all = [Isolation::PerSession, Isolation::PerOwner, Isolation::Shared];
        let keys = all.map(|isolation| LinkKey::of(server, isolation, place));
        keys.iter().filter_map(|key| table.slots.get(key).cloned()).collect()
    }

    /// Ends the idle link that was not used for longest. Says whether there was one.
    pub(super) fn recycle(&self, wanted: Wanted<'_>) -> bool {
        let mut idle: Vec<_> = {
            let table = lock(&self.0);
            let fits = table.slots.iter().filter(|(key, slot)| {
                (!wanted.process || slot.server.is_process())
                    && (wanted.owner.is_none() || key.scope().owner() == wanted.owner)
            });
            let fits = fits.map(|(_, slot)| slot.clone());
            fits.filter_map(|slot| Some((slot.idle_since()?, slot))).collect()
        };
        idle.sort_by_key(|(since, _)| *since);
        // The first may have been taken into use since it was looked at.
        idle.iter().any(|(_, slot)| slot.recycle().is_some())
    }
}

impl Slots {
    fn remove(&mut self, key: &LinkKey) -> Option<Arc<Slot>> {
        if let Some(session) = key.scope().session()
            && let Some(keys) = self.sessions.get_mut(&session)
        {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.sessions.remove(&session);
            }
        }
        self.slots.remove(key)
    }
}
