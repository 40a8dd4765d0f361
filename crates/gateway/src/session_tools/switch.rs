//! `session_switch`.

use std::sync::Arc;

use super::argument;
use crate::{
    catalog::tool_argument::ARGUMENT,
    identify::{self, Refusal, RequestContext},
    session_tools::result::{self, ToolReply},
    state::AppState,
};

/// Changes the default session of the connection. The change is stored before the answer is sent.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ToolReply, Refusal> {
    let missing = || {
        let sentence = "Nothing was switched: `session_id` must be a session id (`sp_…`), or `key:` and a name.";
        Refusal::caller(sentence)
    };
    argument(context, ARGUMENT)?.ok_or_else(missing)?;
    let found = identify::named(app, context, true).await?.found.ok_or_else(missing)?;
    let change = identify::lead(app, context, &found.session).await;
    change.map_err(|error| Refusal::of(&error, "Try again."))?;
    let structure = result::session(&found.session, result::origin(context, &found));
    let text = format!(
        "Calls on this connection that name no session go to session {} now.",
        found.session.id()
    );
    Ok(ToolReply::new(text, structure))
}
