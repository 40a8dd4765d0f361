//! What names a session from outside.

use std::fmt;

use crate::{Digest, Handle, Key};

/// What an explicit name that is a key begins with.
const KEY: &str = "key:";

/// The most bytes of such a key.
const LIMIT: usize = 128;

/// The most bytes of a conversation id that stand in a key as they are.
const PLAIN: usize = 160;

/// A name of a session, as whoever uses it writes it: a handle, or `key:` and a key.
#[derive(Clone, Debug)]
pub enum Name {
    /// A secret that was given out.
    Handle(Handle),
    /// A key of the owner.
    Key(Key),
}

/// Something that wants to be a name and is none. The text is not repeated: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoName {
    /// It begins like a handle.
    Handle,
    /// It begins like a key.
    Key,
}

impl Name {
    /// A handle or `key:…`; `None` if it is of neither form, and what is wrong if it only looks like one.
    #[must_use]
    pub fn read(text: &str) -> Option<Result<Self, NoName>> {
        if let Some(key) = text.strip_prefix(KEY) {
            return Some(Self::key(key));
        }
        let handle = text.starts_with(Handle::PREFIX);
        handle.then(|| text.parse().map(Self::Handle).map_err(|_| NoName::Handle))
    }

    /// The key that somebody chose by hand.
    ///
    /// # Errors
    /// [`NoName::Key`] if it is too long, empty or not printable.
    pub fn key(text: &str) -> Result<Self, NoName> {
        let key = Key::named(text).ok().filter(|_| text.len() <= LIMIT);
        key.map(Self::Key).ok_or(NoName::Key)
    }

    /// Whether both are written alike, and so lead to one session.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle(one), Self::Handle(other)) => one.expose() == other.expose(),
            (Self::Key(one), Self::Key(other)) => one == other,
            _ => false,
        }
    }
}

/// What is wrong, for whoever sent it, behind the place where it stood.
impl fmt::Display for NoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handle => {
                "is not whole: a session id is `sp_` and 32 letters and digits, exactly as it was \
                 given out"
            }
            Self::Key => "is no name: behind `key:` there must be 1 to 128 printable bytes",
        })
    }
}

impl std::error::Error for NoName {}

/// The key for a conversation id that comes from `source`; `None` for an empty one. What is long or
/// unprintable is named by its digest.
#[must_use]
pub fn conversation(source: &str, id: &str) -> Option<Key> {
    if id.is_empty() {
        return None;
    }
    let plain = Key::new(source, id).ok().filter(|_| id.len() <= PLAIN);
    plain.or_else(|| {
        let digest = Digest::of("conversation", &[id.as_bytes()]).to_hex();
        Key::new(source, &format!("#{digest}")).ok()
    })
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
        let cut = &handle.expose()[..30];
        assert!(matches!(Name::read(cut), Some(Err(NoName::Handle))));
        for text in ["key:", "key:a\nb", &format!("key:{}", "x".repeat(129))] {
            assert!(matches!(Name::read(text), Some(Err(NoName::Key))), "{text}");
        }
        assert!(Name::read(&format!("key:{}", "x".repeat(128))).is_some_and(|name| name.is_ok()));
    }

    #[test]
    fn conversation_ids_become_keys_of_their_source() {
        let key = |id: &str| conversation("openai", id).unwrap();
        assert_eq!(key("v1/abc").as_str(), "openai:v1/abc");
        assert_eq!(conversation("openai", ""), None);
        let (long, other) = (key(&"x".repeat(4_000)), key(&"x".repeat(4_001)));
        assert!(long.as_str().len() < 80 && long != other);
        assert!(key("a\nb").as_str().starts_with("openai:#"));
    }
}
