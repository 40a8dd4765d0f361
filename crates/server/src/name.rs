//! What names a session from outside.

use std::borrow::Cow;

pub(crate) use stayput_core::{Name, conversation};

/// A text of a URL as it was before it was encoded; `None` if it is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let pair = behind.get(..2).and_then(|pair| str::from_utf8(pair).ok());
        let escaped = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_urls_are_decoded() {
        for (text, plain) in
            [("a%20b", Some("a b")), ("%c3%bc", Some("ü")), ("%zz%", Some("%zz%")), ("%ff", None)]
        {
            assert_eq!(decoded(text).as_deref(), plain, "{text}");
        }
    }
}
