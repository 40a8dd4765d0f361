//! Links that all share: which state of them an owner has seen whose requests belong to no session.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stayput_core::{Generation, Owner};

/// Which state behind a link: what is behind one in a later slot is another, whatever its generation.
pub(crate) type Behind = (u64, Generation);

/// Which generation of a link that all share an owner has seen whose requests belong to no session. It is of this
/// process, as such links are.
#[derive(Debug, Default)]
pub(crate) struct SharedGenerations(Mutex<HashMap<String, HashMap<Owner, Behind>>>);

impl SharedGenerations {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<Owner, Behind>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this owner has seen an earlier generation, and so lost it. Who comes for the first time has lost
    /// nothing.
    pub(crate) fn lost(&self, owner: &Owner, server: &str, generation: Behind) -> bool {
        let mut all = self.lock();
        match all.get_mut(server) {
            Some(owners) => match owners.get(owner) {
                Some(seen) => *seen < generation,
                None => {
                    owners.insert(owner.clone(), generation);
                    false
                }
            },
            None => {
                all.insert(server.to_owned(), HashMap::from([(owner.clone(), generation)]));
                false
            }
        }
    }

    /// This owner was told of the loss up to this generation.
    pub(crate) fn tell(&self, owner: &Owner, server: &str, generation: Behind) {
        let mut all = self.lock();
        let seen = all.entry(server.to_owned()).or_default().entry(owner.clone()).or_default();
        *seen = generation.max(*seen);
    }
}
