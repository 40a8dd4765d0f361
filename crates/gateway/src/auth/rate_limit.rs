//! Per-owner request rate limit (GCRA).
//!
//! A request costs one, and one more for each [`BYTES_PER_REQUEST`] of its body and of its answer. The size is known when
//! the bytes have come, so their cost is a debt: it delays the requests behind it.
//!
//! Each owner has one number: the time at which its bucket is full again. No timer runs. Owners with a full bucket are
//! dropped from the map. The map is sharded, so that one flooding owner does not block the others.

use std::{collections::HashMap, fmt, time::Duration};

use stayput_core::Owner;
use tokio::time::Instant;

use crate::auth::sharded_map::ShardedMap;

/// Number of owners in a shard above which full buckets are pruned.
const PRUNE_ABOVE: usize = 128;

/// Burst: an owner may save up the requests of this time.
const BURST: Duration = Duration::from_secs(2);

/// Number of bytes that cost as much as one request.
pub(crate) const BYTES_PER_REQUEST: usize = 64 << 10;

/// Longest time that an owner pays off the cost of bytes. A large body must not lock out an owner with a low rate.
const MAX_DEBT: Duration = Duration::from_secs(10);

/// Rate limiter of all owners.
pub(crate) struct RateLimiter {
    /// Time that one request costs. `None` disables the limit.
    each: Option<Duration>,
    tables: ShardedMap<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// Time at which the bucket of each owner is full again.
    full: HashMap<Owner, Instant>,
    /// Number of owners at which the shard is pruned next.
    crowded: usize,
}

/// The owner is over its rate; retry after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimited(pub(crate) Duration);

impl RateLimiter {
    /// Creates a limiter with this many requests per second and owner. `None` disables the limit.
    pub(crate) fn new(per_second: Option<usize>) -> Self {
        let per_second = per_second.map(|count| u32::try_from(count).unwrap_or(u32::MAX).max(1));
        let each = per_second.map(|count| Duration::from_secs(1) / count);
        Self { each, tables: ShardedMap::default() }
    }

    /// Takes one request out of the owner's bucket, at the current time. Without a limit the clock is not read.
    ///
    /// # Errors
    /// [`RateLimited`] if the bucket is empty.
    pub(crate) fn admit_now(&self, owner: &Owner) -> Result<(), RateLimited> {
        match self.each {
            Some(_) => self.admit(owner, Instant::now()),
            None => Ok(()),
        }
    }

    /// Takes one request out of the owner's bucket.
    ///
    /// # Errors
    /// [`RateLimited`] if the bucket is empty.
    pub(crate) fn admit(&self, owner: &Owner, now: Instant) -> Result<(), RateLimited> {
        let Some(each) = self.each else { return Ok(()) };
        let mut table = self.tables.lock(owner);
        let Some(full) = table.full.get_mut(owner) else {
            table.insert(owner.clone(), now + each, now);
            return Ok(());
        };
        let next = now.max(*full) + each;
        // A bucket always holds at least one request, however low the rate is.
        let wait = next.saturating_duration_since(now + BURST.max(each));
        if !wait.is_zero() {
            return Err(RateLimited(wait));
        }
        *full = next;
        Ok(())
    }

    /// Charges the owner for bytes, at the current time. For few bytes the clock is not read.
    pub(crate) fn charge_now(&self, owner: &Owner, bytes: usize) {
        if self.each.is_some() && bytes >= BYTES_PER_REQUEST {
            self.charge(owner, bytes, Instant::now());
        }
    }

    /// Charges the owner for bytes that were read or are about to be written.
    fn charge(&self, owner: &Owner, bytes: usize, now: Instant) {
        let requests = u32::try_from(bytes / BYTES_PER_REQUEST).unwrap_or(u32::MAX);
        let Some(each) = self.each.filter(|_| requests > 0) else { return };
        let cost = each.saturating_mul(requests);
        let mut table = self.tables.lock(owner);
        let before = table.full.get(owner).copied().unwrap_or(now).max(now);
        let most = before.max(now + BURST.max(each) + MAX_DEBT);
        let full = before.checked_add(cost).unwrap_or(most).min(most);
        table.insert(owner.clone(), full, now);
    }

