//! What ties an answer to its request.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
};

use crate::{Raw, json};

/// The id of a request, or a progress token: a string or an integer, kept as it was written.
///
/// Two ids are equal if they say the same: `"a"` and `"\u0061"` are, and `0` and `-0`; `1` and `"1"`
/// are not. So an id that is already in flight is recognised in any spelling, and still goes back
/// byte for byte as it came.
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
    /// The most bytes an id may have, as it is written. It is kept while the request is in flight.
    pub const LIMIT: usize = 1024;

    /// The id that `raw` is.
    ///
    /// # Errors
    /// If it is neither a string nor an integer, or too long.
    pub fn read(raw: Raw<'a>) -> Result<Self, InvalidId> {
        if raw.as_str().len() > Self::LIMIT {
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

    /// One that was read before, where it stands now.
    pub(crate) fn known(raw: Raw<'a>) -> Self {
        Self(raw)
    }

    /// The bytes as they were written: what is to be sent back.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0.as_str()
    }

    /// Where it stands.
    #[must_use]
    pub fn raw(self) -> Raw<'a> {
        self.0
    }

    /// The number, if it is one that fits: what we gave out ourselves.
    #[must_use]
    pub fn number(self) -> Option<u64> {
        self.as_str().parse().ok()
    }

    /// The id for longer than the message it came with.
    #[must_use]
    pub fn to_buf(self) -> IdBuf {
        IdBuf(self.as_str().into())
    }
}

impl PartialEq for Id<'_> {
    fn eq(&self, other: &Self) -> bool {
        meaning(self.as_str()) == meaning(other.as_str())
    }
}

impl Eq for Id<'_> {}

impl Hash for Id<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        meaning(self.as_str()).hash(state);
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.as_str())
    }
}

/// An [`Id`] that is kept, for a table of what is in flight. It is compared as an [`Id`] is.
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
    /// The bytes as they were written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for IdBuf {
    /// An id that we give out.
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl PartialEq for IdBuf {
    fn eq(&self, other: &Self) -> bool {
        meaning(&self.0) == meaning(&other.0)
    }
}

impl Eq for IdBuf {}

impl PartialEq<Id<'_>> for IdBuf {
    fn eq(&self, other: &Id<'_>) -> bool {
        meaning(&self.0) == meaning(other.as_str())
    }
}

impl Hash for IdBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        meaning(&self.0).hash(state);
    }
}

impl fmt::Debug for IdBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

/// What an id says, apart from how it is written.
#[derive(PartialEq, Eq, Hash)]
enum Meaning<'a> {
    Text(Cow<'a, str>),
    Number(&'a str),
}

fn meaning(json: &str) -> Meaning<'_> {
    match json::unquote(json) {
        Some(text) => Meaning::Text(text),
        // JSON writes a whole number in one way only, but for zero.
        None => Meaning::Number(if json == "-0" { "0" } else { json }),
    }
}

/// Why a value cannot be an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidId {
    /// It is `null`, which JSON-RPC discourages and MCP forbids.
    #[error("an id must not be null")]
    Null,
    /// It is a number with a fraction or an exponent.
    #[error("an id must not have a fraction or an exponent; write it as an integer or a string")]
    Fraction,
    /// It is an array, an object, `true` or `false`.
    #[error("an id must be a string or an integer")]
    Kind,
    /// It is a string that is not text.
    #[error("an id must not hold half of a surrogate pair")]
    NotText,
    /// It is longer than [`Id::LIMIT`].
    #[error("an id has {size} bytes; at most {} are allowed", Id::LIMIT)]
    TooLong {
        /// How many bytes it has.
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
    fn ids_are_compared_by_what_they_say() {
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
    fn a_number_of_ours_is_read_back() {
        assert_eq!(read(IdBuf::from(u64::MAX).as_str()).unwrap().number(), Some(u64::MAX));
        assert_eq!(read("\"7\"").unwrap().number(), None);
        assert_eq!(read("-7").unwrap().number(), None);
    }
}
