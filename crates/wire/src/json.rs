//! JSON as text: what is well-formed, and how a string is written and read.

mod scanner;
mod string;

use std::fmt;

pub(crate) use scanner::{Members, Scanner, Slot};
pub(crate) use string::{is_same_in_any_case, is_text};
pub use string::{quote, unquote};

/// How many arrays and objects may stand inside each other.
///
/// Nothing honest nests so deep, and whoever reads the message behind us may do so by recursion.
pub const DEPTH_LIMIT: u32 = 128;

/// Writes a number behind what is there. By hand: it is done for every message, and what formats anything takes
/// longer than all else that is done there.
///
/// ```
/// let mut text = b"\"id\":".to_vec();
/// stayput_wire::json::push_number(&mut text, 17);
/// assert_eq!(text, b"\"id\":17");
/// ```
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let start = out.len();
    loop {
        out.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[start..].reverse();
}

/// Checks that `bytes` are one JSON value in UTF-8, with white space around it at most.
///
/// What is accepted is the grammar of RFC 8259 and nothing more. Numbers of any size and halves of a
/// surrogate pair (`"\ud83d"`, which JavaScript writes when it cuts a text) are part of it: they are
/// to be passed on, not to be understood.
///
/// ```
/// use stayput_wire::json;
///
/// assert_eq!(json::check(b" [1.10, 1e400] ")?, " [1.10, 1e400] ");
/// assert_eq!(json::check(b"[1,]").unwrap_err().at(), 3);
/// # Ok::<(), json::SyntaxError>(())
/// ```
///
/// # Errors
/// If they are not, or nest deeper than [`DEPTH_LIMIT`].
pub fn check(bytes: &[u8]) -> Result<&str, SyntaxError> {
    let text = decode(bytes)?;
    let mut scanner = Scanner::new(text);
    scanner.value(0)?;
    scanner.end()?;
    Ok(text)
}

/// `bytes` as text, if they are UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, SyntaxError> {
    std::str::from_utf8(bytes)
        .map_err(|error| SyntaxError::new(error.valid_up_to(), SyntaxKind::NotUtf8))
}

/// Where a text stops being JSON, and why.
///
/// The text itself is not repeated: it can hold secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the JSON is broken at byte {at}: {kind}")]
pub struct SyntaxError {
    at: usize,
    kind: SyntaxKind,
}

impl SyntaxError {
    pub(crate) fn new(at: usize, kind: SyntaxKind) -> Self {
        Self { at, kind }
    }

    /// The byte that cannot stand there, or the length of the text if something is missing.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// What is wrong there.
    #[must_use]
    pub fn kind(&self) -> SyntaxKind {
        self.kind
    }
}

/// What can be wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxKind {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text ends before the value does.
    End,
    /// No value begins like this.
    Value,
    /// Something else stands where a member's name in double quotes has to be.
    Key,
    /// The name of a member is not followed by a colon.
    Colon,
    /// An element or member is followed by neither a comma nor the end of its array or object.
    Separator,
    /// A backslash is followed by something JSON does not know.
    Escape,
    /// A control character stands in a string as it is.
    Control,
    /// A number is not written as JSON writes numbers.
    Number,
    /// Arrays and objects stand inside each other more than [`DEPTH_LIMIT`] times.
    Depth,
    /// Something follows the value.
    Trailing,
}

impl fmt::Display for SyntaxKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "it is not UTF-8",
            Self::End => "it ends too early",
            Self::Value => "no value begins like this",
            Self::Key => "a name in double quotes is expected",
            Self::Colon => "a colon is expected",
            Self::Separator => "a comma or a closing bracket is expected",
            Self::Escape => "JSON does not know this escape",
            Self::Control => "a control character in a string has to be escaped",
            Self::Number => "a number is not written like this",
            Self::Depth => return write!(f, "it nests deeper than {DEPTH_LIMIT} levels"),
            Self::Trailing => "something follows the value",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &[u8]) -> (usize, SyntaxKind) {
        let error = check(text).unwrap_err();
        (error.at(), error.kind())
    }

    #[test]
    fn every_kind_of_break_is_told_with_its_place() {
        assert_eq!(said(b"[\"\xff\"]"), (2, SyntaxKind::NotUtf8));
        assert_eq!(said(b""), (0, SyntaxKind::End));
        assert_eq!(said(b"  {\"a\""), (6, SyntaxKind::End));
        assert_eq!(said(b"[1,]"), (3, SyntaxKind::Value));
        assert_eq!(said(b"nul"), (3, SyntaxKind::End));
        assert_eq!(said(b"nulL"), (3, SyntaxKind::Value));
        assert_eq!(said(b"{a:1}"), (1, SyntaxKind::Key));
        assert_eq!(said(b"{\"a\":1,}"), (7, SyntaxKind::Key));
        assert_eq!(said(b"{\"a\" 1}"), (5, SyntaxKind::Colon));
        assert_eq!(said(b"[1 2]"), (3, SyntaxKind::Separator));
        assert_eq!(said(b"[1}"), (2, SyntaxKind::Separator));
        assert_eq!(said(b"\"\\x\""), (2, SyntaxKind::Escape));
        assert_eq!(said(b"\"\\u12g4\""), (5, SyntaxKind::Escape));
        assert_eq!(said(b"\"a\nb\""), (2, SyntaxKind::Control));
        assert_eq!(said(b"01"), (1, SyntaxKind::Trailing));
        assert_eq!(said(b"-"), (1, SyntaxKind::End));
        assert_eq!(said(b"1.e3"), (2, SyntaxKind::Number));
        assert_eq!(said(b"1 1"), (2, SyntaxKind::Trailing));
        assert_eq!(said(b"\xef\xbb\xbf1"), (0, SyntaxKind::Value));
    }

    #[test]
    fn an_error_is_a_sentence_with_a_place() {
        assert_eq!(
            check(b"[1,]").unwrap_err().to_string(),
            "the JSON is broken at byte 3: no value begins like this"
        );
    }

    /// A megabyte of brackets costs neither stack nor memory.
    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(check(&nested(128)).is_ok());
        assert_eq!(said(&nested(129)), (128, SyntaxKind::Depth));
        assert_eq!(said(&vec![b'['; 1 << 20]), (128, SyntaxKind::Depth));
        assert_eq!(said(&b"{\"a\":".repeat(1 << 18)), (128 * 5, SyntaxKind::Depth));
    }

    /// Strings are read eight bytes at a time; what matters may stand at any of them.
    #[test]
    fn no_byte_of_a_string_is_overlooked() {
        for length in 0..40 {
            for place in 0..length {
                let mut text = vec![b'"'];
                text.extend(std::iter::repeat_n(b'x', length));
                text.push(b'"');
                assert!(check(&text).is_ok());
                text[place + 1] = 0x1f;
                assert_eq!(said(&text), (place + 1, SyntaxKind::Control));
                text[place + 1] = b'"';
                assert_eq!(said(&text), (place + 2, SyntaxKind::Trailing));
            }
        }
        assert!(check("\"\u{7f} ü 漢 🦀 \u{20}!#[]\"".as_bytes()).is_ok());
    }
}
