//! The name of a session inside its owner and agent.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    Agent, Digest, Owner,
    text::{self, InvalidText, serde_as_text},
};

/// A name of a session, with where the name comes from: `name:chat-42`, `vscode:…`, `langgraph:…`.
///
/// A key is unique per owner and agent. Two sources never collide: what a person called `7` and what
/// a host calls `7` are different sessions. Keys can hold what people typed, so logs show a hash:
/// `Debug` does, and there is no `Display`.
///
/// ```
/// use stayput_core::Key;
///
/// let key = Key::named("chat-42")?;
/// assert_eq!(key.as_str(), "name:chat-42");
/// assert_ne!(key, Key::new("vscode", "chat-42")?);
/// assert!(!format!("{key:?}").contains("chat-42"));
/// # Ok::<(), stayput_core::InvalidText>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The most bytes a key may have, its source and the colon included.
    pub const LIMIT: usize = 256;

    /// The source of keys that somebody chose by hand.
    pub const NAME: &'static str = "name";

    /// The key for a name that somebody chose.
    ///
    /// # Errors
    /// If the name is empty, too long or unprintable.
    pub fn named(name: &str) -> Result<Self, InvalidText> {
        Self::new(Self::NAME, name)
    }

    /// The key `value` that comes from `source`.
    ///
    /// # Errors
    /// If the source is not a short word of `a-z`, `0-9`, `-` and `_`, or the value is empty, too long or unprintable.
    pub fn new(source: &str, value: &str) -> Result<Self, InvalidText> {
        let word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c);
        if source.is_empty() || source.len() > 32 || !source.bytes().all(word) {
            return Err(InvalidText::form("the source of a key", "1 to 32 of a-z, 0-9, - and _"));
        }
        text::check("a key", value, Self::LIMIT - source.len() - 1)?;
        Ok(Self(format!("{source}:{value}").into()))
    }

    /// Where the key comes from.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.split_once(':').map_or("", |(source, _)| source)
    }

    /// The key without its source.
    #[must_use]
    pub fn value(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, value)| value)
    }

    /// The one text form, `source:value`. [`str::parse`] reads it back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What maps and indexes use for this key of this owner and agent (R017, R099, E36).
    #[must_use]
    pub fn digest(&self, owner: &Owner, agent: &Agent) -> Digest {
        let parts = [owner.as_str(), agent.as_str(), self.as_str()];
        Digest::of("key", &parts.map(str::as_bytes))
    }
}

impl FromStr for Key {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (source, value) =
            text.split_once(':').ok_or_else(|| InvalidText::form("a key", "source:value"))?;
        Self::new(source, value)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = Digest::of("log", &[self.0.as_bytes()]);
        write!(f, "Key({}:#{})", self.source(), hash.short())
    }
}

serde_as_text!(Key, as_str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_ends_the_source() {
        let key = Key::named("a:b").unwrap();
        assert_eq!((key.source(), key.value()), ("name", "a:b"));
        assert_eq!(key.as_str().parse(), Ok(key));
        assert!("chat".parse::<Key>().is_err());
        assert!("Name:chat".parse::<Key>().is_err());
        assert!(Key::named(&"x".repeat(251)).is_ok());
        assert!(Key::named(&"x".repeat(252)).is_err());
    }

    /// Invariant 8: logs show where a key comes from, and a hash.
    #[test]
    fn debug_shows_a_hash() {
        let key = Key::new("vscode", "my secret plan").unwrap();
        let shown = format!("{key:?}");
        assert!(shown.starts_with("Key(vscode:#") && !shown.contains("plan"), "{shown}");
        assert_ne!(shown, format!("{:?}", Key::new("vscode", "another plan").unwrap()));
    }

    /// R017, R099, E36: owner and agent are part of every key, and cannot be shifted into each other.
    #[test]
    fn a_digest_belongs_to_one_owner_agent_and_key() {
        let owner = |s| Owner::verified("i", s).unwrap();
        let (key, agent) = (Key::named("k").unwrap(), Agent::named("a").unwrap());
        let digest = key.digest(&owner("x"), &agent);
        assert_ne!(digest, key.digest(&owner("y"), &agent));
        assert_ne!(digest, key.digest(&owner("x"), &Agent::none()));
        assert_ne!(digest, key.digest(&owner("xa"), &Agent::none()));
        assert_eq!(digest, key.digest(&owner("x"), &agent));
    }
}
