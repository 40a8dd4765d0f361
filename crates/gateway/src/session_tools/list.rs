//! `session_list`.

use std::sync::Arc;

use stayput_core::{Clock as _, SessionId, SystemClock};
use stayput_identify::tools::{LIST_PAGE, ToolError, ToolReply};

use super::{arguments, result::Answer};
use crate::{
    identify::{Refusal, RequestContext},
    state::{AppState, identify_rules::ConnectionKind},
};

/// Lists the sessions of the owner, or issues a new handle for one of them.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Answer, Refusal> {
    if let Some(id) = arguments(context).session_id("session")? {
        return issue(app, context, id).await;
    }
    let after = arguments(context).session_id("after")?;
    let page = app.sessions.list(context.owner, after, LIST_PAGE).await;
    let page = page.map_err(|error| Refusal::for_open_error(&error, "Try again later."))?;
    let active = context.connection.map(|connection| connection.default_session());
    Ok(ToolReply::listed(&page, active, SystemClock.now()).into())
}

/// Issues a handle for a session id. Session ids are not secret, and clients without credentials cannot be
/// distinguished, so only an authenticated owner or a stdio client gets a handle.
async fn issue(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    id: SessionId,
) -> Result<Answer, Refusal> {
    if context.owner.issuer().is_none() && context.connection_kind() != ConnectionKind::Stdio {
        return Err(ToolError::UncertainOwner.into());
    }
    let failed = |error| Refusal::for_open_error(&error, "The list has those that there are.");
    let session = app.sessions.find_by_id(context.owner, id).await.map_err(failed)?;
    let handle = app.sessions.issue_handle(&session).await.map_err(failed)?;
    Ok(ToolReply::issued(id, &handle).into())
}
