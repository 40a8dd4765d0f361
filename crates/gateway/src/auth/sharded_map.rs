//! Sharded map, so that one flooding owner does not block the others.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::MutexGuard,
};

use stayput_sync::Mutex;

/// Number of shards.
const SHARDS: usize = 64;

/// Shards of one kind. A key always maps to the same shard. The hash is seeded, so a client cannot choose its shard.
pub(crate) struct ShardedMap<T> {
    hasher: RandomState,
    tables: [Mutex<T>; SHARDS],
}

impl<T> ShardedMap<T> {
    /// Locks the shard of this key.
    pub(crate) fn lock(&self, key: &impl Hash) -> MutexGuard<'_, T> {
        let at = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or_default();
        self.tables[at].lock()
    }

    /// Locks all shards, one after the other.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.tables.iter().map(|table| table.lock())
    }
}

impl<T: Default> Default for ShardedMap<T> {
    fn default() -> Self {
        let tables = std::array::from_fn(|_| Mutex::default());
        Self { hasher: RandomState::new(), tables }
    }
}
