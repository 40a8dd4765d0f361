//! Request ids.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
};

use crate::{Raw, json};

/// Id of a request, or progress token: a string or an integer, kept as written.
///
/// Ids are equal if their decoded values are: `"a"` and `"\u0061"`, `0` and `-0`, but not `1` and `"1"`. So an id in
/// flight is recognised in any spelling, and is sent back byte for byte.
///
/// ```
/// use stayput_wire::{Id, Raw};
///
/// let id = |json| Id::read(Raw::parse(json).unwrap());
/// assert_eq!(id(r#""a""#), id(r#""\u0061""#));
/// assert_ne!(id("1"), id(r#""1""#));
/// assert_eq!(id("12345678901234567890123").unwrap().as_str(), "12345678901234567890123");
/// assert!(id("1.5").is_err());
/// ```
#[derive(Clone, Copy)]
pub struct Id<'a>(Raw<'a>);

impl<'a> Id<'a> {
    /// Largest id in bytes, as written. Ids are kept while their request is in flight.
    pub const MAX_BYTES: usize = 1024;

    /// Reads an id.
    ///
    /// # Errors
    /// Returns an error if `raw` is neither a string nor an integer, or too long.
    pub fn read(raw: Raw<'a>) -> Result<Self, InvalidId> {
        if raw.as_str().len() > Self::MAX_BYTES {
            return Err(InvalidId::TooLong { size: raw.as_str().len() });
        }
        match raw.as_str().as_bytes() {
            [b'"', ..] if raw.text().is_none() => Err(InvalidId::NotText),
            [b'"', ..] => Ok(Self(raw)),
            b"null" => Err(InvalidId::Null),
            number if raw.is_number() && number.iter().any(|byte| b".eE".contains(byte)) => {
                Err(InvalidId::Fraction)
            }
            _ if raw.is_number() => Ok(Self(raw)),
            _ => Err(InvalidId::Kind),
        }
    }

    /// Wraps a value that was read as an id before.
    pub(crate) fn trusted(raw: Raw<'a>) -> Self {
        Self(raw)
    }

    /// Returns the bytes as written, to be sent back.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0.as_str()
    }

    /// Returns the JSON value.
    #[must_use]
    pub fn raw(self) -> Raw<'a> {
        self.0
    }

    /// Returns the number, if it is one that this process may have assigned.
    #[must_use]
    pub fn number(self) -> Option<u64> {
        self.as_str().parse().ok()
    }

    /// Copies the id, so that it outlives its message.
    #[must_use]
    pub fn to_buf(self) -> IdBuf {
        IdBuf(self.as_str().into())
    }
}

impl PartialEq for Id<'_> {
    fn eq(&self, other: &Self) -> bool {
        decoded(self.as_str()) == decoded(other.as_str())
    }
}

impl Eq for Id<'_> {}

impl Hash for Id<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        decoded(self.as_str()).hash(state);
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.as_str())
    }
}

/// Owned [`Id`], for tables of requests in flight. Compares like an [`Id`].
///
/// ```
/// use std::collections::HashSet;
/// use stayput_wire::{Id, Raw};
///
/// let id = |json| Id::read(Raw::parse(json).unwrap()).unwrap().to_buf();
/// let mut in_flight = HashSet::from([id(r#""a/b""#)]);
/// assert!(!in_flight.insert(id(r#""a\/b""#)), "the same id again");
/// ```
#[derive(Clone)]
pub struct IdBuf(Box<str>);

impl IdBuf {
    /// Returns the bytes as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for IdBuf {
    /// Creates an id to be assigned to a request.
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl PartialEq for IdBuf {
    fn eq(&self, other: &Self) -> bool {
        decoded(&self.0) == decoded(&other.0)
    }
}

impl Eq for IdBuf {}

impl PartialEq<Id<'_>> for IdBuf {
    fn eq(&self, other: &Id<'_>) -> bool {
        decoded(&self.0) == decoded(other.as_str())
    }
}

impl Hash for IdBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        decoded(&self.0).hash(state);
    }
}

impl fmt::Debug for IdBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

/// Decoded value of an id.
#[derive(PartialEq, Eq, Hash)]
enum IdValue<'a> {
    Text(Cow<'a, str>),
    Number(&'a str),
}

fn decoded(json: &str) -> IdValue<'_> {
    match json::unquote(json) {
        Some(text) => IdValue::Text(text),
        // Apart from zero, JSON has one spelling for each integer.
        None => IdValue::Number(if json == "-0" { "0" } else { json }),
    }
}

/// Reason why a value is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidId {
    /// `null`, which JSON-RPC discourages and MCP forbids.
    #[error("an id must not be null")]
    Null,
    /// Number with a fraction or an exponent.
    #[error("an id must not have a fraction or an exponent; write it as an integer or a string")]
    Fraction,
    /// Array, object, `true` or `false`.
    #[error("an id must be a string or an integer")]
    Kind,
    /// String with a lone surrogate.
    #[error("an id must not hold half of a surrogate pair")]
    NotText,
    /// Longer than [`Id::MAX_BYTES`].
    #[error("an id has {size} bytes; at most {} are allowed", Id::MAX_BYTES)]
    TooLong {
        /// Size in bytes.
        size: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Id<'_>, InvalidId> {
        Id::read(Raw::parse(json).unwrap())
    }

    #[test]
    fn only_strings_and_integers_are_ids() {
        for json in ["0", "-1", "18446744073709551616", "\"\"", r#""a\n\u00e4""#] {
            assert_eq!(read(json).unwrap().as_str(), json);
        }
        assert_eq!(read("null"), Err(InvalidId::Null));
        for json in ["1.0", "1e3", "0E0", "-1.5"] {
            assert_eq!(read(json), Err(InvalidId::Fraction), "{json}");
        }
        for json in ["true", "[]", "{}"] {
            assert_eq!(read(json), Err(InvalidId::Kind), "{json}");
        }
        assert_eq!(read(r#""\ud800""#), Err(InvalidId::NotText));
        let long = format!("\"{}\"", "x".repeat(1023));
        assert_eq!(read(&long), Err(InvalidId::TooLong { size: 1025 }));
    }

    #[test]
    fn ids_compare_by_decoded_value() {
        use std::hash::BuildHasher;
        let state = std::hash::RandomState::new();
        for (one, other) in [("\"a\"", r#""\u0061""#), ("0", "-0"), ("7", "7")] {
            let (one, other) = (read(one).unwrap(), read(other).unwrap());
            assert_eq!(one, other);
            assert_eq!(one.to_buf(), other);
            assert_eq!(state.hash_one(one), state.hash_one(other.to_buf()));
        }
        for (one, other) in [("1", "\"1\""), ("1", "2"), ("\"a\"", "\"A\""), ("1", "-1")] {
            assert_ne!(read(one).unwrap(), read(other).unwrap());
        }
    }

    #[test]
    fn number_id_round_trips() {
        assert_eq!(read(IdBuf::from(u64::MAX).as_str()).unwrap().number(), Some(u64::MAX));
        assert_eq!(read("\"7\"").unwrap().number(), None);
        assert_eq!(read("-7").unwrap().number(), None);
    }
}
