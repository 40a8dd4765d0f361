//! What names a session from outside.

use std::borrow::Cow;

use stayput_core::{Digest, Handle, Key};

/// What an explicit name that is a key begins with.
const KEY: &str = "key:";

/// The most bytes of such a key.
const LIMIT: usize = 128;

/// The most bytes of a conversation id that stand in a key as they are.
const PLAIN: usize = 160;

/// A name of a session.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// A secret that was given out.
    Handle(Handle),
    /// A key of the owner.
    Key(Key),
}

impl Name {
    /// A handle or `key:…`; `None` if it is of neither form, and what is wrong if it only looks like one. The
    /// text is not repeated: it may be a secret.
    pub(crate) fn read(text: &str) -> Option<Result<Self, &'static str>> {
        if let Some(key) = text.strip_prefix(KEY) {
            let named = Key::named(key).ok().filter(|_| key.len() <= LIMIT);
            return Some(
                named
                    .map(Self::Key)
                    .ok_or("is no name: behind `key:` there must be 1 to 128 printable bytes"),
            );
        }
        let whole = || {
            text.parse().map(Self::Handle).map_err(|_| {
                "is not whole: a session_id is `sp_` and 32 letters and digits, exactly as it was given out"
            })
        };
        text.starts_with(Handle::PREFIX).then(whole)
    }

    /// Whether both are written alike.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle(one), Self::Handle(other)) => one.expose() == other.expose(),
            (Self::Key(one), Self::Key(other)) => one == other,
            _ => false,
        }
    }
}

/// The key for a conversation id that comes from `source`; `None` for an empty one. What is long or
/// unprintable is named by its digest.
pub(crate) fn conversation(source: &str, id: &str) -> Option<Key> {
    if id.is_empty() {
        return None;
    }
    let plain = Key::new(source, id).ok().filter(|_| id.len() <= PLAIN);
    plain.or_else(|| {
        let digest = Digest::of("conversation", &[id.as_bytes()]).to_hex();
        Key::new(source, &format!("#{digest}")).ok()
    })
}

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
    fn a_name_is_a_handle_or_a_key() {
        let handle = Handle::generate();
        assert!(matches!(Name::read(handle.expose()), Some(Ok(Name::Handle(_)))));
        assert!(
            matches!(Name::read("key:chat 42"), Some(Ok(Name::Key(key))) if key.as_str() == "name:chat 42")
        );
        // E39: what is of neither form belongs to the tool.
        for text in ["", "42", "session-1", "KEY:a", "SP_x", "keys:a", " key:a"] {
            assert!(Name::read(text).is_none(), "{text}");
        }
        // A model that lost a letter is told so; the call does not run elsewhere.
        assert!(matches!(Name::read(&handle.expose()[..30]), Some(Err(_))));
        for text in ["key:", "key:a\nb", &format!("key:{}", "x".repeat(129))] {
            assert!(matches!(Name::read(text), Some(Err(_))), "{text}");
        }
    }

    #[test]
    fn texts_of_urls_are_decoded() {
        for (text, plain) in
            [("a%20b", Some("a b")), ("%c3%bc", Some("ü")), ("%zz%", Some("%zz%")), ("%ff", None)]
        {
            assert_eq!(decoded(text).as_deref(), plain, "{text}");
        }
        assert_eq!(conversation("openai", "").map(|key| key.as_str().to_owned()), None);
        assert!(
            conversation("openai", &"x".repeat(4_000)).is_some_and(|key| key.as_str().len() < 80)
        );
    }
}
