//! Timestamps and clocks. Only this module reads the clock of the machine.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Point in time, in milliseconds since 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(u64);

impl From<u64> for Timestamp {
    /// Same as [`Timestamp::from_millis`].
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
    /// Latest timestamp. It fits the signed 64 bits of a database.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Builds the timestamp of this many milliseconds after 1970, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// Returns the milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Adds `span`. The result is at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(span)))
    }

    /// Subtracts `span`. The result is at least 1970.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// Returns the time since `earlier`; zero if that is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Formats the timestamp by RFC 3339, in UTC and to the second.
    ///
    /// ```
    /// use stayput_core::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_millis(951_782_400_000).to_rfc3339(), "2000-02-29T00:00:00Z");
    /// ```
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        format!("{:.0}", self.date())
    }

    /// Formats the timestamp by RFC 3339, in UTC and to the millisecond.
    #[must_use]
    pub fn to_rfc3339_millis(self) -> String {
        format!("{:.3}", self.date())
    }

    /// Converts the timestamp. A time after the year 9999 becomes the last date that can be written.
    fn date(self) -> jiff::Timestamp {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX)
    }
}

/// Converts a duration to whole milliseconds, at most [`Timestamp::MAX`].
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).min(Timestamp::MAX.0)
}

/// Source of time. Code in this crate reads time only through the clock it was given.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current wall-clock time. A user or the network may set it back or forward.
    fn now(&self) -> Timestamp;

    /// Returns a monotonic time since an arbitrary start. It may stand still while the machine
    /// sleeps.
    fn monotonic(&self) -> Duration;

    /// Returns both times.
    fn reading(&self) -> ClockReading {
        ClockReading { wall: self.now(), monotonic: self.monotonic() }
    }
}

/// Wall-clock and monotonic time of one moment. The first can be set by hand, the second can stand
/// still; together they bound the time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall-clock time.
    pub wall: Timestamp,
    /// Monotonic time.
    pub monotonic: Duration,
}

/// Clock of the machine. No other code of the workspace reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods)] // The only place that reads the clock.
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Clock that stands still until a test advances it.
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
    /// Builds a clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.0))
    }

    /// Advances the clock by `span`.
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

    #[test]
    fn timestamps_follow_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_785_196_800, "2026-07-28T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::from_millis(seconds * 1_000).to_rfc3339(), text);
        }
        let at = Timestamp::from_millis(1_709_251_200_007);
        assert_eq!(at.to_rfc3339_millis(), "2024-03-01T00:00:00.007Z");
    }
}
