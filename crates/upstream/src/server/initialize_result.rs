//! Result of `initialize` or `server/discover`.

use std::{fmt, sync::Arc};

use stayput_wire::{Era, Raw, Version};

/// Result of `initialize` or `server/discover`, as the server wrote it. A clone is cheap; links to one server
/// share it.
#[derive(Clone, PartialEq, Eq)]
pub struct InitializeResult(Arc<Content>);

#[derive(PartialEq, Eq)]
struct Content {
    version: Version,
    result: Box<str>,
}

impl InitializeResult {
    pub(crate) fn new(version: Version, result: &str) -> Self {
        Self(Arc::new(Content { version, result: result.into() }))
    }

    /// Empty result of a legacy server.
    pub(crate) fn nothing() -> Self {
        Self::new(Version::LATEST_LEGACY, "{}")
    }

    /// Negotiated protocol version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.0.version
    }

    /// Era of that version.
    #[must_use]
    pub fn era(&self) -> Era {
        self.0.version.era()
    }

    /// Whole result.
    #[must_use]
    pub fn result(&self) -> &str {
        &self.0.result
    }

    /// Capabilities of the server, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> Option<&str> {
        self.member("capabilities")
    }

    /// Whether the server declares this capability, such as `tools`.
    #[must_use]
    pub fn has(&self, capability: &str) -> bool {
        let found = self.raw().and_then(|raw| raw.find(&["capabilities", capability]));
        found.is_some_and(|found| !found.is_null())
    }

    fn member(&self, name: &str) -> Option<&str> {
        Some(self.raw()?.find(&[name])?.as_str())
    }

    fn raw(&self) -> Option<Raw<'_>> {
        Raw::parse(self.result()).ok()
    }
}

impl fmt::Debug for InitializeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InitializeResult({}, {} bytes)", self.0.version.as_str(), self.0.result.len())
    }
}
