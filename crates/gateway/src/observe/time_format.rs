//! Formats of timestamps.

use stayput_core::Timestamp;

/// Formats a timestamp by RFC 3339, in UTC and to the second.
pub(crate) fn text(at: Timestamp) -> String {
    at.to_rfc3339()
}

/// Formats a timestamp by RFC 3339, to the millisecond.
pub(crate) fn precise(at: Timestamp) -> String {
    format!("{:.3}", date(at))
}

/// Converts a timestamp to a date. A time after the year 9999 becomes the last date that can be written.
fn date(at: Timestamp) -> jiff::Timestamp {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_rfc_3339() {
        for (seconds, said) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_785_196_800, "2026-07-28T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(text(Timestamp::from_millis(seconds * 1_000)), said);
        }
    }
}
