//! Whose a link is, and how it is found.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

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

/// A [`Scope`] that is somebody else's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeRef<'a> {
    Session { owner: &'a Owner, session: SessionId, branch: u64 },
    Owner(&'a Owner),
    Shared,
}

impl ScopeRef<'_> {
    /// Who shares such a link.
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Session { .. } => Isolation::PerSession,
            Self::Owner(_) => Isolation::PerOwner,
            Self::Shared => Isolation::Shared,
        }
    }
}

/// A link that is looked for. Every call looks for one, and copies nothing for that: what a copy would count is
/// shared by all, and processors would take it from each other.
pub(crate) struct Sought<'a> {
    pub(crate) server: &'a Server,
    pub(crate) scope: ScopeRef<'a>,
}

/// What has all parts of a [`LinkKey`].
pub(crate) trait LikeKey {
    fn parts(&self) -> (&str, Identity, ScopeRef<'_>);
}

impl LikeKey for Sought<'_> {
    fn parts(&self) -> (&str, Identity, ScopeRef<'_>) {
        (self.server.name(), self.server.configuration(), self.scope)
    }
}

impl LikeKey for LinkKey {
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

impl PartialEq for dyn LikeKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn LikeKey + '_ {}

impl Hash for dyn LikeKey + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(self, state);
    }
}

/// What tells most keys apart, in one piece.
fn hash<H: Hasher>(key: &(impl LikeKey + ?Sized), state: &mut H) {
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

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use stayput_core::Timestamp;

    use super::*;

    /// What is looked for without a copy is what is there, in every scope.
    #[test]
    fn a_key_is_found_by_its_parts() {
        let server = |name: &str| Server::new(name, crate::Stdio::new("true")).unwrap();
        let (server, other) = (server("a"), server("b"));
        let (ann, bob) = (Owner::local(), Owner::anonymous());
        let session = SessionId::generate(Timestamp::from_millis(7));
        let place = Place::new(ann.clone(), session).branch(3);
        let hasher = RandomState::new();
        for isolation in [Isolation::PerSession, Isolation::PerOwner, Isolation::Shared] {
            let key = LinkKey::of(&server, isolation, &place);
            let key: &dyn LikeKey = &key;
            let scopes = |owner, branch| match isolation {
                Isolation::PerSession => ScopeRef::Session { owner, session, branch },
                Isolation::PerOwner => ScopeRef::Owner(owner),
                Isolation::Shared => ScopeRef::Shared,
            };
            let own = Sought { server: &server, scope: scopes(&ann, 3) };
            let own: &dyn LikeKey = &own;
            assert!(key == own && own.parts().2.isolation() == isolation);
            assert_eq!(hasher.hash_one(key), hasher.hash_one(own));
            let foreign: &dyn LikeKey = &Sought { server: &other, scope: scopes(&ann, 3) };
            assert!(key != foreign);
            let (theirs, part) = (scopes(&bob, 3), scopes(&ann, 4));
            let theirs: &dyn LikeKey = &Sought { server: &server, scope: theirs };
            assert_eq!(key == theirs, isolation == Isolation::Shared);
            let part: &dyn LikeKey = &Sought { server: &server, scope: part };
            assert_eq!(key != part, isolation == Isolation::PerSession);
        }
    }
}
