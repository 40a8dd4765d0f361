//! Check of names from outside: not empty, bounded, printable.

use std::fmt;

/// Text that cannot be used as a name, with the reason.
///
/// The text itself is not repeated, because it may be a secret in the wrong place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidText {
    what: &'static str,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    Empty,
    TooLong { limit: usize, size: usize },
    Unprintable { at: usize },
    Form(&'static str),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty; give it at least one character"),
            Self::TooLong { limit, size } => {
                write!(f, "has {size} bytes; at most {limit} are allowed")
            }
            Self::Unprintable { at } => {
                write!(f, "has a control character at byte {at}; use printable text")
            }
            Self::Form(expected) => write!(f, "is not of the form {expected}"),
        }
    }
}

impl InvalidText {
    /// Returns the error for text that does not have the form that `what` needs.
    pub(crate) fn form(what: &'static str, expected: &'static str) -> Self {
        Self { what, problem: Problem::Form(expected) }
    }
}

/// Checks that `text` has 1 to `limit` bytes and no control character.
///
/// Control characters are refused because no legitimate name has one, PostgreSQL cannot store a
/// NUL, a line break forges a line of a log, and a change of direction a row of a table.
pub(crate) fn check(what: &'static str, text: &str, limit: usize) -> Result<(), InvalidText> {
    let problem = if text.is_empty() {
        Problem::Empty
    } else if text.len() > limit {
        Problem::TooLong { limit, size: text.len() }
    } else if let Some((at, _)) = text.char_indices().find(|(_, c)| is_unprintable(*c)) {
        Problem::Unprintable { at }
    } else {
        return Ok(());
    };
    Err(InvalidText { what, problem })
}

/// Whether a character is not shown as itself: a control character, a separator of lines, or one
/// that changes the direction of the text around it.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    c.is_control() || changes_direction || matches!(c, '\u{2028}'..='\u{202e}')
}

/// Implements serde through the text form, for types that wrap a checked string.
macro_rules! serde_as_text {
    ($type:ty, $to:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.$to())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_long_and_unprintable_names_are_refused() {
        assert!(check("a key", "chat-42 – ü", 64).is_ok());
        let message = |text: &str| check("a key", text, 8).unwrap_err().to_string();
        assert_eq!(message(""), "a key is empty; give it at least one character");
        assert_eq!(message("123456789"), "a key has 9 bytes; at most 8 are allowed");
        assert_eq!(message("a\nb"), "a key has a control character at byte 1; use printable text");
        for text in ["a\0b", "a\u{9b}b", "a\u{2028}b", "a\u{202e}b", "a\u{2066}b", "a\u{200f}b"] {
            assert!(
                message(text).starts_with("a key has a control character at byte 1"),
                "{text:?}"
            );
        }
    }
}
