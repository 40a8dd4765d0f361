//! Leases: which process holds a session, and for how long.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    ClockReading, Epoch,
    identity::random,
    identity::text::{self, InvalidText, serde_as_text},
};

/// Id of one process that holds sessions. It is random and new at every start, unless the process
/// makes sure that no other process uses its old id. With the old id it can take over at once the
/// sessions it held under it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId(Uuid);

impl HolderId {
    /// Generates a new id.
    #[must_use]
    pub fn generate() -> Self {
        Self(uuid::Builder::from_random_bytes(random::bytes()).into_uuid())
    }
}

impl FromStr for HolderId {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match Uuid::try_parse(text) {
            Ok(uuid) if text.len() == 36 => Ok(Self(uuid)),
            _ => Err(InvalidText::form("a holder id", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")),
        }
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({self})")
    }
}

serde_as_text!(HolderId, to_string);

/// Process that holds sessions, with the address where other processes reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Id of the process. No two live processes may share one. A process that starts with an id
    /// used before declares that the previous one is gone, and takes over its sessions at once.
    pub id: HolderId,
    /// Address to which other holders forward requests; empty if there is none.
    pub address: String,
}

impl Holder {
    /// Maximum length of an address in bytes.
    pub const MAX_ADDRESS_BYTES: usize = 512;

    /// Builds a new holder without an address.
    #[must_use]
    pub fn unreachable() -> Self {
        Self { id: HolderId::generate(), address: String::new() }
    }

    /// Builds a new holder that others reach at `address`.
    ///
    /// # Errors
    /// If the address is empty, longer than [`Holder::MAX_ADDRESS_BYTES`] or unprintable.
    pub fn at(address: &str) -> Result<Self, InvalidText> {
        text::check("the address of a holder", address, Self::MAX_ADDRESS_BYTES)?;
        Ok(Self { id: HolderId::generate(), address: address.to_owned() })
    }
}

/// Right of one holder to write until the lease expires: a fencing token.
///
/// A store grants it by `acquire_lease`. Every write carries it, and a write to a session that
/// another lease has claimed is refused. Holder and epoch together are the token, so that a store
/// that lost its last epochs in a crash cannot grant the same token twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Holder of the lease.
    pub holder: HolderId,
    /// Number of the lease in the store.
    pub epoch: Epoch,
}

impl FromStr for Lease {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let form = || InvalidText::form("a lease", "epoch@holder");
        let (epoch, holder) = text.split_once('@').ok_or_else(form)?;
        let digits = !epoch.is_empty() && epoch.bytes().all(|digit| digit.is_ascii_digit());
        let epoch = epoch.parse().ok().filter(|_| digits).ok_or_else(form)?;
        Ok(Self { holder: holder.parse()?, epoch: Epoch(epoch) })
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.epoch, self.holder)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({self})")
    }
}

serde_as_text!(Lease, to_string);

/// Time for which a holder may rely on its own lease.
///
/// The store's clock decides when a lease expires, and the holder cannot see that clock. So the
/// holder counts from *before* it sent the request and stops a margin early: it never uses a lease
/// that the store already considers expired. It checks both wall-clock and monotonic time, because
/// the first can be set back by hand and the second stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub struct LeaseValidity {
    lease: Lease,
    until: Option<ClockReading>,
}

impl LeaseValidity {
    /// Builds the validity of a lease over `ttl` that was requested at `requested`.
    #[must_use]
    pub fn new(lease: Lease, requested: ClockReading, ttl: Duration) -> Self {
        // One tenth covers the drift of two clocks and the delay of one packet.
        let span = ttl - ttl / 10;
        let wall = requested.wall.after(span);
        let until = ClockReading { wall, monotonic: requested.monotonic.saturating_add(span) };
        Self { lease, until: Some(until) }
    }

    /// Returns the same lease with a validity that has ended.
    #[must_use]
    pub fn invalidate(self) -> Self {
        Self { until: None, ..self }
    }

    /// Returns the lease for renewal or release. Only the store knows whether it is still alive.
    #[must_use]
    pub fn renewable_lease(&self) -> Lease {
        self.lease
    }

    /// Returns the lease if it may still be used at `now`.
    #[must_use]
    pub fn lease(&self, now: ClockReading) -> Option<Lease> {
        let until = self.until?;
        (now.monotonic < until.monotonic && now.wall < until.wall).then_some(self.lease)
    }
}

/// Copy of the end of a [`LeaseValidity`] in two atomics. Every call reads it; a read writes
/// nothing, so that processors do not contend for the cache line.
#[derive(Debug, Default)]
pub(crate) struct LeaseDeadline {
    /// Milliseconds.
    wall: AtomicU64,
    /// Nanoseconds.
    monotonic: AtomicU64,
}

impl LeaseDeadline {
    pub(crate) fn new(validity: &LeaseValidity) -> Self {
        let deadline = Self::default();
        deadline.set(validity);
        deadline
    }

    /// Copies the end of `validity`. A reader between the two stores mixes two validities; the mix
    /// is never valid for longer than the later one.
    pub(crate) fn set(&self, validity: &LeaseValidity) {
        let until = validity.until.map(|until| (until.wall.as_millis(), nanos(until.monotonic)));
        let (wall, monotonic) = until.unwrap_or_default();
        self.wall.store(wall, Ordering::Release);
        self.monotonic.store(monotonic, Ordering::Release);
    }

    /// Returns whether the lease is valid at `now`, without a lock. If not, the caller checks the
    /// [`LeaseValidity`] itself.
    pub(crate) fn is_valid(&self, now: ClockReading) -> bool {
        now.wall.as_millis() < self.wall.load(Ordering::Acquire)
            && nanos(now.monotonic) < self.monotonic.load(Ordering::Acquire)
    }
}

/// Converts to nanoseconds. 64 bits hold five centuries.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn lease_parses_its_text_form_only() {
        let lease = Lease { holder: HolderId::generate(), epoch: Epoch(7) };
        assert_eq!(lease.to_string().parse(), Ok(lease));
        for bad in ["", "7", "7@", "@x", "7@x", "x@00000000-0000-0000-0000-000000000000"] {
            assert!(bad.parse::<Lease>().is_err(), "{bad}");
        }
    }

    #[test]
    fn validity_ends_before_the_lease() {
        let lease = Lease { holder: HolderId::generate(), epoch: Epoch(1) };
        let at = |wall: u64, monotonic: u64| ClockReading {
            wall: Timestamp::from_millis(wall * 1_000),
            monotonic: Duration::from_secs(monotonic),
        };
        let validity = LeaseValidity::new(lease, at(100, 5), Duration::from_secs(10));
        let deadline = LeaseDeadline::new(&validity);
        for now in [at(108, 13), at(108, 14), at(109, 6), at(100, 5)] {
            assert_eq!(deadline.is_valid(now), validity.lease(now).is_some());
        }
        deadline.set(&validity.invalidate());
        assert!(!deadline.is_valid(at(100, 5)));
        assert_eq!(validity.lease(at(108, 13)), Some(lease));
        assert_eq!(validity.lease(at(108, 14)), None, "the wall clock was set back");
        assert_eq!(validity.lease(at(109, 6)), None, "the machine was asleep");
        assert_eq!(validity.invalidate().lease(at(100, 5)), None);
        let forever = LeaseValidity::new(lease, at(100, 5), Duration::MAX);
        assert_eq!(forever.lease(at(9_999_999, 9_999_999)), Some(lease));
        assert!(LeaseDeadline::new(&forever).is_valid(at(9_999_999, 9_999_999)));
    }
}
