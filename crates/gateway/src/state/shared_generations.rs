//! Generations of shared links that owners without a session have seen.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stayput_core::{Generation, Owner};

/// Pool entry and generation of a link. State never carries over to a later entry, whatever its generation.
pub(crate) type EntryGeneration = (u64, Generation);

/// Generation of each shared link that an owner has seen in requests without a session. Kept in memory, because shared
/// links live only as long as this process.
#[derive(Debug, Default)]
pub(crate) struct SharedGenerations(Mutex<HashMap<String, HashMap<Owner, EntryGeneration>>>);

impl SharedGenerations {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<Owner, EntryGeneration>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this owner has seen an earlier generation, and so has lost state. An owner without an entry has lost
    /// nothing: it is recorded with this generation.
    pub(crate) fn lost(&self, owner: &Owner, server: &str, generation: EntryGeneration) -> bool {
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

    /// Records that this owner knows of the loss up to this generation.
    pub(crate) fn tell(&self, owner: &Owner, server: &str, generation: EntryGeneration) {
        let mut all = self.lock();
        let seen = all.entry(server.to_owned()).or_default().entry(owner.clone()).or_default();
        *seen = generation.max(*seen);
    }
}
