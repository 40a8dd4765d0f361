//! `session_info`.

use std::sync::Arc;

use super::result::{self, Answer};
use crate::{
    identify::{self, Refusal, RequestContext},
    state::AppState,
};

/// Describes the session of a call.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Answer, Refusal> {
    let found = identify::session_of_tool_call(app, context).await?;
    let origin = result::origin(context, &found);
    let mut reply = result::describe(&found.session, origin, |view| view.info());
    let servers = found.session.record().attachments.keys().cloned().collect::<Vec<String>>();
    reply.structure["servers"] = servers.into();
    Ok(reply.into())
}
