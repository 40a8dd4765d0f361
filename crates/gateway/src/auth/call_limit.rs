//! Limit of calls in flight that belong to no session.
//!
//! A session counts its own calls. Calls without a session are counted here, by owner and server. Listening requests
//! are counted apart from calls, so that they do not use up the limit of calls. Entries with a count of zero are
//! removed.

use std::{collections::HashMap, fmt, sync::Arc};

use stayput_core::{HandleHash, Owner};

use crate::auth::sharded_map::ShardedMap;

/// Counters of calls in flight.
#[derive(Default)]
pub(crate) struct CallLimiter(ShardedMap<HashMap<LimitKey, u64>>);

/// Key of a counter: client, server, and whether it counts requests that listen.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LimitKey {
    pub(crate) owner: Owner,
    /// Connection of the client. Clients of an owner that have none are counted together.
    pub(crate) connection: Option<HandleHash>,
    pub(crate) server: Arc<str>,
    pub(crate) listens: bool,
}

/// Permit of one call in flight. Dropping it decrements the count.
pub(crate) struct CallPermit {
    call_limiter: Arc<CallLimiter>,
    at: LimitKey,
}

impl CallLimiter {
    /// Counts one more call. Returns `None` if the limit is reached.
    pub(crate) fn enter(self: &Arc<Self>, at: LimitKey, limit: u64) -> Option<CallPermit> {
        let mut table = self.0.lock(&at);
        let count = table.entry(at.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(table);
        Some(CallPermit { call_limiter: self.clone(), at })
    }

    #[cfg(test)]
    fn tracked_owners(&self) -> usize {
        self.0.all().map(|table| table.len()).sum()
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut table = self.call_limiter.0.lock(&self.at);
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

    fn at(owner: &str, server: &str, listens: bool) -> LimitKey {
        let owner = Owner::verified("test", owner).unwrap();
        LimitKey { owner, connection: None, server: server.into(), listens }
    }

    /// R170: one owner uses up nothing of another, nor one server of another. Dropping a permit frees its slot, and
    /// removes the entry when the count is zero.
    #[test]
    fn limit_applies_to_each_owner_and_server() {
        let limiter = Arc::<CallLimiter>::default();
        let mut anns: Vec<_> =
            (0..5).map_while(|_| limiter.enter(at("ann", "notes", false), 2)).collect();
        assert_eq!(anns.len(), 2);
        let others =
            [at("bob", "notes", false), at("ann", "files", false), at("ann", "notes", true)];
        let others = others.map(|at| limiter.enter(at, 1).unwrap());
        drop(anns.pop());
        anns.push(limiter.enter(at("ann", "notes", false), 2).unwrap());
        assert!(limiter.enter(at("ann", "notes", false), 2).is_none());
        drop((anns, others));
        assert_eq!(limiter.tracked_owners(), 0);
    }
}
