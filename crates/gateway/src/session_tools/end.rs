//! `session_end`.

use std::sync::Arc;

use stayput_core::{OpenOptions, SessionId, SessionOpenError};
use stayput_identify::tools::ToolReply;

use super::result::Answer;
use crate::{
    identify::{self, Refusal, RequestContext},
    state::AppState,
};

/// Ends the session of a call, and its state on servers.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Answer, Refusal> {
    let found = identify::session_of_tool_call(app, context).await?;
    let session = found.session.session().clone();
    drop(found);
    let result = app.end(&session, Some(context.label())).await;
    result.map_err(|error: SessionOpenError| Refusal::for_open_error(&error, "Try again."))?;
    let id = session.id();
    if let Err(error) = replace(app, context, id).await {
        // The next call tries again to open a session.
        tracing::warn!(session = %id, "there is no session yet after session {id}: {error}");
    }
    // Ends the links in the background: a slow child process does not delay the answer.
    let links = app.links.clone();
    tokio::runtime::Handle::current().spawn(async move { links.end(id).await });
    Ok(ToolReply::ended(id).into())
}

/// Opens a new default session if the one that ended was the connection's. A connection always has one. This runs
/// after the end, so that the new session does not exceed the limit.
async fn replace(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    ended: SessionId,
) -> Result<(), SessionOpenError> {
    let own = context.connection.filter(|connection| connection.default_session() == ended);
    if own.is_some() {
        let opened = app.open(&OpenOptions::new(context.owner.clone()), context.label()).await?;
        identify::set_default_session(app, context, &opened.session).await?;
    }
    Ok(())
}
