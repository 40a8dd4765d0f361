//! Tool views of requests: whether a server keeps state, and how its tools take a handle.

use std::sync::Arc;

use stayput_core::Owner;
use stayput_identify::{ArgumentName, SessionArgument, text::HandlePlace, tools::SessionTool};
use stayput_upstream::{Isolation, Profile, Server};

use crate::{
    catalog::tool_view::ToolView,
    identify::RequestContext,
    state::{AppState, identify_rules::ConnectionKind, roster::Roster},
};

impl AppState {
    /// Whether a session argument in a call counts as a name, provided that the target keeps state. It does also where
    /// the URL names the session and the tools do not show the argument: a conflict with the URL is an error.
    pub(crate) fn reads_argument(&self, context: &RequestContext<'_>) -> bool {
        let kind = context.connection_kind();
        self.any(context, |server| self.identify.takes_argument(server, kind, false))
    }

    /// Whether tools of the request's target take a handle from this client, provided that the target keeps state.
    pub(crate) fn takes_argument(&self, context: &RequestContext<'_>) -> bool {
        let (kind, in_url) = (context.connection_kind(), context.path_key.is_some());
        self.any(context, |server| self.identify.takes_argument(server, kind, in_url))
    }

    /// Whether session tools are shown with the tools of the request's target, provided that the target keeps state.
    pub(crate) fn shows_tools(&self, context: &RequestContext<'_>) -> bool {
        let (kind, in_url) = (context.connection_kind(), context.path_key.is_some());
        self.any(context, |server| self.identify.shows_tools(server, kind, in_url))
    }

    /// Returns the place where this client puts a handle.
    pub(crate) async fn handle_place(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
    ) -> HandlePlace {
        let tool_view = self.tool_view(context).await;
        if self.takes_argument(context) {
            let argument = tool_view.map_or(ArgumentName::Plain, |view| view.argument.name());
            return HandlePlace::Argument(argument);
        }
        match context.connection_kind() {
            ConnectionKind::Modern => HandlePlace::Meta,
            ConnectionKind::Legacy | ConnectionKind::Stdio => {
                let prefixed = tool_view.is_some_and(|view| view.prefixed);
                HandlePlace::SwitchTool(SessionTool::Switch.name(prefixed))
            }
        }
    }

    fn any(&self, context: &RequestContext<'_>, which: impl Fn(&str) -> bool) -> bool {
        match context.server {
            Some(server) => which(server.name()),
            None => self.servers.keys().any(|server| which(server)),
        }
    }

    /// Returns the tool view of the request's target; `None` if the server's profile is not available.
    pub(crate) async fn tool_view(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
        match self.known_tool_view(context) {
            None => self.current_tool_view(context).await,
            known => known,
        }
    }

    /// Determines the tool view anew, from the current profile.
    pub(crate) async fn current_tool_view(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
    ) -> Option<Arc<ToolView>> {
        let Some(server) = context.server else {
            return Some(self.tool_view_of_all(context).await);
        };
        let profile = self.profile(server, context.owner).await.ok()?;
        Some(self.tool_view_of(server, context.owner, &profile))
    }

    /// Returns the tool view of a server with this profile.
    pub(crate) fn tool_view_of(
        &self,
        server: &Server,
        owner: &Owner,
        profile: &Arc<Profile>,
    ) -> Arc<ToolView> {
        self.identify.tool_views.get(server, owner, profile)
    }

    /// Returns the tool view of all servers together. Session tools need no prefix there, because every tool name
    /// begins with its server. The name of the session argument may differ from server to server.
    async fn tool_view_of_all(self: &Arc<Self>, context: &RequestContext<'_>) -> Arc<ToolView> {
        let roster = Roster::call(self, &context.caller()).await;
        let kept = |name: &str, profile: &Profile| {
            let server = self.servers.get(name);
            server.is_some_and(|it| profile.isolation(it) != Isolation::Shared)
        };
        Arc::new(ToolView {
            kept: roster.present.iter().any(|it| kept(&it.name, &it.profile)),
            argument: SessionArgument::default(),
            prefixed: false,
        })
    }

    /// Whether the request's target keeps state per session.
    pub(crate) async fn keeps_state(self: &Arc<Self>, context: &RequestContext<'_>) -> bool {
        match self.keeps_state_if_known(context) {
            Some(keeps) => keeps,
            None => self.tool_view(context).await.is_none_or(|tool_view| tool_view.kept),
        }
    }

    /// Returns the same from cached profiles, without asking a server; `None` if they do not suffice.
    pub(crate) fn keeps_state_if_known(&self, context: &RequestContext<'_>) -> Option<bool> {
        if context.claim.is_some() {
            return Some(false);
        }
        match context.server?.options().isolation {
            Some(isolation) => Some(isolation != Isolation::Shared),
            None => self.known_tool_view(context).map(|tool_view| tool_view.kept),
        }
    }

    /// Returns the tool view of the request's target, if it was determined before.
    pub(crate) fn known_tool_view(&self, context: &RequestContext<'_>) -> Option<Arc<ToolView>> {
        self.identify.tool_views.last(context.server?, context.owner)
    }
}
