//! Tool views of requests: whether a server keeps state, and how its tools take a handle.

use std::sync::Arc;

use stayput_core::Owner;
use stayput_upstream::{Isolation, Profile, Server};

use crate::{
    catalog::{tool_argument::Argument, tool_view::ToolView},
    identify::RequestContext,
    state::{AppState, roster::Roster},
};

impl AppState {
    /// Whether tools of the request's target take a handle from this client, provided that the target keeps state.
    pub(crate) fn takes_argument(&self, claim: &RequestContext<'_>) -> bool {
        self.any(claim, |server| self.identify.takes_argument(server, claim.front()))
    }

    /// Whether session tools are shown with the tools of the request's target, provided that the target keeps state.
    pub(crate) fn shows_tools(&self, claim: &RequestContext<'_>) -> bool {
        self.any(claim, |server| self.identify.shows_tools(server, claim.front()))
    }

    fn any(&self, claim: &RequestContext<'_>, which: impl Fn(&str) -> bool) -> bool {
        match claim.server {
            Some(server) => which(server.name()),
            None => self.servers.keys().any(|server| which(server)),
        }
    }

    /// Returns the tool view of the request's target; `None` if the server's profile is not available.
    pub(crate) async fn sight(
        self: &Arc<Self>,
        claim: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
        match self.sight_as_known(claim) {
            None => self.sight_now(claim).await,
            known => known,
        }
    }

    /// Determines the tool view anew, from the current profile.
    pub(crate) async fn sight_now(
        self: &Arc<Self>,
        claim: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
        let Some(server) = claim.server else { return Some(self.sight_of_all(claim).await) };
        let profile = self.profile(server, claim.owner).await.ok()?;
        Some(self.sight_of(server, claim.owner, &profile))
    }

    /// Returns the tool view of a server with this profile.
    pub(crate) fn sight_of(
        &self,
        server: &Server,
        owner: &Owner,
        profile: &Arc<Profile>,
    ) -> Arc<ToolView> {
        self.identify.sights.get(server, owner, profile)
    }

    /// Returns the tool view of all servers together. Session tools need no prefix there, because every tool name
    /// begins with its server. The name of the session argument may differ from server to server.
    async fn sight_of_all(self: &Arc<Self>, claim: &RequestContext<'_>) -> Arc<ToolView> {
        let roster = Roster::call(self, claim.owner, claim.place()).await;
        let kept = |name: &str, profile: &Profile| {
            let server = self.servers.get(name);
            server.is_some_and(|it| it.isolation(profile.way().era()) != Isolation::Shared)
        };
        Arc::new(ToolView {
            kept: roster.present.iter().any(|it| kept(&it.name, &it.profile)),
            argument: Argument::of(&[]),
            prefixed: false,
        })
    }

    /// Whether the request's target keeps state per session.
    pub(crate) async fn keeps(self: &Arc<Self>, claim: &RequestContext<'_>) -> bool {
        match self.keeps_as_known(claim) {
            Some(keeps) => keeps,
            None => self.sight(claim).await.is_none_or(|sight| sight.kept),
        }
    }

    /// Answers the same from what is known, without asking a server; `None` if that is not possible.
    pub(crate) fn keeps_as_known(&self, claim: &RequestContext<'_>) -> Option<bool> {
        match claim.server?.options().isolation {
            Some(isolation) => Some(isolation != Isolation::Shared),
            None => self.sight_as_known(claim).map(|sight| sight.kept),
        }
    }

    /// Returns the tool view of the request's target, if it was determined before.
    pub(crate) fn sight_as_known(&self, claim: &RequestContext<'_>) -> Option<Arc<ToolView>> {
        self.identify.sights.last(claim.server?, claim.owner)
    }
}