    #[cfg(test)]
    fn tracked_owners(&self) -> usize {
        self.tables.all().map(|table| table.full.len()).sum()
    }
}

impl Buckets {
    /// Adds an owner. Drops full buckets when the map has doubled.
    fn insert(&mut self, owner: Owner, full: Instant, now: Instant) {
        if self.full.len() >= self.crowded.max(PRUNE_ABOVE) {
            self.full.retain(|_, full| *full > now);
            self.crowded = self.full.len() * 2;
        }
        self.full.insert(owner, full);
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("each", &self.each).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::verified("test", name).unwrap()
    }

    fn taken(rate_limiter: &RateLimiter, name: &str, now: Instant) -> usize {
        (0..10_000).take_while(|_| rate_limiter.admit(&owner(name), now).is_ok()).count()
    }

    /// R170: a bucket fills with time up to its limit. One owner uses up nothing of another.
    #[test]
    fn owners_have_separate_buckets() {
        let (rate, start) = (RateLimiter::new(Some(10)), Instant::now());
        assert_eq!(taken(&rate, "ann", start), 20, "what two seconds give");
        assert_eq!(rate.admit(&owner("ann"), start), Err(RateLimited(Duration::from_millis(100))));
        assert_eq!(taken(&rate, "bob", start), 20);
        let later = start + Duration::from_secs(1);
        assert_eq!(taken(&rate, "ann", later), 10);
        assert_eq!(taken(&rate, "ann", later + Duration::from_secs(100)), 20);
        assert_eq!(taken(&RateLimiter::new(None), "ann", start), 10_000);
    }

    /// A refused request does not extend the wait.
    #[test]
    fn refused_request_does_not_consume_budget() {
        let (rate, start) = (RateLimiter::new(Some(1)), Instant::now());
        assert_eq!(taken(&rate, "ann", start), 2);
        let refusals = (0..100).map(|_| rate.admit(&owner("ann"), start));
        assert!(refusals.into_iter().all(|it| it == Err(RateLimited(Duration::from_secs(1)))));
        assert_eq!(taken(&rate, "ann", start + Duration::from_secs(1)), 1);
    }

    /// R170: bytes cost as much as requests. An owner pays them off, and no longer than the limit.
    #[test]
    fn bytes_delay_the_next_requests() {
        let (rate, start) = (RateLimiter::new(Some(10)), Instant::now());
        rate.charge(&owner("ann"), BYTES_PER_REQUEST - 1, start);
        assert_eq!(taken(&rate, "ann", start), 20, "a small body costs nothing");
        rate.charge(&owner("bob"), 15 * BYTES_PER_REQUEST, start);
        assert_eq!(taken(&rate, "bob", start), 5);
        rate.charge(&owner("bob"), 15 * BYTES_PER_REQUEST, start);
        assert_eq!(taken(&rate, "bob", start + Duration::from_secs(1)), 0);
        assert_eq!(taken(&rate, "bob", start + Duration::from_secs(2)), 5);
        rate.charge(&owner("cleo"), usize::MAX, start);
        assert_eq!(taken(&rate, "cleo", start + MAX_DEBT), 0);
        assert_eq!(taken(&rate, "cleo", start + MAX_DEBT + Duration::from_secs(1)), 10);
    }

    #[test]
    fn idle_owners_are_pruned() {
        let (rate, start) = (RateLimiter::new(Some(100)), Instant::now());
        for number in 0..100_000_u32 {
            let now = start + Duration::from_millis(number.into());
            assert_eq!(rate.admit(&owner(&number.to_string()), now), Ok(()));
        }
        assert!(
            rate.tracked_owners() <= rate.tables.all().count() * (PRUNE_ABOVE + 1),
            "{}",
            rate.tracked_owners()
        );
    }
}
