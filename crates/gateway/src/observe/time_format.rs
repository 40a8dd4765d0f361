//! Formats of timestamps.

use stayput_core::Timestamp;

/// Formats a timestamp by RFC 3339, in UTC and to the second.
pub(crate) fn text(at: Timestamp) -> String {
    at.to_rfc3339()
}

/// Formats a timestamp by RFC 3339, to the millisecond.
pub(crate) fn precise(at: Timestamp) -> String {
    let text = text(at);
    format!("{}.{:03}Z", text.trim_end_matches('Z'), at.as_millis() % 1_000)
}

/// Formats a timestamp as an HTTP date (RFC 9110, section 5.6.7).
pub(crate) fn http(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = at.as_millis() / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = at.date();
    let of = |all: &[&'static str], at: u64| {
        usize::try_from(at).ok().and_then(|at| all.get(at).copied()).unwrap_or_default()
    };
    let (weekday, month) = (of(&DAYS, days % 7), of(&MONTHS, month - 1));
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_follow_rfc_9110() {
        for (seconds, said) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
        ] {
            assert_eq!(http(Timestamp::from_millis(seconds * 1_000)), said);
        }
    }
}
