//! What names a session from outside.

use std::borrow::Cow;

pub(crate) use stayput_core::{Name, conversation};
use stayput_wire::percent;

/// A text of a URL as it was before it was encoded; `None` if it is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    match percent::bytes(text) {
        Cow::Borrowed(_) => Some(text.into()),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
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
