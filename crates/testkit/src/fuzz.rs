//! Properties that every parser of untrusted text must have for any input.
//!
//! The fuzzer in `fuzz/` calls these functions with generated inputs; the tests call them with its saved corpus. A
//! failed assertion is a bug in a parser.

pub mod front;

use stayput_core::{EventIds, Handle, Key, Lease, Owner, Record, SessionId, Timestamp};
use stayput_stores::Address;
use stayput_wire::{LineSplitter, Message, json, sse};

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// Checks that a handle parses to its own text, and is shown only in part.
pub fn handle(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.expose(), text);
        assert_eq!(text.len(), Handle::LENGTH);
        assert!(text.starts_with(Handle::PREFIX) && text.is_ascii());
        assert!(!format!("{handle:?}").contains(text));
    }
}

/// Checks that keys, owners, ids and leases have one spelling.
pub fn key(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(key) = text.parse::<Key>() {
        assert_eq!(key.as_str(), text);
        assert_eq!(Key::new(key.source(), key.value()).as_ref(), Ok(&key));
        assert!(text.len() <= Key::MAX_BYTES && !text.chars().any(char::is_control));
    }
    if let Ok(owner) = text.parse::<Owner>() {
        assert_eq!(owner.as_str(), text);
        if let (Some(issuer), Some(subject)) = (owner.issuer(), owner.subject()) {
            assert_eq!(Owner::verified(&issuer, subject), Ok(owner));
        }
    }
    if let Ok(id) = text.parse::<SessionId>() {
        assert!(id.to_string().eq_ignore_ascii_case(text));
    }
    if let Ok(lease) = text.parse::<Lease>() {
        assert_eq!(lease.to_string().parse(), Ok(lease));
    }
}

/// Checks that a decoded record does not change when it is encoded and decoded again.
pub fn record(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(record) = Record::decode(text) {
        let again = Record::decode(&record.encode()).unwrap();
        assert_eq!(again, record);
        let _ = record.deadline();
        let _ = record.expiry.due(record.created, record.last_used, Timestamp::MAX);
    }
}

/// Checks that a made-up event id is not accepted.
pub fn event(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let ids = EventIds::new(&[3; 32]);
    let session = SessionId::from_uuid(uuid::Uuid::nil());
    assert!(ids.open(&Owner::local(), session, text).is_err());
}

/// Checks that parsing the URL of a store never shows a password, whether it succeeds or fails.
pub fn address(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let said = match text.parse::<Address>() {
        Ok(Address::Sqlite(_)) => return, // a path is no secret
        Ok(address) => format!("{address:?}"),
        Err(error) => error.to_string(),
    };
    // The password is between the first colon after the scheme and the last `@`.
    let password = text.split_once("://").and_then(|(_, rest)| {
        let (user, _) = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?;
        user.split_once(':').map(|(_, password)| password)
    });
    // Only digits, so that it cannot be part of our own text, and only once in the URL.
    let telling = |it: &&str| {
        it.len() >= 8
            && it.bytes().all(|digit| digit.is_ascii_digit())
            && text.matches(it).count() == 1
    };
    if let Some(password) = password.filter(telling) {
        // Percent-encoded characters look like digits, too.
        let mut parts = said.split('%');
        let first = parts.next().unwrap_or_default().to_owned();
        let said = parts.fold(first, |said, it| said + "%" + it.get(2..).unwrap_or_default());
        assert!(!said.contains(password), "{said}");
    }
}

/// Checks that a parsed message can be edited, and that only the edited part changes.
pub fn message(data: &[u8]) {
    let Ok(message) = Message::parse(data) else { return };
    assert_eq!(message.text().as_bytes(), data);
    let mut edits = message.edit();
    edits.set(&["dev.stayput/fuzz", "deep"], "1.10");
    let edited = match edits.apply() {
        Ok(edited) => edited.into_owned(),
        // A member of that name may exist with another type.
        Err(_) => return,
    };
    assert!(json::check(edited.as_bytes()).is_ok());
    let mut back = stayput_wire::Edits::new(&edited);
    back.remove(&["dev.stayput/fuzz"]);
    if !message.text().contains("fuzz") {
        assert_eq!(back.apply().unwrap(), message.text());
    }
}

/// Checks that a stream is split in the same way however it arrives.
pub fn stream(data: &[u8]) {
    let whole = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        let (mut lines, mut events) = (LineSplitter::new(64), sse::Decoder::new(64));
        let (mut said, mut told) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let mut rest = chunk;
            while let Some(line) = lines.next_line(&mut rest) {
                said.push(line.map(std::borrow::Cow::into_owned));
            }
            let mut rest = chunk;
            while let Some(event) = events.next_event(&mut rest) {
                told.push(event);
            }
        }
        format!("{said:?} {:?} {told:?} {:?}", lines.finish(), events.last_id())
    };
    let at_once = whole(&mut std::iter::once(data));
    assert_eq!(whole(&mut data.chunks(1)), at_once);
    assert_eq!(whole(&mut data.chunks(3)), at_once);
}

/// Calls `check` with every file of `fuzz/seeds/<target>`. Returns the number of files.
pub fn replay(target: &str, check: fn(&[u8])) -> usize {
    replay_with(target, check)
}

/// Replays a corpus like [`replay`], for a check that needs more than the input.
pub fn replay_with(target: &str, check: impl Fn(&[u8])) -> usize {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    let files = std::fs::read_dir(std::path::Path::new(seeds).join(target)).unwrap();
    files.map(|file| check(&std::fs::read(file.unwrap().path()).unwrap())).count()
}
