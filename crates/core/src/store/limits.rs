//! Limits on the number of sessions and the size of their state.

use serde::{Deserialize, Serialize};

/// Limits on the number of sessions of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Maximum live sessions of one owner in one process. Defaults to 1,000.
    pub per_owner: usize,
    /// Maximum provisional sessions among them. At this limit the least recently used one is
    /// evicted. Defaults to 8.
    pub provisional_per_owner: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { per_owner: 1_000, provisional_per_owner: 8 }
    }
}

/// Limits on the state of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateLimits {
    /// Maximum length of a key in bytes. Defaults to 256.
    pub key: usize,
    /// Maximum length of one value in bytes. Defaults to 256 KiB.
    pub value: usize,
    /// Maximum length of all keys and values together in bytes. Defaults to 4 MiB.
    pub session: usize,
    /// Maximum number of values. Defaults to 1,024.
    pub keys: usize,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self { key: 256, value: 256 << 10, session: 4 << 20, keys: 1_024 }
    }
}
