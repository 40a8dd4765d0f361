//! Client info and capabilities for a handshake.

use stayput_wire::{Raw, json};
use std::{fmt, sync::Arc};

use crate::Scope;

/// `clientInfo` and `capabilities` of a client. A clone shares the texts.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientInfo {
    pub(crate) info: Arc<str>,
    pub(crate) capabilities: Arc<str>,
}

/// A part of a [`ClientInfo`] is not a JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` of a client has to be a JSON object")]
pub struct InvalidClientInfo(&'static str);

impl ClientInfo {
    /// Takes the `clientInfo` and `capabilities` of a client. Both are JSON objects and are sent unchanged.
    ///
    /// # Errors
    /// If one of them is not a JSON object.
    pub fn new(info: &str, capabilities: &str) -> Result<Self, InvalidClientInfo> {
        let object = |text: &str| Raw::parse(text).is_ok_and(Raw::is_object);
        if !object(info) {
            return Err(InvalidClientInfo("clientInfo"));
        }
        if !object(capabilities) {
            return Err(InvalidClientInfo("capabilities"));
        }
        Ok(Self { info: info.into(), capabilities: capabilities.into() })
    }

    /// Client of this name and version without capabilities.
    #[must_use]
    pub fn named(name: &str, version: &str) -> Self {
        let (name, version) = (json::quote(name), json::quote(version));
        let info = format!(r#"{{"name":{name},"version":{version}}}"#);
        Self { info: info.into(), capabilities: "{}".into() }
    }

    /// Client info for the handshake of a link of this scope. A link shared by several sessions declares no
    /// capabilities, because a request of the server could not be assigned to a client.
    pub(crate) fn on_link_of(&self, scope: &Scope) -> Self {
        match scope {
            Scope::Session { .. } => self.clone(),
            Scope::Owner(_) | Scope::Shared => {
                Self { info: self.info.clone(), capabilities: "{}".into() }
            }
        }
    }

    /// Same client info with the capabilities of `other`.
    pub(crate) fn declaring(&self, other: &Self) -> Self {
        Self { info: self.info.clone(), capabilities: other.capabilities.clone() }
    }

    /// Whether the client declares any capability.
    pub(crate) fn declares_anything(&self) -> bool {
        let raw = Raw::parse(&self.capabilities).ok();
        raw.is_some_and(|raw| raw.members().next().is_some())
    }

    /// `clientInfo` as JSON.
    #[must_use]
    pub fn info(&self) -> &str {
        &self.info
    }

    /// `capabilities` as JSON.
    #[must_use]
    pub fn capabilities_json(&self) -> &str {
        &self.capabilities
    }

    /// Requests that the client can answer.
    #[must_use]
    pub fn capabilities(&self) -> super::ClientCapabilities {
        super::ClientCapabilities::parse(&self.capabilities)
    }
}

impl Default for ClientInfo {
    /// Client info of Stayput itself.
    fn default() -> Self {
        Self::named("stayput", env!("CARGO_PKG_VERSION"))
    }
}

impl fmt::Debug for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientInfo({} bytes)", self.info.len() + self.capabilities.len())
    }
}
