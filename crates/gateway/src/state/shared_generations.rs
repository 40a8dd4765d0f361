//! Generations of shared links that users without a session have seen.

use std::collections::HashMap;

use stayput_core::{Generation, HandleHash, Owner};
use stayput_sync::Mutex;

/// Pool entry and generation of a link. State never carries over to a later entry, whatever its generation.
pub(crate) type EntryGeneration = (u64, Generation);

/// User of a shared link that is told of its losses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SharedUser {
    /// All clients of an owner that have no connection.
    Owner(Owner),
    /// Client with a connection.
    Connection(HandleHash),
}

/// Generations by server and user.
type Generations = HashMap<String, HashMap<SharedUser, EntryGeneration>>;

/// Generation of each shared link that a user has seen in requests without a session. Kept in memory, because shared
/// links live only as long as this process. What has to outlive it is in the store, too (`shared_servers.rs`).
#[derive(Debug, Default)]
pub(crate) struct SharedGenerations(Mutex<Generations>);

impl SharedGenerations {
    /// Whether this user has seen an earlier generation, and so has lost state. A user without an entry has lost
    /// nothing: it is recorded with this generation.
    pub(crate) fn lost(
        &self,
        user: &SharedUser,
        server: &str,
        generation: EntryGeneration,
    ) -> bool {
        let mut all = self.0.lock();
        match all.get_mut(server) {
            Some(users) => match users.get(user) {
                Some(seen) => *seen < generation,
                None => {
                    users.insert(user.clone(), generation);
                    false
                }
            },
            None => {
                all.insert(server.to_owned(), HashMap::from([(user.clone(), generation)]));
                false
            }
        }
    }

    /// Whether a generation is recorded for this user.
    pub(crate) fn has(&self, user: &SharedUser, server: &str) -> bool {
        self.0.lock().get(server).is_some_and(|users| users.contains_key(user))
    }

    /// Records that this user knows of the loss up to this generation.
    pub(crate) fn acknowledge(&self, user: &SharedUser, server: &str, generation: EntryGeneration) {
        let mut all = self.0.lock();
        let seen = all.entry(server.to_owned()).or_default().entry(user.clone()).or_default();
        *seen = generation.max(*seen);
    }
}
