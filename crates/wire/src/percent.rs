//! Percent-encoding of URLs.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters but those that need no escape anywhere in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text as a segment of a path.
///
/// ```
/// use stayput_wire::percent;
///
/// assert_eq!(percent::encode("my chat/1"), "my%20chat%2F1");
/// ```
#[must_use]
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Decodes `encoded`. A `%` that starts no escape is kept.
///
/// ```
/// use stayput_wire::percent;
///
/// assert_eq!(*percent::decode("100%25 or 100%"), *b"100% or 100%");
/// ```
#[must_use]
pub fn decode(encoded: &str) -> Cow<'_, [u8]> {
    percent_decode_str(encoded).into()
}

/// Decodes `encoded` to text; `None` if a `%` starts no escape, or the result is not UTF-8.
///
/// ```
/// use stayput_wire::percent;
///
/// assert_eq!(percent::decode_text("my%20chat").as_deref(), Some("my chat"));
/// assert_eq!(percent::decode_text("100%"), None);
/// ```
#[must_use]
pub fn decode_text(encoded: &str) -> Option<Cow<'_, str>> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !encoded.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(encoded).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        for (encoded, plain) in [
            ("", ""),
            ("a b", "a b"),
            ("a%20b", "a b"),
            ("%c3%bC", "ü"),
            ("ü%41", "üA"),
            ("%2541", "%41"),
        ] {
            assert_eq!(decode_text(encoded).as_deref(), Some(plain), "{encoded}");
            assert_eq!(*decode(encoded), *plain.as_bytes(), "{encoded}");
        }
    }

    #[test]
    fn plain_percent_sign_is_kept_or_refused() {
        for (encoded, plain) in
            [("a%4", "a%4"), ("%zz%41", "%zzA"), ("%", "%"), ("%+1", "%+1"), ("%%41", "%A")]
        {
            assert_eq!(decode_text(encoded), None, "{encoded}");
            assert_eq!(*decode(encoded), *plain.as_bytes(), "{encoded}");
        }
    }

    #[test]
    fn bytes_need_not_be_utf8() {
        assert_eq!(decode_text("%ff"), None);
        assert_eq!(*decode("%ff"), [255]);
    }
}
