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
    pub(crate) async fn sight_now(
        self: &Arc<Self>,
        claim: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
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
}
