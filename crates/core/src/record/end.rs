//! End of a session.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    Timestamp,
    identity::text::{InvalidText, serde_as_text},
};

/// Time and reason of the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEnd {
    /// Time of the end.
    pub at: Timestamp,
    /// Reason of the end.
    pub reason: EndReason,
}

/// Reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The owner ended it.
    Closed,
    /// Not used for its idle time.
    Idle,
    /// Reached its maximum age.
    Age,
    /// Evicted for another session at a limit.
    Evicted,
}

impl EndReason {
    const ALL: [Self; 4] = [Self::Closed, Self::Idle, Self::Age, Self::Evicted];

    /// Returns the word for the reason in stores and tools.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Age => "age",
            Self::Evicted => "evicted",
        }
    }
}

impl FromStr for EndReason {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            InvalidText::form("the end of a session", "closed, idle, age or evicted")
        })
    }
}

serde_as_text!(EndReason, as_str);
