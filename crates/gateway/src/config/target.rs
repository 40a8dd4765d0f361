//! Target of a gateway path.

use std::sync::Arc;

/// Target that a client is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One server.
    Server(Arc<str>),
    /// Aggregate of all servers.
    All,
}

impl Target {
    /// Whether the target includes a server.
    pub(crate) fn has(&self, server: &str) -> bool {
        match self {
            Self::Server(name) => **name == *server,
            Self::All => true,
        }
    }

    /// Returns the server, or `None` for the aggregate.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        match self {
            Self::Server(name) => Some(name),
            Self::All => None,
        }
    }

    /// Returns the form that is stored with a connection. The aggregate is empty, which is not a valid server name.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Server(name) => name,
            Self::All => "",
        }
    }

    /// Returns the label for logs and metrics.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Server(name) => name,
            Self::All => "all",
        }
    }

    /// Parses the stored form.
    pub(crate) fn from_stored(text: &str) -> Self {
        if text.is_empty() { Self::All } else { Self::Server(text.into()) }
    }
}
