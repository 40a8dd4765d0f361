//! Refusal of a request because another replica holds its session.

use http::Response;
use stayput_core::{Agent, Digest, HandleHash, Holder, Name, Owner, SessionId};

/// Name of a session, by which its holder is found. The owner is part of each hash; an id was read from a connection of its
/// owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SessionName {
    Id(SessionId),
    Handle(HandleHash),
    Key(Digest),
}

impl SessionName {
    /// Hashes a name that a client of `owner` has sent.
    pub(crate) fn new(owner: &Owner, name: &Name) -> Self {
        match name {
            Name::Handle(handle) => Self::Handle(handle.hash(owner)),
            Name::Key(key) => Self::Key(key.digest(owner, &Agent::none())),
        }
    }
}

/// Replica that holds the session of a request. In the extensions of a response it says that nothing was run.
#[derive(Clone, Debug)]
pub(crate) struct HeldBy {
    pub(crate) holder: Holder,
    /// Name by which the holder was found. `None` if it was not looked up by a name.
    pub(crate) name: Option<SessionName>,
}

impl HeldBy {
    /// Holder that was not looked up by a name.
    pub(crate) fn unnamed(holder: Holder) -> Box<Self> {
        Box::new(Self { holder, name: None })
    }
}

/// Marks a response as the refusal of a request whose session another replica holds.
pub(crate) fn held_elsewhere<B>(response: &mut Response<B>, held_by: Option<Box<HeldBy>>) {
    if let Some(held_by) = held_by {
        response.extensions_mut().insert(*held_by);
    }
}
