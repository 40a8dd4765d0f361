//! How many requests an owner may make in a second.
//!
//! A bucket for each owner, as one number: the moment at which it would be full again. There is no timer, and owners
//! whose bucket is full are forgotten. Owners meet in one of many tables, so that nobody waits for one who floods.

use std::{collections::HashMap, fmt, time::Duration};

use stayput_core::Owner;
use tokio::time::Instant;

use crate::auth::sharded_map::ShardedMap;

/// How many owners a table has before those with full buckets are looked for.
const CROWDED: usize = 128;

/// For how long an owner may have saved up requests.
const BURST: Duration = Duration::from_secs(2);

/// When each owner may go on.
pub(crate) struct RateLimiter {
    /// The time that one request takes up; none if there is no limit.
    each: Option<Duration>,
    tables: ShardedMap<Table>,
}

#[derive(Default)]
struct Table {
    /// When the bucket of each owner is full again.
    full: HashMap<Owner, Instant>,
    /// At how many owners those that need not be known are looked for again.
    crowded: usize,
}

/// Too many requests: when the next one is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimited(pub(crate) Duration);

impl RateLimiter {
    /// So many requests in a second for each owner, if there is a limit.
    pub(crate) fn new(per_second: Option<usize>) -> Self {
        let per_second = per_second.map(|count| u32::try_from(count).unwrap_or(u32::MAX).max(1));
        let each = per_second.map(|count| Duration::from_secs(1) / count);
        Self { each, tables: ShardedMap::default() }
    }

    /// Takes one request of an owner out of its bucket, at this moment. Where there is no limit no clock is read.
    ///
    /// # Errors
    /// [`RateLimited`] if there is none left.
    pub(crate) fn admit_now(&self, owner: &Owner) -> Result<(), RateLimited> {
        match self.each {
            Some(_) => self.admit(owner, Instant::now()),
            None => Ok(()),
        }
    }

    /// Takes one request of an owner out of its bucket.
    ///
    /// # Errors
    /// [`RateLimited`] if there is none left.
    pub(crate) fn admit(&self, owner: &Owner, now: Instant) -> Result<(), RateLimited> {
        let Some(each) = self.each else { return Ok(()) };
        let mut table = self.tables.of(owner);
        let Some(full) = table.full.get_mut(owner) else {
            table.meet(owner.clone(), now + each, now);
            return Ok(());
        };
        let next = now.max(*full) + each;
        // One request is always in the bucket, however little each second gives.
        let wait = next.saturating_duration_since(now + BURST.max(each));
        if !wait.is_zero() {
            return Err(RateLimited(wait));
        }
        *full = next;
        Ok(())
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.tables.all().map(|table| table.full.len()).sum()
    }
}

impl Table {
    /// Knows one more owner, and forgets those of whom nothing need be known.
    fn meet(&mut self, owner: Owner, full: Instant, now: Instant) {
        if self.full.len() >= self.crowded.max(CROWDED) {
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

    fn taken(pace: &RateLimiter, name: &str, now: Instant) -> usize {
        (0..10_000).take_while(|_| pace.admit(&owner(name), now).is_ok()).count()
    }

    /// R062: a bucket fills with time and no further; one owner takes nothing from another.
    #[test]
    fn each_owner_has_a_bucket_of_its_own() {
        let (pace, start) = (RateLimiter::new(Some(10)), Instant::now());
        assert_eq!(taken(&pace, "ann", start), 20, "what two seconds give");
        assert_eq!(pace.admit(&owner("ann"), start), Err(RateLimited(Duration::from_millis(100))));
        assert_eq!(taken(&pace, "bob", start), 20);
        let later = start + Duration::from_secs(1);
        assert_eq!(taken(&pace, "ann", later), 10);
        assert_eq!(taken(&pace, "ann", later + Duration::from_secs(100)), 20);
        assert_eq!(taken(&RateLimiter::new(None), "ann", start), 10_000);
    }

    /// Who asks in vain does not wait longer for it.
    #[test]
    fn what_is_refused_takes_nothing() {
        let (pace, start) = (RateLimiter::new(Some(1)), Instant::now());
        assert_eq!(taken(&pace, "ann", start), 2);
        let asked = (0..100).map(|_| pace.admit(&owner("ann"), start));
        assert!(asked.into_iter().all(|it| it == Err(RateLimited(Duration::from_secs(1)))));
        assert_eq!(taken(&pace, "ann", start + Duration::from_secs(1)), 1);
    }

    #[test]
    fn owners_that_are_idle_are_forgotten() {
        let (pace, start) = (RateLimiter::new(Some(100)), Instant::now());
        for number in 0..100_000_u32 {
            let now = start + Duration::from_millis(number.into());
            assert_eq!(pace.admit(&owner(&number.to_string()), now), Ok(()));
        }
        assert!(pace.known() <= pace.tables.all().count() * (CROWDED + 1), "{}", pace.known());
    }
}
