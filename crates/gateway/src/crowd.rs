//! How many calls of an owner are in flight that belong to no session.
//!
//! A session counts its own calls. What a server is asked in nobody's name is counted here, by owner and server, and
//! who listens apart from who calls: whoever only listens keeps no call out. Owners meet in one of many tables, and what
//! is at nought is not known.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use stayput_core::Owner;

/// In how many tables owners are.
const TABLES: usize = 64;

/// Who is there, and how often.
pub(crate) struct Crowd {
    hasher: RandomState,
    tables: [Mutex<HashMap<At, u64>>; TABLES],
}

/// Whose calls, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct At {
    pub(crate) owner: Owner,
    pub(crate) server: Arc<str>,
    pub(crate) listens: bool,
}

/// One call in flight, until it is dropped.
pub(crate) struct Turn {
    crowd: Arc<Crowd>,
    at: At,
}

impl Crowd {
    /// One more call; none if there are as many as there may be.
    pub(crate) fn enter(self: &Arc<Self>, at: At, limit: u64) -> Option<Turn> {
        let mut table = self.table(&at)?;
        let count = table.entry(at.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(table);
        Some(Turn { crowd: self.clone(), at })
    }

    fn table(&self, at: &At) -> Option<MutexGuard<'_, HashMap<At, u64>>> {
        let index = usize::try_from(self.hasher.hash_one(at) % TABLES as u64).unwrap_or_default();
        Some(self.tables.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.tables.iter().map(|table| table.lock().unwrap().len()).sum()
    }
}

impl Default for Crowd {
    fn default() -> Self {
        let tables = std::array::from_fn(|_| Mutex::default());
        Self { hasher: RandomState::new(), tables }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(mut table) = self.crowd.table(&self.at) else { return };
        let Some(count) = table.get_mut(&self.at) else { return };
        *count -= 1;
        if *count == 0 {
            table.remove(&self.at);
        }
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crowd")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(owner: &str, server: &str, listens: bool) -> At {
        At { owner: Owner::verified("test", owner).unwrap(), server: server.into(), listens }
    }

    /// R062: one owner takes nothing from another, nor at one server from the next; who leaves makes room and is
    /// forgotten.
    #[test]
    fn each_owner_has_so_many_at_each_server() {
        let crowd = Arc::<Crowd>::default();
        let mut anns: Vec<_> =
            (0..5).map_while(|_| crowd.enter(at("ann", "notes", false), 2)).collect();
        assert_eq!(anns.len(), 2);
        let others =
            [at("bob", "notes", false), at("ann", "files", false), at("ann", "notes", true)];
        let others = others.map(|at| crowd.enter(at, 1).unwrap());
        drop(anns.pop());
        anns.push(crowd.enter(at("ann", "notes", false), 2).unwrap());
        assert!(crowd.enter(at("ann", "notes", false), 2).is_none());
        drop((anns, others));
        assert_eq!(crowd.known(), 0);
    }
}
