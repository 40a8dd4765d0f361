//! Rules by which a session expires.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{EndReason, Timestamp, clock::millis};

/// Maximum idle time and maximum age of a session. The methods are pure functions; time is an
/// argument.
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
    /// Maximum time since the last use. `None` disables this limit.
    #[serde(with = "optional_millis", default)]
    pub idle: Option<Duration>,
    /// Maximum time since the creation. `None` disables this limit.
    #[serde(with = "optional_millis", default)]
    pub absolute: Option<Duration>,
}

impl Expiry {
    /// Never expires.
    pub const NEVER: Self = Self { idle: None, absolute: None };

    /// Creates a rule that expires a session after this idle time, at any age.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle: Some(idle), absolute: None }
    }

    /// Returns the time at which a session expires unless it is used again.
    #[must_use]
    pub fn deadline(&self, created: Timestamp, last_used: Timestamp) -> Option<Timestamp> {
        let idle = self.idle.map(|span| last_used.after(span));
        let absolute = self.absolute.map(|span| created.after(span));
        [idle, absolute].into_iter().flatten().min()
    }

    /// Returns why a session that is not in use has expired at `now`, or `None`.
    ///
    /// The caller checks for use: a session in use does not expire by this rule.
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
    /// 30 minutes idle, 24 hours of age.
    fn default() -> Self {
        Self {
            idle: Some(Duration::from_secs(30 * 60)),
            absolute: Some(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

/// Serializes durations as whole milliseconds, which every store and client can read.
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
        // A duration beyond the last timestamp is written as that maximum, so it is read the same
        // way.
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

    /// R059, E20: idle time counts from the last use, age from the creation; the earlier one wins.
    #[test]
    fn earlier_of_idle_and_age_ends_a_session() {
        let expiry = Expiry {
            idle: Some(Duration::from_millis(10)),
            absolute: Some(Duration::from_millis(25)),
        };
        let table = [
            // created, last used, now, reason
            (0, 0, 9, None),
            (0, 0, 10, Some(EndReason::Idle)),
            (0, 8, 17, None),
            (0, 8, 18, Some(EndReason::Idle)),
            (0, 24, 24, None),
            (0, 24, 25, Some(EndReason::Age)),
            (0, 0, 30, Some(EndReason::Age)),
            (100, 0, 5, None), // a clock that was set back ends no session
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
    fn never_has_no_deadline() {
        assert_eq!(Expiry::NEVER.due(at(0), at(0), Timestamp::MAX), None);
        assert_eq!(Expiry::NEVER.deadline(at(0), at(0)), None);
    }
}
