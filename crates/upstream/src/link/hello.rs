//! What a client says of itself.

use std::{fmt, sync::Arc};

use stayput_wire::{Raw, json};

/// What a client says of itself when it meets a server. A copy shares it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    pub(crate) info: Arc<str>,
    pub(crate) capabilities: Arc<str>,
}

/// A part of a [`Hello`] is not an object in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` of a client has to be a JSON object")]
pub struct InvalidHello(&'static str);

impl Hello {
    /// The `clientInfo` and `capabilities` of a client, both JSON objects, which go to the server as
    /// they are.
    ///
    /// # Errors
    /// If one of them is not a JSON object.
    pub fn new(info: &str, capabilities: &str) -> Result<Self, InvalidHello> {
        let object = |text: &str| Raw::parse(text).is_ok_and(Raw::is_object);
        if !object(info) {
            return Err(InvalidHello("clientInfo"));
        }
        if !object(capabilities) {
            return Err(InvalidHello("capabilities"));
        }
        Ok(Self { info: info.into(), capabilities: capabilities.into() })
    }

    /// A client of this name and version that cannot be asked anything.
    #[must_use]
    pub fn named(name: &str, version: &str) -> Self {
        let (name, version) = (json::quote(name), json::quote(version));
        let info = format!(r#"{{"name":{name},"version":{version}}}"#);
        Self { info: info.into(), capabilities: "{}".into() }
    }

    pub(crate) fn without_capabilities(&self) -> Self {
        Self { info: self.info.clone(), capabilities: "{}".into() }
    }

    /// The same with what another declares.
    pub(crate) fn declaring(&self, other: &Self) -> Self {
        Self { info: self.info.clone(), capabilities: other.capabilities.clone() }
    }

    /// Whether the client declares anything at all.
    pub(crate) fn declares_anything(&self) -> bool {
        let said = Raw::parse(&self.capabilities).ok();
        said.is_some_and(|said| said.members().next().is_some())
    }

    /// The `clientInfo`, as JSON.
    #[must_use]
    pub fn info(&self) -> &str {
        &self.info
    }

    /// The `capabilities`, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// What the client can be asked.
    #[must_use]
    pub fn declares(&self) -> super::Declares {
        super::Declares::of(&self.capabilities)
    }
}

impl Default for Hello {
    /// Stayput itself.
    fn default() -> Self {
        Self::named("stayput", env!("CARGO_PKG_VERSION"))
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello({} bytes)", self.info.len() + self.capabilities.len())
    }
}
