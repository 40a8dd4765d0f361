//! A namespace inside an owner.

use std::{fmt, str::FromStr, sync::Arc};

use crate::text::{self, InvalidText, serde_as_text};

/// A namespace of sessions inside an owner: agents do not see each other's keys.
///
/// [`Agent::none`] is the owner's own namespace, apart from every named agent.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent(Option<Arc<str>>);

impl Agent {
    /// The most bytes an agent's name may have.
    pub const LIMIT: usize = 128;

    /// The owner's own namespace.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// The namespace of the agent called `name`.
    ///
    /// # Errors
    /// If the name is empty, longer than [`Agent::LIMIT`] or unprintable.
    pub fn named(name: &str) -> Result<Self, InvalidText> {
        text::check("the name of an agent", name, Self::LIMIT)?;
        Ok(Self(Some(name.into())))
    }

    /// The name, or the empty text for the owner's own namespace. [`str::parse`] reads it back.
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
