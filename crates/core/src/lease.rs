//! Who holds a session, and until when.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Epoch, Reading, random,
    text::{self, InvalidText, serde_as_text},
};

/// The name of one process that holds sessions: random, and new at every start unless the process makes
/// sure that nobody else has its old name. Then it has at once what it held under it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId(Uuid);

impl HolderId {
    /// A new name.
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

/// A process that holds sessions, and where the others reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its name. No two processes that live may have the same; one that starts with the name of another
    /// says that the other is gone, and takes over at once what that one held.
    pub id: HolderId,
    /// Where other holders forward to; empty if nobody can.
    pub address: String,
}

impl Holder {
    /// The most bytes an address may have.
    pub const ADDRESS_LIMIT: usize = 512;

    /// A new holder that nobody forwards to.
    #[must_use]
    pub fn unreachable() -> Self {
        Self { id: HolderId::generate(), address: String::new() }
    }

    /// A new holder that others reach at `address`.
    ///
    /// # Errors
    /// If the address is empty, longer than [`Holder::ADDRESS_LIMIT`] or unprintable.
    pub fn at(address: &str) -> Result<Self, InvalidText> {
        text::check("the address of a holder", address, Self::ADDRESS_LIMIT)?;
        Ok(Self { id: HolderId::generate(), address: address.to_owned() })
    }
}

/// The right of one holder to write, for as long as it renews it: a fencing token.
///
/// A store gives it out by `hold`. Every write carries it, and a write to a session that another
/// lease has claimed is refused. Holder and epoch together are the token, so that a store which
/// forgot its last epochs in a crash cannot hand out the same token twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who has it.
    pub holder: HolderId,
    /// Its number in the store.
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

/// How long a holder may believe in its own lease.
///
/// The store's clock judges a lease, but the holder cannot see that clock. So it counts on its own,
/// from *before* it asked, and stops a margin early: it is never the last to know. It counts on both
/// faces of its clock: one can be set back by hand, the other stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    lease: Lease,
    until: Option<Reading>,
}

impl Tenure {
    /// The tenure of a lease over `ttl` that was asked for at `asked`.
    #[must_use]
    pub fn new(lease: Lease, asked: Reading, ttl: Duration) -> Self {
        // A tenth, for the drift of two clocks and the way of one packet.
        let span = ttl - ttl / 10;
        let wall = asked.wall.after(span);
        let until = Reading { wall, monotonic: asked.monotonic.saturating_add(span) };
        Self { lease, until: Some(until) }
    }

    /// The same lease, not to be used any more.
    #[must_use]
    pub fn ended(self) -> Self {
        Self { until: None, ..self }
    }

    /// The lease, to be renewed or left: whether it is still good is for the store to say.
    #[must_use]
    pub fn renewable(&self) -> Lease {
        self.lease
    }

    /// The lease, if it may still be used at `now`.
    #[must_use]
    pub fn lease(&self, now: Reading) -> Option<Lease> {
        let until = self.until?;
        (now.monotonic < until.monotonic && now.wall < until.wall).then_some(self.lease)
    }
}

/// Until when a process may use its sessions, for whoever asks with every call: to look at it is to write nothing,
/// so that processors do not take it from each other.
#[derive(Debug, Default)]
pub(crate) struct Until {
    /// In milliseconds.
    wall: AtomicU64,
    /// In nanoseconds.
    monotonic: AtomicU64,
}

impl Until {
    pub(crate) fn of(tenure: &Tenure) -> Self {
        let until = Self::default();
        until.set(tenure);
        until
    }

    /// As this tenure says. Of two numbers that are not of the same one, either is good for less than it could be.
    pub(crate) fn set(&self, tenure: &Tenure) {
        let until = tenure.until.map(|until| (until.wall.as_millis(), nanos(until.monotonic)));
        let (wall, monotonic) = until.unwrap_or_default();
        self.wall.store(wall, Ordering::Release);
        self.monotonic.store(monotonic, Ordering::Release);
    }

    /// Whether it is not over, as far as can be seen without a lock. If not, the tenure itself is to be asked.
    pub(crate) fn has(&self, now: Reading) -> bool {
        now.wall.as_millis() < self.wall.load(Ordering::Acquire)
            && nanos(now.monotonic) < self.monotonic.load(Ordering::Acquire)
    }
}

/// More nanoseconds than fit are five centuries.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn a_lease_has_one_text_form() {
        let lease = Lease { holder: HolderId::generate(), epoch: Epoch(7) };
        assert_eq!(lease.to_string().parse(), Ok(lease));
        for bad in ["", "7", "7@", "@x", "7@x", "x@00000000-0000-0000-0000-000000000000"] {
            assert!(bad.parse::<Lease>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_holder_stops_before_its_lease_does() {
        let lease = Lease { holder: HolderId::generate(), epoch: Epoch(1) };
        let at = |wall: u64, monotonic: u64| Reading {
            wall: Timestamp::from_millis(wall * 1_000),
            monotonic: Duration::from_secs(monotonic),
        };
        let tenure = Tenure::new(lease, at(100, 5), Duration::from_secs(10));
        let until = Until::of(&tenure);
        for now in [at(108, 13), at(108, 14), at(109, 6), at(100, 5)] {
            assert_eq!(until.has(now), tenure.lease(now).is_some());
        }
        until.set(&tenure.ended());
        assert!(!until.has(at(100, 5)));
        assert_eq!(tenure.lease(at(108, 13)), Some(lease));
        assert_eq!(tenure.lease(at(108, 14)), None, "somebody set the clock back");
        assert_eq!(tenure.lease(at(109, 6)), None, "the machine was asleep");
        assert_eq!(tenure.ended().lease(at(100, 5)), None);
        let forever = Tenure::new(lease, at(100, 5), Duration::MAX);
        assert_eq!(forever.lease(at(9_999_999, 9_999_999)), Some(lease));
        assert!(Until::of(&forever).has(at(9_999_999, 9_999_999)));
    }
}
