//! Name of a session inside its owner and agent.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    Agent, Digest, Owner,
    identity::text::{self, InvalidText, serde_as_text},
};

/// Name of a session with the source of the name: `name:chat-42`, `vscode:…`, `langgraph:…`.
///
/// A key is unique per owner and agent. Keys of two sources never collide: `7` typed by a user and
/// `7` from a host are different sessions. A key can hold text that a user typed, so `Debug` shows
/// a hash, and there is no `Display`.
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
    /// Maximum length of a key in bytes, including its source and the colon.
    pub const MAX_BYTES: usize = 256;

    /// Source of keys that a user chose.
    pub const NAME_SOURCE: &'static str = "name";

    /// Builds the key of a name that a user chose.
    ///
    /// # Errors
    /// If the name is empty, too long or unprintable.
    pub fn named(name: &str) -> Result<Self, InvalidText> {
        Self::new(Self::NAME_SOURCE, name)
    }

    /// Builds the key `value` of `source`.
    ///
    /// # Errors
    /// If the source is not 1 to 32 of `a-z`, `0-9`, `-` and `_`, or the value is empty, too long
    /// or unprintable.
    pub fn new(source: &str, value: &str) -> Result<Self, InvalidText> {
        let word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c);
        if source.is_empty() || source.len() > 32 || !source.bytes().all(word) {
            return Err(InvalidText::form("the source of a key", "1 to 32 of a-z, 0-9, - and _"));
        }
        text::check("a key", value, Self::MAX_BYTES - source.len() - 1)?;
        Ok(Self(format!("{source}:{value}").into()))
    }

    /// Returns the source of the key.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.split_once(':').map_or("", |(source, _)| source)
    }

    /// Returns the key without its source.
    #[must_use]
    pub fn value(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, value)| value)
    }

    /// Returns the text form `source:value`. [`str::parse`] reads it back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Hashes owner, agent and key, for maps and indexes (R017, R099, E36).
    #[must_use]
    pub fn digest(&self, owner: &Owner, agent: &Agent) -> Digest {
        let parts = [owner.as_str(), agent.as_str(), self.as_str()];
        Digest::compute("key", &parts.map(str::as_bytes))
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
        let hash = Digest::compute("log", &[self.0.as_bytes()]);
        write!(f, "Key({}:#{})", self.source(), hash.short())
    }
}

serde_as_text!(Key, as_str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ends_at_the_first_colon() {
        let key = Key::named("a:b").unwrap();
        assert_eq!((key.source(), key.value()), ("name", "a:b"));
        assert_eq!(key.as_str().parse(), Ok(key));
        assert!("chat".parse::<Key>().is_err());
        assert!("Name:chat".parse::<Key>().is_err());
        assert!(Key::named(&"x".repeat(251)).is_ok());
        assert!(Key::named(&"x".repeat(252)).is_err());
    }

    /// Invariant 8: logs show the source of a key and a hash.
    #[test]
    fn debug_output_hides_the_value() {
        let key = Key::new("vscode", "my secret plan").unwrap();
        let shown = format!("{key:?}");
        assert!(shown.starts_with("Key(vscode:#") && !shown.contains("plan"), "{shown}");
        assert_ne!(shown, format!("{:?}", Key::new("vscode", "another plan").unwrap()));
    }

    /// R017, R099, E36: owner and agent are part of every key, and no text can move from one part
    /// to another.
    #[test]
    fn digest_depends_on_owner_agent_and_key() {
        let owner = |s| Owner::verified("i", s).unwrap();
        let (key, agent) = (Key::named("k").unwrap(), Agent::named("a").unwrap());
        let digest = key.digest(&owner("x"), &agent);
        assert_ne!(digest, key.digest(&owner("y"), &agent));
        assert_ne!(digest, key.digest(&owner("x"), &Agent::none()));
        assert_ne!(digest, key.digest(&owner("xa"), &Agent::none()));
        assert_eq!(digest, key.digest(&owner("x"), &agent));
    }
}
