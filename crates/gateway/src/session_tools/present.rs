//! Presentation of a server's tools to clients: with a session argument, and with the session tools.

use std::sync::Arc;

use crate::{
    catalog::tool_argument, identify::RequestContext, session_tools::schemas, state::AppState,
};

impl AppState {
    /// Returns a `tools/list` result as this client sees it, or `None` if it stays unchanged. The session tools are
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
        let tool_view = self.current_tool_view(claim).await.filter(|tool_view| tool_view.kept)?;
        let with_argument =
            takes.then(|| tool_argument::listed(page, &tool_view.argument).into_owned());
        let page = with_argument.as_deref().unwrap_or(page);
        let cursor = claim.message.params().and_then(|params| params.find(&["cursor"]));
        let list =
            tool_argument::list(page).filter(|_| shows && cursor.is_none_or(|it| it.is_null()));
        let Some(list) = list else { return with_argument };
        let own = schemas::listed(&self.identify, claim, tool_view.prefixed);
        Some(tool_argument::appended(page, list, &own))
    }
}
