//! JSON syntax: checking texts, reading and writing strings.

mod scanner;
mod string;

use std::fmt;

pub(crate) use scanner::{MemberRange, Members, Scanner};
pub(crate) use string::{eq_ignore_case, is_text};
pub use string::{quote, unquote};

/// Deepest nesting of arrays and objects.
///
/// Real messages are less deep, and a later reader may use recursion.
pub const MAX_DEPTH: u32 = 128;

/// Appends a number. Written by hand, because formatting would be the slowest step of every message.
///
/// ```
/// let mut text = b"\"id\":".to_vec();
/// stayput_wire::json::push_number(&mut text, 17);
/// assert_eq!(text, b"\"id\":17");
/// ```
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Checks that `bytes` are one JSON value in UTF-8, with optional white space around it.
///
/// Accepts exactly the grammar of RFC 8259. That includes numbers of any size and lone surrogates (`"\ud83d"`, which
/// JavaScript writes when it cuts a text), because they are passed on without being decoded.
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
/// Returns an error if they are not, or nest deeper than [`MAX_DEPTH`].
pub fn check(bytes: &[u8]) -> Result<&str, SyntaxError> {
    let text = decode(bytes)?;
    let mut scanner = Scanner::new(text);
    scanner.value(0)?;
    scanner.end()?;
    Ok(text)
}

/// Converts `bytes` to text if they are UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, SyntaxError> {
    std::str::from_utf8(bytes)
        .map_err(|error| SyntaxError::new(error.valid_up_to(), SyntaxKind::NotUtf8))
}

/// Position and reason of a syntax error.
///
/// The text is not repeated, because it may contain secrets.
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

    /// Returns the offset of the invalid byte, or the length of the text if it ends too early.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> SyntaxKind {
        self.kind
    }
}

/// Kind of a syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxKind {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text ends before the value does.
    End,
    /// No value starts like this.
    Value,
    /// A member's name in double quotes is missing.
    Key,
    /// The name of a member is not followed by a colon.
    Colon,
    /// An element or member is followed by neither a comma nor the end of its array or object.
    Separator,
    /// An escape is invalid.
    Escape,
    /// A control character in a string is not escaped.
    Control,
    /// A number is malformed.
    Number,
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
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
            Self::Depth => return write!(f, "it nests deeper than {MAX_DEPTH} levels"),
            Self::Trailing => "something follows the value",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &[u8]) -> (usize, SyntaxKind) {
        let error = check(text).unwrap_err();
        (error.at(), error.kind())
    }

    #[test]
    fn every_syntax_error_has_its_position() {
        assert_eq!(error_of(b"[\"\xff\"]"), (2, SyntaxKind::NotUtf8));
        assert_eq!(error_of(b""), (0, SyntaxKind::End));
        assert_eq!(error_of(b"  {\"a\""), (6, SyntaxKind::End));
        assert_eq!(error_of(b"[1,]"), (3, SyntaxKind::Value));
        assert_eq!(error_of(b"nul"), (3, SyntaxKind::End));
        assert_eq!(error_of(b"nulL"), (3, SyntaxKind::Value));
        assert_eq!(error_of(b"{a:1}"), (1, SyntaxKind::Key));
        assert_eq!(error_of(b"{\"a\":1,}"), (7, SyntaxKind::Key));
        assert_eq!(error_of(b"{\"a\" 1}"), (5, SyntaxKind::Colon));
        assert_eq!(error_of(b"[1 2]"), (3, SyntaxKind::Separator));
        assert_eq!(error_of(b"[1}"), (2, SyntaxKind::Separator));
        assert_eq!(error_of(b"\"\\x\""), (2, SyntaxKind::Escape));
        assert_eq!(error_of(b"\"\\u12g4\""), (5, SyntaxKind::Escape));
        assert_eq!(error_of(b"\"a\nb\""), (2, SyntaxKind::Control));
        assert_eq!(error_of(b"01"), (1, SyntaxKind::Trailing));
        assert_eq!(error_of(b"-"), (1, SyntaxKind::End));
        assert_eq!(error_of(b"1.e3"), (2, SyntaxKind::Number));
        assert_eq!(error_of(b"1 1"), (2, SyntaxKind::Trailing));
        assert_eq!(error_of(b"\xef\xbb\xbf1"), (0, SyntaxKind::Value));
    }

    #[test]
    fn syntax_error_displays_its_position() {
        assert_eq!(
            check(b"[1,]").unwrap_err().to_string(),
            "the JSON is broken at byte 3: no value begins like this"
        );
    }

    /// A megabyte of brackets needs neither stack nor memory.
    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(check(&nested(128)).is_ok());
        assert_eq!(error_of(&nested(129)), (128, SyntaxKind::Depth));
        assert_eq!(error_of(&vec![b'['; 1 << 20]), (128, SyntaxKind::Depth));
        assert_eq!(error_of(&b"{\"a\":".repeat(1 << 18)), (128 * 5, SyntaxKind::Depth));
    }

    /// Strings are checked eight bytes at a time, so test every position.
    #[test]
    fn every_byte_of_a_string_is_checked() {
        for length in 0..40 {
            for place in 0..length {
                let mut text = vec![b'"'];
                text.extend(std::iter::repeat_n(b'x', length));
                text.push(b'"');
                assert!(check(&text).is_ok());
                text[place + 1] = 0x1f;
                assert_eq!(error_of(&text), (place + 1, SyntaxKind::Control));
                text[place + 1] = b'"';
                assert_eq!(error_of(&text), (place + 2, SyntaxKind::Trailing));
            }
        }
        assert!(check("\"\u{7f} ü 漢 🦀 \u{20}!#[]\"".as_bytes()).is_ok());
    }
}
