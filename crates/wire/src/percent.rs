//! Texts as they stand in URLs: `%41` stands for a byte.

use std::borrow::Cow;

/// The bytes that `encoded` stands for. What only looks like a byte stays as it is.
///
/// ```
/// use stayput_wire::percent;
///
/// assert_eq!(*percent::bytes("100%25 or 100%"), *b"100% or 100%");
/// ```
#[must_use]
pub fn bytes(encoded: &str) -> Cow<'_, [u8]> {
    if !encoded.contains('%') {
        return Cow::Borrowed(encoded.as_bytes());
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        match byte(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    Cow::Owned(bytes)
}

/// The text that `encoded` stands for; `None` if a `%` in it begins no byte, or if it is no text.
///
/// ```
/// use stayput_wire::percent;
///
/// assert_eq!(percent::text("my%20chat").as_deref(), Some("my chat"));
/// assert_eq!(percent::text("100%"), None);
/// ```
#[must_use]
pub fn text(encoded: &str) -> Option<Cow<'_, str>> {
    let places = encoded.bytes().enumerate().filter(|(_, byte)| *byte == b'%');
    let whole = places.into_iter().all(|(at, _)| byte(&encoded.as_bytes()[at..]).is_some());
    if !whole {
        return None;
    }
    match bytes(encoded) {
        Cow::Borrowed(_) => Some(Cow::Borrowed(encoded)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// The byte that stands at the beginning.
fn byte(encoded: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = encoded else { return None };
    // The parser of numbers would take a sign for a digit.
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_byte_becomes_one() {
        for (encoded, plain) in [
            ("", ""),
            ("a b", "a b"),
            ("a%20b", "a b"),
            ("%c3%bC", "ü"),
            ("ü%41", "üA"),
            ("%2541", "%41"),
        ] {
            assert_eq!(text(encoded).as_deref(), Some(plain), "{encoded}");
            assert_eq!(*bytes(encoded), *plain.as_bytes(), "{encoded}");
        }
    }

    #[test]
    fn a_percent_sign_may_be_one() {
        for (encoded, plain) in
            [("a%4", "a%4"), ("%zz%41", "%zzA"), ("%", "%"), ("%+1", "%+1"), ("%%41", "%A")]
        {
            assert_eq!(text(encoded), None, "{encoded}");
            assert_eq!(*bytes(encoded), *plain.as_bytes(), "{encoded}");
        }
    }

    #[test]
    fn bytes_may_be_no_text() {
        assert_eq!(text("%ff"), None);
        assert_eq!(*bytes("%ff"), [255]);
    }
}
