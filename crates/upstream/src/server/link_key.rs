//! Owner, scope and key of a link.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use stayput_core::{Owner, SessionId};

use crate::server::{Identity, Isolation, Server};

/// Session for which a link is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkOwner {
    /// Owner of the session.
    pub owner: Owner,
    /// Id of the session.
    pub session: SessionId,
    /// Branch of the session; 0 is the session itself. A sub-agent that is isolated on a server has its own
    /// branch there: own link, own directory, same lifetime.
    pub branch: u64,
}

impl LinkOwner {
    /// Branch 0 of a session.
    #[must_use]
    pub fn new(owner: Owner, session: SessionId) -> Self {
        Self { owner, session, branch: 0 }
    }

    /// Branch of the same session.
    #[must_use]
    pub fn branch(self, branch: u64) -> Self {
        Self { branch, ..self }
    }
}

/// Users of a link. It contains the owner wherever there is one (E23).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One session or a branch of it.
    Session {
        /// Owner of the session.
        owner: Owner,
        /// Id of the session.
        session: SessionId,
        /// Branch of the session, see [`LinkOwner::branch`].
        branch: u64,
    },
    /// All sessions of one owner.
    Owner(Owner),
    /// All sessions.
    Shared,
}

impl Scope {
    /// Scope of the link of `link_owner` under `isolation`.
    #[must_use]
    pub fn new(isolation: Isolation, link_owner: &LinkOwner) -> Self {
        let owner = link_owner.owner.clone();
        match isolation {
            Isolation::PerSession => {
                Self::Session { owner, session: link_owner.session, branch: link_owner.branch }
            }
            Isolation::PerOwner => Self::Owner(owner),
            Isolation::Shared => Self::Shared,
        }
    }

    /// Owner of the link. `None` for a shared link.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Session { owner, .. } | Self::Owner(owner) => Some(owner),
            Self::Shared => None,
        }
    }

    /// Session of the link, if it belongs to only one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session { session, .. } => Some(*session),
            Self::Owner(_) | Self::Shared => None,
        }
    }
}

/// Key of a link in the pool: server name, configuration and scope (R017).
///
/// The name is included, so that two servers with equal configuration stay separate (E24). Secrets enter only
/// as a hash (E36). A lookup computes no new hash of values: configuration and scope determine every value of
/// a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkKey {
    server: Arc<str>,
    configuration: Identity,
    scope: Scope,
}

impl Hash for LinkKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(self, state);
    }
}

/// Borrowed [`Scope`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeRef<'a> {
    Session { owner: &'a Owner, session: SessionId, branch: u64 },
    Owner(&'a Owner),
    Shared,
}

impl ScopeRef<'_> {
    /// Isolation of such a link.
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Session { .. } => Isolation::PerSession,
            Self::Owner(_) => Isolation::PerOwner,
            Self::Shared => Isolation::Shared,
        }
    }
}

/// Borrowed key for a lookup. Every call does a lookup without cloning: reference counts shared by all
/// threads would make their cache lines contended.
pub(crate) struct LinkKeyRef<'a> {
    pub(crate) server: &'a Server,
    pub(crate) scope: ScopeRef<'a>,
}

/// Parts of a [`LinkKey`], owned or borrowed.
pub(crate) trait LinkKeyParts {
    fn parts(&self) -> (&str, Identity, ScopeRef<'_>);
}

impl LinkKeyParts for LinkKeyRef<'_> {
    fn parts(&self) -> (&str, Identity, ScopeRef<'_>) {
        (self.server.name(), self.server.configuration(), self.scope)
    }
}

impl LinkKeyParts for LinkKey {
    fn parts(&self) -> (&str, Identity, ScopeRef<'_>) {
        let scope = match &self.scope {
            Scope::Session { owner, session, branch } => {
                ScopeRef::Session { owner, session: *session, branch: *branch }
            }
            Scope::Owner(owner) => ScopeRef::Owner(owner),
            Scope::Shared => ScopeRef::Shared,
        };
        (&self.server, self.configuration, scope)
    }
}

impl PartialEq for dyn LinkKeyParts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn LinkKeyParts + '_ {}

impl Hash for dyn LinkKeyParts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(self, state);
    }
}

/// Hashes the most distinctive parts in one piece.
fn hash<H: Hasher>(key: &(impl LinkKeyParts + ?Sized), state: &mut H) {
    let (_, configuration, scope) = key.parts();
    let mut piece = [0; 32];
    piece[..8].copy_from_slice(&configuration.as_bytes()[..8]);
    match scope {
        ScopeRef::Session { session, branch, .. } => {
            piece[8..16].copy_from_slice(&branch.to_ne_bytes());
            piece[16..].copy_from_slice(session.as_uuid().as_bytes());
        }
        ScopeRef::Owner(owner) => owner.hash(state),
        ScopeRef::Shared => {}
    }
    state.write(&piece);
}

impl LinkKey {
    /// Key of the link of `link_owner` to `server` under `isolation`.
    #[must_use]
    pub fn for_owner(server: &Server, isolation: Isolation, link_owner: &LinkOwner) -> Self {
        Self::new(server, Scope::new(isolation, link_owner))
    }

    /// Key of the link of `scope` to `server`.
    #[must_use]
    pub fn new(server: &Server, scope: Scope) -> Self {
        Self { server: server.shared_name(), configuration: server.configuration(), scope }
    }

    /// Name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Identity of the server's configuration.
    #[must_use]
    pub fn configuration(&self) -> Identity {
        self.configuration
    }

    /// Scope of the link.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use stayput_core::Timestamp;

    use super::*;

    /// A borrowed key equals the owned one, in every scope.
    #[test]
    fn borrowed_key_equals_the_owned_key() {
        let server = |name: &str| Server::new(name, crate::Stdio::new("true")).unwrap();
        let (server, other) = (server("a"), server("b"));
        let (ann, bob) = (Owner::local(), Owner::anonymous());
        let session = SessionId::generate(Timestamp::from_millis(7));
        let link_owner = LinkOwner::new(ann.clone(), session).branch(3);
        let hasher = RandomState::new();
        for isolation in [Isolation::PerSession, Isolation::PerOwner, Isolation::Shared] {
            let key = LinkKey::for_owner(&server, isolation, &link_owner);
            let key: &dyn LinkKeyParts = &key;
            let scopes = |owner, branch| match isolation {
                Isolation::PerSession => ScopeRef::Session { owner, session, branch },
                Isolation::PerOwner => ScopeRef::Owner(owner),
                Isolation::Shared => ScopeRef::Shared,
            };
            let own = LinkKeyRef { server: &server, scope: scopes(&ann, 3) };
            let own: &dyn LinkKeyParts = &own;
            assert!(key == own && own.parts().2.isolation() == isolation);
            assert_eq!(hasher.hash_one(key), hasher.hash_one(own));
            let foreign: &dyn LinkKeyParts = &LinkKeyRef { server: &other, scope: scopes(&ann, 3) };
            assert!(key != foreign);
            let (theirs, part) = (scopes(&bob, 3), scopes(&ann, 4));
            let theirs: &dyn LinkKeyParts = &LinkKeyRef { server: &server, scope: theirs };
            assert_eq!(key == theirs, isolation == Isolation::Shared);
            let part: &dyn LinkKeyParts = &LinkKeyRef { server: &server, scope: part };
            assert_eq!(key != part, isolation == Isolation::PerSession);
        }
    }
}
