//! Time as a value, and the one place that reads it.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(u64);

impl From<u64> for Timestamp {
    /// As [`Timestamp::from_millis`].
    fn from(millis: u64) -> Self {
        Self::from_millis(millis)
    }
}

impl From<Timestamp> for u64 {
    fn from(at: Timestamp) -> Self {
        at.0
    }
}

impl Timestamp {
    /// The last moment there is. It fits the signed 64 bits of a database.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The moment this many milliseconds after 1970; moments past [`Timestamp::MAX`] become it.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(span)))
    }

    /// The moment `span` earlier, at least 1970.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// How long ago `earlier` was; zero if it is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A span in whole milliseconds, at most [`Timestamp::MAX`].
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).min(Timestamp::MAX.0)
}

/// Where time comes from. Nothing in this crate reads time but through the clock it was given.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The moment it is now. It may be set back or forward by people and by the network.
    fn now(&self) -> Timestamp;

    /// Time that only ever runs forward, counted from a moment of the clock's choosing. It may stand
    /// still while the machine sleeps.
    fn monotonic(&self) -> Duration;

    /// Both at once.
    fn reading(&self) -> Reading {
        Reading { wall: self.now(), monotonic: self.monotonic() }
    }
}

/// What both faces of a clock show. One can be set by hand and the other can sleep; together they tell
/// how much time has passed at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The moment it is.
    pub wall: Timestamp,
    /// The time that only runs forward.
    pub monotonic: Duration,
}

/// The clock of the machine. This is the only code of the workspace that reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods)] // The one place.
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// A clock that stands still until it is set, for tests of what depends on time.
///
/// ```
/// use std::time::Duration;
/// use stayput_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_millis(5_000));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp::from_millis(6_000));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.0))
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(millis(span), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(5).before(Duration::MAX), Timestamp::from_millis(0));
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        assert!(i64::try_from(Timestamp::MAX.as_millis()).is_ok());
    }
}
