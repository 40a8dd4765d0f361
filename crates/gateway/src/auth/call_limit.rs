//! How many calls of an owner are in flight that belong to no session.
//!
//! A session counts its own calls. What a server is asked in nobody's name is counted here, by owner and server, and
//! who listens apart from who calls: whoever only listens keeps no call out. What is at nought is not known.

use std::{collections::HashMap, fmt, sync::Arc};

use stayput_core::Owner;

use crate::auth::sharded_map::ShardedMap;

/// Who is there, and how often.
#[derive(Default)]
pub(crate) struct CallLimiter(ShardedMap<HashMap<At, u64>>);

/// Whose calls, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct At {
    pub(crate) owner: Owner,
    pub(crate) server: Arc<str>,
    pub(crate) listens: bool,
}

/// One call in flight, until it is dropped.
pub(crate) struct CallPermit {
    crowd: Arc<CallLimiter>,
    at: At,
}

impl CallLimiter {
    /// One more call; none if there are as many as there may be.
    pub(crate) fn enter(self: &Arc<Self>, at: At, limit: u64) -> Option<CallPermit> {
        let mut table = self.0.of(&at);
        let count = table.entry(at.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(table);
        Some(CallPermit { crowd: self.clone(), at })
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.0.all().map(|table| table.len()).sum()
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut table = self.crowd.0.of(&self.at);
        let Some(count) = table.get_mut(&self.at) else { return };
        *count -= 1;
        if *count == 0 {
            table.remove(&self.at);
        }
    }
}

impl fmt::Debug for CallLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallLimiter")
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
        let crowd = Arc::<CallLimiter>::default();
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
