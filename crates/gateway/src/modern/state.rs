//! What a modern client is told of the session that its answer comes from.

use stayput_core::{Clock as _, Generation, Origin, Session, SystemClock, Timestamp};
use stayput_wire::json;

/// Whether what an agent remembers of a session is still true, as JSON.
pub(super) fn told(session: &Session, origin: Origin, generation: Generation) -> String {
    let state = match origin {
        Origin::Fresh => "fresh",
        Origin::Kept => "kept",
        Origin::Lost(_) => "lost",
    };
    let record = session.record();
    // The idle clock starts when this call has ended, which is now.
    let expires = record.expiry.deadline(record.created, SystemClock.now());
    let expires = expires.map_or("null".to_owned(), |at| json::quote(&date(at)));
    format!(
        r#"{{"session":"{}","state":"{state}","generation":{generation},"expires":{expires}}}"#,
        session.id()
    )
}

/// A moment as RFC 3339 writes it, to the second.
fn date(at: Timestamp) -> String {
    let seconds = at.as_millis() / 1_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Counted from the first of March of the year 0, so that a leap day is the last of its year; an era
    // of 400 years always has 146 097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_785_196_800, "2026-07-28T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(Timestamp::from_millis(seconds * 1_000)), written);
        }
    }
}
