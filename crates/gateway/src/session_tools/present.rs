//! Presentation of a server's tools to clients: with a session argument, and with the session tools.

use std::sync::Arc;

use stayput_identify::append_tools;

use crate::{
    catalog::tool_view::ToolView, identify::RequestContext, session_tools, state::AppState,
};

/// Edits of a `tools/list` result for one client.
pub(crate) struct ToolEdits {
    tool_view: Arc<ToolView>,
    /// Whether the tools get the session argument.
    takes: bool,
    /// Whether the session tools are added.
    shows: bool,
}

impl AppState {
    /// Returns the edits of a `tools/list` result for this client, or `None` if it stays unchanged. The session tools
    /// are on the first page, which every client reads.
    pub(crate) async fn tool_edits(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
    ) -> Option<ToolEdits> {
        let (takes, shows) = (self.takes_argument(context), self.shows_tools(context));
        if !takes && !shows {
            return None;
        }
        let tool_view = self.current_tool_view(context).await.filter(|tool_view| tool_view.kept)?;
        let cursor = context.message.params().and_then(|params| params.find(&["cursor"]));
        let shows = shows && cursor.is_none_or(|it| it.is_null());
        Some(ToolEdits { tool_view, takes, shows })
    }
}

impl ToolEdits {
    /// Returns the edited page, or `None` if it stays unchanged.
    pub(crate) fn apply(&self, context: &RequestContext<'_>, page: &str) -> Option<String> {
        let argument = &self.tool_view.argument;
        let with_argument = self.takes.then(|| argument.add_to_page(page).into_owned());
        if !self.shows {
            return with_argument;
        }
        let page = with_argument.as_deref().unwrap_or(page);
        let own = session_tools::listed(&context.app.identify, context, self.tool_view.prefixed);
        append_tools(page, &own).or(with_argument)
    }

    /// Name of the edits in the key of a cached page.
    pub(crate) fn key(&self) -> String {
        let Self { tool_view, takes, shows } = self;
        format!("{takes} {shows} {:?} {}", tool_view.argument.name(), tool_view.prefixed)
    }
}
