//! Tables of owners, many of them, so that nobody waits for one who floods.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many there are.
const COUNT: usize = 64;

/// Many tables of one kind. Whoever is looked for is always in the same one, which nobody from outside can choose.
pub(crate) struct ShardedMap<T> {
    hasher: RandomState,
    tables: [Mutex<T>; COUNT],
}

impl<T> ShardedMap<T> {
    /// The table of this one.
    pub(crate) fn of(&self, key: &impl Hash) -> MutexGuard<'_, T> {
        let at = usize::try_from(self.hasher.hash_one(key) % COUNT as u64).unwrap_or_default();
        self.tables[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, one after the other.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.tables.iter().map(|table| table.lock().unwrap())
    }
}

impl<T: Default> Default for ShardedMap<T> {
    fn default() -> Self {
        let tables = std::array::from_fn(|_| Mutex::default());
        Self { hasher: RandomState::new(), tables }
    }
}
