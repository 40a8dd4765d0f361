//! `session_end`.

use std::sync::Arc;

use serde_json::json;
use stayput_core::{OpenOptions, SessionId, SessionOpenError};

use crate::{
    identify::{self, Refusal, RequestContext},
    session_tools::result::ToolReply,
    state::AppState,
};

/// Ends the session of a call, and what it has on servers.
pub(super) async fn call(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<ToolReply, Refusal> {
    let found = identify::current(app, claim).await?;
    let session = found.session.session().clone();
    drop(found);
    let ended = app.end(&session, Some(claim.label())).await;
    ended.map_err(|error: SessionOpenError| Refusal::of(&error, "Try again."))?;
    let id = session.id();
    if let Err(error) = replace(app, claim, id).await {
        // The next call tries again.
        app.log.warn(&format!("there is no session yet after session {id}: {error}"));
    }
    // A child that takes its time keeps nobody waiting.
    let links = app.links.clone();
    tokio::runtime::Handle::current().spawn(async move { links.end(id).await });
    let text =
        format!("Session {id} has ended. Its state is gone, and its session_id leads nowhere.");
    Ok(ToolReply::new(text, json!({ "session": id.to_string(), "ended": true })))
}

/// A connection always has a session: if its own one has ended, it gets another. Not before, so that there is room
/// for it.
async fn replace(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    ended: SessionId,
) -> Result<(), SessionOpenError> {
    let own = claim.connection.filter(|connection| connection.default_session() == ended);
    if own.is_some() {
        let opened = app.open(&OpenOptions::new(claim.owner.clone()), claim.label()).await?;
        identify::lead(app, claim, &opened.session).await?;
    }
    Ok(())
}
