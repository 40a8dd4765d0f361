//! How the tools of a server are shown to a client: with an argument for the session, and beside our own.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::Owner;
use stayput_upstream::{Isolation, Profile, Server};

use crate::catalog::{session_tool_names, tool_argument::Argument};

/// What is decided once for each profile of a server.
#[derive(Debug)]
pub(crate) struct ToolView {
    /// Whether state is kept there: not where everybody shares one link.
    pub(crate) kept: bool,
    /// How its tools take a handle.
    pub(crate) argument: Argument,
    /// Whether a tool of its own is called like one of ours.
    pub(crate) prefixed: bool,
}

impl ToolView {
    fn of(server: &Server, profile: &Profile) -> Self {
        let pages = profile.pages("tools/list");
        Self {
            kept: server.isolation(profile.way().era()) != Isolation::Shared,
            argument: Argument::of(pages),
            prefixed: session_tool_names::clash(pages),
        }
    }
}

/// What was decided so far, for each server.
#[derive(Default)]
pub(crate) struct ToolViews(RwLock<HashMap<String, OfServer>>);

/// How many owners are known to one server before all are asked for anew.
const OWNERS: usize = 4096;

/// What was decided for a server.
#[derive(Default)]
struct OfServer {
    /// What each owner was shown last: profiles may differ between them.
    owners: HashMap<Owner, Seen>,
    /// What was decided last, which most owners share.
    last: Option<Seen>,
}

/// What was decided, and for which profile.
#[derive(Clone)]
struct Seen {
    profile: Arc<Profile>,
    sight: Arc<ToolView>,
}

impl Seen {
    fn of(&self, profile: &Arc<Profile>) -> Option<Arc<ToolView>> {
        Arc::ptr_eq(&self.profile, profile).then(|| self.sight.clone())
    }
}

impl ToolViews {
    /// What was decided last for this owner. Whoever asks for a list decides anew, so a call that was made after a
    /// list finds what that list said, and nothing is hashed for it.
    pub(crate) fn last(&self, server: &Server, owner: &Owner) -> Option<Arc<ToolView>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(server.name())?.owners.get(owner).map(|seen| seen.sight.clone())
    }

    pub(crate) fn get(
        &self,
        server: &Server,
        owner: &Owner,
        profile: &Arc<Profile>,
    ) -> Arc<ToolView> {
        let (own, shared) = {
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let of = all.get(server.name());
            let own = of.and_then(|of| of.owners.get(owner)?.of(profile));
            (own, of.and_then(|of| of.last.as_ref()?.of(profile)))
        };
        if let Some(own) = own {
            return own;
        }
        let sight = shared.unwrap_or_else(|| Arc::new(ToolView::of(server, profile)));
        let seen = Seen { profile: profile.clone(), sight: sight.clone() };
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(server.name().to_owned()).or_default();
        if of.owners.len() >= OWNERS {
            of.owners.clear();
        }
        of.owners.insert(owner.clone(), seen.clone());
        of.last = Some(seen);
        sight
    }
}

impl fmt::Debug for ToolViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolViews({})", self.0.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}
