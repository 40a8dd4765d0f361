//! Session state in answers to modern clients.

use stayput_core::{Clock as _, Generation, Origin, Session, SystemClock};
use stayput_wire::json;

/// Returns as JSON whether the state that an agent remembers of a session is still valid.
pub(crate) fn state_json(session: &Session, origin: Origin, generation: Generation) -> String {
    let state = match origin {
        Origin::New => "fresh",
        Origin::Existing => "kept",
        Origin::Lost(_) => "lost",
    };
    let record = session.record();
    // The idle time starts at the end of this call, which is now.
    let expires = record.expiry.deadline(record.created, SystemClock.now());
    let expires = expires.map_or("null".to_owned(), |at| json::quote(&at.to_rfc3339()));
    format!(
        r#"{{"session":"{}","state":"{state}","generation":{generation},"expires":{expires}}}"#,
        session.id()
    )
}

/// Returns the same JSON for shared state, which belongs to no session.
pub(crate) fn shared(generation: Generation) -> String {
    format!(r#"{{"session":null,"state":"kept","generation":{generation},"expires":null}}"#)
}
