//! How the tools of a server are shown to a client: with an argument for the session, and beside our own.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::Owner;
use stayput_upstream::{Isolation, Profile, Server};

use crate::{
    catalog::tool_argument::{self, Argument},
    identify::RequestContext,
    route::aggregate::roster::Roster,
    session_tools,
    state::AppState,
};

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
            prefixed: session_tools::clash(pages),
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
    fn last(&self, server: &Server, owner: &Owner) -> Option<Arc<ToolView>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(server.name())?.owners.get(owner).map(|seen| seen.sight.clone())
    }

    fn get(&self, server: &Server, owner: &Owner, profile: &Arc<Profile>) -> Arc<ToolView> {
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

impl AppState {
    /// Whether the tools of what a request is for take a handle from its client, if any state is kept.
    pub(crate) fn takes_argument(&self, claim: &RequestContext<'_>) -> bool {
        self.any(claim, |server| self.identify.takes_argument(server, claim.front()))
    }

    /// Whether tools of our own stand beside those of what a request is for, if any state is kept.
    pub(crate) fn shows_tools(&self, claim: &RequestContext<'_>) -> bool {
        self.any(claim, |server| self.identify.shows_tools(server, claim.front()))
    }

    fn any(&self, claim: &RequestContext<'_>, which: impl Fn(&str) -> bool) -> bool {
        match claim.server {
            Some(server) => which(server.name()),
            None => self.servers.keys().any(|server| which(server)),
        }
    }

    /// How the tools of what a request is for are shown; `None` if it cannot be asked.
    pub(crate) async fn sight(
        self: &Arc<Self>,
        claim: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
        match self.sight_as_known(claim) {
            None => self.sight_now(claim).await,
            known => known,
        }
    }

    /// The same as it is now.
    async fn sight_now(self: &Arc<Self>, claim: &RequestContext<'_>) -> Option<Arc<ToolView>> {
        let Some(server) = claim.server else { return Some(self.sight_of_all(claim).await) };
        let profile = self.profile(server, claim.owner).await.ok()?;
        Some(self.sight_of(server, claim.owner, &profile))
    }

    /// How the tools of a server of which this is known are shown.
    pub(crate) fn sight_of(
        &self,
        server: &Server,
        owner: &Owner,
        profile: &Arc<Profile>,
    ) -> Arc<ToolView> {
        self.identify.sights.get(server, owner, profile)
    }

    /// Among all servers nothing is called like our tools, because every name begins with its server. How the
    /// argument is called may differ from server to server.
    async fn sight_of_all(self: &Arc<Self>, claim: &RequestContext<'_>) -> Arc<ToolView> {
        let roll = Roster::call(self, claim.owner, claim.place()).await;
        let kept = |name: &str, profile: &Profile| {
            let server = self.servers.get(name);
            server.is_some_and(|it| it.isolation(profile.way().era()) != Isolation::Shared)
        };
        Arc::new(ToolView {
            kept: roll.present.iter().any(|it| kept(&it.name, &it.profile)),
            argument: Argument::of(&[]),
            prefixed: false,
        })
    }

    /// Whether what a request is for keeps state for a session.
    pub(crate) async fn keeps(self: &Arc<Self>, claim: &RequestContext<'_>) -> bool {
        match self.keeps_as_known(claim) {
            Some(keeps) => keeps,
            None => self.sight(claim).await.is_none_or(|sight| sight.kept),
        }
    }

    /// The same, if nothing has to be asked for it.
    pub(crate) fn keeps_as_known(&self, claim: &RequestContext<'_>) -> Option<bool> {
        match claim.server?.options().isolation {
            Some(isolation) => Some(isolation != Isolation::Shared),
            None => self.sight_as_known(claim).map(|sight| sight.kept),
        }
    }

    /// How the tools of what a request is for are shown, if that was decided before.
    pub(crate) fn sight_as_known(&self, claim: &RequestContext<'_>) -> Option<Arc<ToolView>> {
        self.identify.sights.last(claim.server?, claim.owner)
    }

    /// A result of `tools/list` as this client sees it; `None` if it stays as it is. Our own tools stand
    /// on the first page, which every client reads.
    pub(crate) async fn shown(
        self: &Arc<Self>,
        claim: &RequestContext<'_>,
        page: &str,
    ) -> Option<String> {
        let (takes, shows) = (self.takes_argument(claim), self.shows_tools(claim));
        if !takes && !shows {
            return None;
        }
        let sight = self.sight_now(claim).await.filter(|sight| sight.kept)?;
        let with_argument =
            takes.then(|| tool_argument::listed(page, &sight.argument).into_owned());
        let page = with_argument.as_deref().unwrap_or(page);
        let cursor = claim.message.params().and_then(|params| params.find(&["cursor"]));
        let list =
            tool_argument::list(page).filter(|_| shows && cursor.is_none_or(|it| it.is_null()));
        let Some(list) = list else { return with_argument };
        let own = session_tools::listed(&self.identify, claim, sight.prefixed);
        Some(tool_argument::appended(page, list, &own))
    }
}
