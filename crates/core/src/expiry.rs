//! When a session ends by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{EndReason, Timestamp, clock::millis};

/// How long a session lives: after its last use, and in all. Pure rules; time is an argument.
///
/// ```
/// use std::time::Duration;
/// use stayput_core::{EndReason, Expiry, Timestamp};
///
/// let expiry = Expiry::idle(Duration::from_secs(60));
/// let used = Timestamp::from_millis(0);
/// assert_eq!(expiry.due(used, used, used.after(Duration::from_secs(59))), None);
/// assert_eq!(expiry.due(used, used, used.after(Duration::from_secs(60))), Some(EndReason::Idle));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expiry {
    /// The time after the last use; `None` means that idling never ends it.
    #[serde(with = "optional_millis", default)]
    pub idle: Option<Duration>,
    /// The time after the creation; `None` means that age never ends it.
    #[serde(with = "optional_millis", default)]
    pub absolute: Option<Duration>,
}

impl Expiry {
    /// Lives until it is ended.
    pub const NEVER: Self = Self { idle: None, absolute: None };

    /// Ends `idle` after its last use, however old it gets.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle: Some(idle), absolute: None }
    }

    /// The moment at which a session that is not used again ends.
    #[must_use]
    pub fn deadline(&self, created: Timestamp, last_used: Timestamp) -> Option<Timestamp> {
        let idle = self.idle.map(|span| last_used.after(span));
        let absolute = self.absolute.map(|span| created.after(span));
        [idle, absolute].into_iter().flatten().min()
    }

    /// Why a session that nobody is using right now is over at `now`, if it is.
    ///
    /// A session in use is never over: whoever knows of the use does not ask.
    #[must_use]
    pub fn due(
        &self,
        created: Timestamp,
        last_used: Timestamp,
        now: Timestamp,
    ) -> Option<EndReason> {
        let over =
            |span: Option<Duration>, from: Timestamp| span.is_some_and(|s| from.after(s) <= now);
        if over(self.absolute, created) {
            Some(EndReason::Age)
        } else if over(self.idle, last_used) {
            Some(EndReason::Idle)
        } else {
            None
        }
    }
}

impl Default for Expiry {
    /// 30 minutes idle, 24 hours in all.
    fn default() -> Self {
        Self {
            idle: Some(Duration::from_secs(30 * 60)),
            absolute: Some(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

/// Spans are kept as whole milliseconds, as every store and every client can read them.
mod optional_millis {
    use super::{Duration, millis};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // serde's signature
    pub(super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        span.map(millis).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        // A span past the end of time is written as one that ends there, so it is read as that too.
        let span = Option::<u64>::deserialize(from)?;
        Ok(span.map(|span| Duration::from_millis(millis(Duration::from_millis(span)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// R059, E20: idle counts from the last use, age from the creation, whichever comes first.
    #[test]
    fn the_earlier_of_idle_and_age_ends_a_session() {
        let expiry = Expiry {
            idle: Some(Duration::from_millis(10)),
            absolute: Some(Duration::from_millis(25)),
        };
        let table = [
            // created, last used, now, why it is over
            (0, 0, 9, None),
            (0, 0, 10, Some(EndReason::Idle)),
            (0, 8, 17, None),
            (0, 8, 18, Some(EndReason::Idle)),
            (0, 24, 24, None),
            (0, 24, 25, Some(EndReason::Age)),
            (0, 0, 30, Some(EndReason::Age)),
            (100, 0, 5, None), // a clock that was set back ends nothing
        ];
        for (created, used, now, over) in table {
            assert_eq!(expiry.due(at(created), at(used), at(now)), over, "{created} {used} {now}");
            let deadline = expiry.deadline(at(created), at(used)).unwrap();
            if created == 0 {
                assert_eq!(deadline <= at(now), over.is_some(), "{created} {used} {now}");
            }
        }
    }

    #[test]
    fn never_is_never() {
        assert_eq!(Expiry::NEVER.due(at(0), at(0), Timestamp::MAX), None);
        assert_eq!(Expiry::NEVER.deadline(at(0), at(0)), None);
    }
}
