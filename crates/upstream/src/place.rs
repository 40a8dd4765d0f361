//! Whose a link is, and how it is found.

use std::sync::Arc;

use stayput_core::{Owner, SessionId};

use crate::server::{Identity, Isolation, Server};

/// For whom a server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Whose session it is.
    pub owner: Owner,
    /// Which session.
    pub session: SessionId,
    /// Which part of it, 0 being the session itself. A sub-agent that is isolated from its session
    /// on some server is a part of its own there: own link, own folder, same lifetime.
    pub branch: u64,
}

impl Place {
    /// The session itself.
    #[must_use]
    pub fn new(owner: Owner, session: SessionId) -> Self {
        Self { owner, session, branch: 0 }
    }

    /// A part of the same session.
    #[must_use]
    pub fn branch(self, branch: u64) -> Self {
        Self { branch, ..self }
    }
}

/// Who uses a link. The owner is part of it wherever there is one (E23).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One session, or a part of it.
    Session {
        /// Whose session it is.
        owner: Owner,
        /// Which session.
        session: SessionId,
        /// Which part of it, see [`Place::branch`].
        branch: u64,
    },
    /// All sessions of one owner.
    Owner(Owner),
    /// Everybody.
    Shared,
}

impl Scope {
    /// Who uses the link that `place` gets under `isolation`.
    #[must_use]
    pub fn of(isolation: Isolation, place: &Place) -> Self {
        let owner = place.owner.clone();
        match isolation {
            Isolation::PerSession => {
                Self::Session { owner, session: place.session, branch: place.branch }
            }
            Isolation::PerOwner => Self::Owner(owner),
            Isolation::Shared => Self::Shared,
        }
    }

    /// Whose link it is, if it is anybody's.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Session { owner, .. } | Self::Owner(owner) => Some(owner),
            Self::Shared => None,
        }
    }

    /// Which session's link it is, if it is one's alone.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session { session, .. } => Some(*session),
            Self::Owner(_) | Self::Shared => None,
        }
    }
}

/// What a link is found by: server, configuration, and who uses it (R017).
///
/// The name is part of it: two servers that are configured alike stay two (E24). Secrets are not,
/// only their hash (E36), and finding a link hashes nothing anew: with the configuration and the
/// scope given, every value that a template could use is given too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    server: Arc<str>,
    configuration: Identity,
    scope: Scope,
}

impl LinkKey {
    /// The key of the link that `place` gets to `server` under `isolation`.
    #[must_use]
    pub fn of(server: &Server, isolation: Isolation, place: &Place) -> Self {
        Self::new(server, Scope::of(isolation, place))
    }

    /// The key of the link of `scope` to `server`.
    #[must_use]
    pub fn new(server: &Server, scope: Scope) -> Self {
        Self { server: server.shared_name(), configuration: server.configuration(), scope }
    }

    /// The name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The identity of the server's configuration.
    #[must_use]
    pub fn configuration(&self) -> Identity {
        self.configuration
    }

    /// Who uses the link.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}
