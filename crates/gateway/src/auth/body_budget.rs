//! Memory budget of request bodies, per owner and in all.
//!
//! A body takes its bytes out of the budget before they are read, and returns them when its last reference is dropped.
//! Bodies up to [`FREE_BYTES`] are not counted: the limit of sockets bounds them, and most requests are that small.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use stayput_core::Owner;

use crate::auth::sharded_map::ShardedMap;

/// Largest body that is not counted.
pub(crate) const FREE_BYTES: usize = 8 << 10;

/// Limits of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// Maximum size of one body in bytes.
    pub(crate) each: usize,
    /// Maximum bytes of the bodies of one owner at the same time.
    pub(crate) per_owner: usize,
    /// Maximum bytes of all bodies at the same time.
    pub(crate) all: usize,
    /// Maximum time from the first to the last byte of a body.
    pub(crate) time: Duration,
}

/// Reason why a body does not fit into the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverBudget {
    /// The bodies of its owner use up the owner's budget.
    Owner,
    /// All bodies together use up the budget.
    All,
}

/// Bytes of request bodies that are in memory.
#[derive(Default)]
pub(crate) struct BodyBudget {
    all: AtomicUsize,
    owners: ShardedMap<HashMap<Owner, usize>>,
}

/// Bytes of one body in the budget. Dropping it returns them.
pub(crate) struct BodyPermit {
    budget: Arc<BodyBudget>,
    owner: Owner,
    bytes: usize,
}

impl BodyBudget {
    /// Creates the permit of a body that has no bytes yet.
    pub(crate) fn permit(self: &Arc<Self>, owner: &Owner) -> BodyPermit {
        BodyPermit { budget: self.clone(), owner: owner.clone(), bytes: 0 }
    }

    /// Number of bytes in all.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.all.load(Ordering::Acquire)
    }
}

impl BodyPermit {
    /// Takes more bytes out of the budget, so that the body has `bytes`.
    ///
    /// # Errors
    /// [`OverBudget`] if they do not fit; nothing was taken then.
    pub(crate) fn grow(&mut self, bytes: usize, limits: &BodyLimits) -> Result<(), OverBudget> {
        let more = bytes.saturating_sub(self.bytes);
        let mut owners = self.budget.owners.lock(&self.owner);
        let own = owners.get(&self.owner).copied().unwrap_or_default().saturating_add(more);
        if own > limits.per_owner {
            return Err(OverBudget::Owner);
        }
        let fits = |all: usize| all.checked_add(more).filter(|all| *all <= limits.all);
        let taken = self.budget.all.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        taken.map_err(|_| OverBudget::All)?;
        owners.insert(self.owner.clone(), own);
        self.bytes += more;
        Ok(())
    }

    /// Joins the permit with the bytes that it stands for.
    pub(crate) fn attach(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(CountedBody { body, _permit: self })
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.budget.all.fetch_sub(self.bytes, Ordering::AcqRel);
        let mut owners = self.budget.owners.lock(&self.owner);
        let Some(own) = owners.get_mut(&self.owner) else { return };
        *own = own.saturating_sub(self.bytes);
        if *own == 0 {
            owners.remove(&self.owner);
        }
    }
}

/// Body together with its permit.
struct CountedBody {
    body: Vec<u8>,
    _permit: BodyPermit,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl fmt::Debug for BodyBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyBudget({} bytes)", self.all.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BodyLimits =
        BodyLimits { each: 100, per_owner: 100, all: 150, time: Duration::from_secs(1) };

    fn permit(budget: &Arc<BodyBudget>, owner: &str) -> BodyPermit {
        budget.permit(&Owner::verified("test", owner).unwrap())
    }

    /// R170: an owner has its own budget, and all owners together have one. Dropped bodies return their bytes.
    #[test]
    fn bodies_over_a_budget_are_refused_until_others_are_dropped() {
        let budget = Arc::new(BodyBudget::default());
        let [mut ann, mut too, mut bob] = ["ann", "ann", "bob"].map(|it| permit(&budget, it));
        assert_eq!(ann.grow(60, &LIMITS), Ok(()));
        assert_eq!(too.grow(41, &LIMITS), Err(OverBudget::Owner));
        assert_eq!(too.grow(40, &LIMITS), Ok(()));
        assert_eq!(bob.grow(51, &LIMITS), Err(OverBudget::All));
        assert_eq!(bob.grow(50, &LIMITS), Ok(()));
        assert_eq!(ann.grow(10, &LIMITS), Ok(()), "it has more already");
        let body = too.attach(vec![0; 40]);
        let part = body.slice(1..2);
        drop(body);
        assert_eq!(budget.bytes(), 150, "a part of it is in use");
        drop(part);
        assert_eq!(bob.grow(90, &LIMITS), Ok(()));
        drop((ann, bob));
        assert_eq!(budget.bytes(), 0);
        assert_eq!(budget.owners.all().map(|owners| owners.len()).sum::<usize>(), 0);
    }
}
