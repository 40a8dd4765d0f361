//! Explicit name of a session in a request: a handle or a key.

use std::fmt;

use crate::{Digest, Handle, Key};

/// Prefix of an explicit name that is a key.
const KEY_PREFIX: &str = "key:";

/// Maximum length in bytes of a key behind `key:`.
const MAX_EXPLICIT_KEY_BYTES: usize = 128;

/// Maximum length in bytes of a conversation id that is stored unhashed in a key.
const MAX_PLAIN_CONVERSATION_BYTES: usize = 160;

/// Name of a session as a client writes it: a handle, or `key:` and a key.
#[derive(Clone, Debug)]
pub enum Name {
    /// Secret handle that was issued before.
    Handle(Handle),
    /// Key of the owner.
    Key(Key),
}

/// Malformed session name. The text is not repeated, because it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidName {
    /// Begins like a handle.
    Handle,
    /// Begins like a key.
    Key,
}

impl Name {
    /// Parses a handle or `key:…`. Returns `None` for text of neither form, and an error for text
    /// that only begins like one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, InvalidName>> {
        if let Some(key) = text.strip_prefix(KEY_PREFIX) {
            return Some(Self::key(key));
        }
        let handle = text.starts_with(Handle::PREFIX);
        handle.then(|| text.parse().map(Self::Handle).map_err(|_| InvalidName::Handle))
    }

    /// Builds the name from a key that a user chose.
    ///
    /// # Errors
    /// [`InvalidName::Key`] if it is too long, empty or not printable.
    pub fn key(text: &str) -> Result<Self, InvalidName> {
        let key = Key::named(text).ok().filter(|_| text.len() <= MAX_EXPLICIT_KEY_BYTES);
        key.map(Self::Key).ok_or(InvalidName::Key)
    }

    /// Returns whether both names have the same text, and so lead to the same session.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle(one), Self::Handle(other)) => one.expose() == other.expose(),
            (Self::Key(one), Self::Key(other)) => one == other,
            _ => false,
        }
    }
}

/// Describes the problem. The message follows the place of the name in the request.
impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handle => {
                "is not whole: a session id is `sp_` and 32 letters and digits, exactly as it was \
                 given out"
            }
            Self::Key => "is not a valid name: `key:` must be followed by 1 to 128 printable bytes",
        })
    }
}

impl std::error::Error for InvalidName {}

/// Builds the key of a conversation id from `source`. Returns `None` for an empty id. A long or
/// unprintable id is replaced by its digest.
#[must_use]
pub fn conversation_key(source: &str, id: &str) -> Option<Key> {
    if id.is_empty() {
        return None;
    }
    let plain = Key::new(source, id).ok().filter(|_| id.len() <= MAX_PLAIN_CONVERSATION_BYTES);
    plain.or_else(|| {
        let digest = Digest::compute("conversation", &[id.as_bytes()]).to_hex();
        Key::new(source, &format!("#{digest}")).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_parses_handles_and_keys() {
        let handle = Handle::generate();
        assert!(matches!(Name::parse(handle.expose()), Some(Ok(Name::Handle(_)))));
        assert!(
            matches!(Name::parse("key:chat 42"), Some(Ok(Name::Key(key))) if key.as_str() == "name:chat 42")
        );
        // E39: text of neither form belongs to the tool.
        for text in ["", "42", "session-1", "KEY:a", "SP_x", "keys:a", " key:a"] {
            assert!(Name::parse(text).is_none(), "{text}");
        }
        // A handle that lost a letter is an error, so that the call does not run in another
        // session.
        let cut = &handle.expose()[..30];
        assert!(matches!(Name::parse(cut), Some(Err(InvalidName::Handle))));
        for text in ["key:", "key:a\nb", &format!("key:{}", "x".repeat(129))] {
            assert!(matches!(Name::parse(text), Some(Err(InvalidName::Key))), "{text}");
        }
        assert!(Name::parse(&format!("key:{}", "x".repeat(128))).is_some_and(|name| name.is_ok()));
    }

    #[test]
    fn conversation_ids_become_keys_of_their_source() {
        let key = |id: &str| conversation_key("openai", id).unwrap();
        assert_eq!(key("v1/abc").as_str(), "openai:v1/abc");
        assert_eq!(conversation_key("openai", ""), None);
        let (long, other) = (key(&"x".repeat(4_000)), key(&"x".repeat(4_001)));
        assert!(long.as_str().len() < 80 && long != other);
        assert!(key("a\nb").as_str().starts_with("openai:#"));
    }
}
