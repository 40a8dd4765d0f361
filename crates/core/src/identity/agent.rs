//! Namespaces of sessions inside an owner.

use std::{fmt, str::FromStr, sync::Arc};

use crate::identity::text::{self, InvalidText, serde_as_text};

/// Namespace of sessions inside an owner. Agents do not see each other's keys.
///
/// [`Agent::none`] is the owner's own namespace. It is distinct from every named agent.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent(Option<Arc<str>>);

impl Agent {
    /// Maximum length of an agent's name in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Returns the owner's own namespace.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the namespace of the agent `name`.
    ///
    /// # Errors
    /// If the name is empty, longer than [`Agent::MAX_BYTES`] or unprintable.
    pub fn named(name: &str) -> Result<Self, InvalidText> {
        text::check("the name of an agent", name, Self::MAX_BYTES)?;
        Ok(Self(Some(name.into())))
    }

    /// Returns the name, or the empty string for the owner's own namespace. [`str::parse`] reads it
    /// back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }
}

impl FromStr for Agent {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        if text.is_empty() { Ok(Self::none()) } else { Self::named(text) }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({:?})", self.as_str())
    }
}

serde_as_text!(Agent, as_str);
