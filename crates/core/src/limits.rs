//! How much there may be of everything.

use serde::{Deserialize, Serialize};

/// How many sessions one owner may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Live sessions of one owner in one process. Defaults to 1,000.
    pub per_owner: usize,
    /// Provisional ones among them; at this limit the one unused for longest makes room. Defaults to 8.
    pub provisional_per_owner: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { per_owner: 1_000, provisional_per_owner: 8 }
    }
}

/// How large the state of one session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateLimits {
    /// Bytes in a key. Defaults to 256.
    pub key: usize,
    /// Bytes in one value. Defaults to 256 KiB.
    pub value: usize,
    /// Bytes in all keys and values together. Defaults to 4 MiB.
    pub session: usize,
    /// Number of values. Defaults to 1,024.
    pub keys: usize,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self { key: 256, value: 256 << 10, session: 4 << 20, keys: 1_024 }
    }
}
