//! Presentation of a server's tools to clients: with a session argument, and with the session tools.

use std::sync::Arc;

use stayput_identify::append_tools;

use crate::{identify::RequestContext, session_tools, state::AppState};

impl AppState {
    /// Returns a `tools/list` result as this client sees it, or `None` if it stays unchanged. The session tools are
    /// on the first page, which every client reads.
    pub(crate) async fn shown(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
        page: &str,
    ) -> Option<String> {
        let (takes, shows) = (self.takes_argument(context), self.shows_tools(context));
        if !takes && !shows {
            return None;
        }
        let tool_view = self.current_tool_view(context).await.filter(|tool_view| tool_view.kept)?;
        let with_argument = takes.then(|| tool_view.argument.add_to_page(page).into_owned());
        let page = with_argument.as_deref().unwrap_or(page);
        let cursor = context.message.params().and_then(|params| params.find(&["cursor"]));
        if !shows || cursor.is_some_and(|it| !it.is_null()) {
            return with_argument;
        }
        let own = session_tools::listed(&self.identify, context, tool_view.prefixed);
        append_tools(page, &own).or(with_argument)
    }
}
