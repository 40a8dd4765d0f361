//! Where a path of the gateway leads.

use std::sync::Arc;

/// What a client is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One server, as it is.
    Server(Arc<str>),
    /// All servers at once.
    All,
}

impl Target {
    /// Whether a server is behind it.
    pub(crate) fn has(&self, server: &str) -> bool {
        match self {
            Self::Server(name) => **name == *server,
            Self::All => true,
        }
    }

    /// The one server behind it; none if all are.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        match self {
            Self::Server(name) => Some(name),
            Self::All => None,
        }
    }

    /// As it is kept with a connection: no server is called nothing.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Server(name) => name,
            Self::All => "",
        }
    }

    /// As whoever runs the gateway knows it.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Server(name) => name,
            Self::All => "all",
        }
    }

    /// As it was kept.
    pub(crate) fn kept(text: &str) -> Self {
        if text.is_empty() { Self::All } else { Self::Server(text.into()) }
    }
}
