//! Public id of a session in logs and tools.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use crate::{
    Timestamp,
    identity::random,
    identity::text::{InvalidText, serde_as_text},
};

/// Id of a session in logs, metrics, the command line and the API.
///
/// It is a UUIDv7, so ids sort by creation time. It is not a secret and gives no authority: a
/// caller must also be the session's owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Uuid);

impl SessionId {
    /// Generates an id from `now` and 74 random bits of the operating system.
    #[must_use]
    pub fn generate(now: Timestamp) -> Self {
        let random = random::bytes::<10>();
        Self(uuid::Builder::from_unix_timestamp_millis(now.as_millis(), &random).into_uuid())
    }

    /// Returns the id as a UUID, for a store with such a column.
    #[must_use]
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// Wraps a UUID that was read from a store.
    #[must_use]
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for SessionId {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let form = || InvalidText::form("a session id", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
        // The parser also accepts braces, URNs and bare digits; an id has one spelling here.
        match Uuid::try_parse(text) {
            Ok(uuid) if text.len() == 36 => Ok(Self(uuid)),
            _ => Err(form()),
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

serde_as_text!(SessionId, to_string);

#[cfg(test)]
mod tests {
    use super::*;

    /// R002, R028: ids are random, plain text, and safe to log.
    #[test]
    fn ids_are_unique_and_sort_by_time() {
        let early = SessionId::generate(Timestamp::from_millis(1_000));
        let late = SessionId::generate(Timestamp::from_millis(2_000));
        assert!(early < late && early.to_string() < late.to_string());
        assert_ne!(early, SessionId::generate(Timestamp::from_millis(1_000)));
        assert_eq!(early.to_string().parse(), Ok(early));
        assert!(format!("{{{early}}}").parse::<SessionId>().is_err());
        assert!(early.as_uuid().simple().to_string().parse::<SessionId>().is_err());
    }
}
