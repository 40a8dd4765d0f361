//! `session_switch`.

use std::sync::Arc;

use stayput_identify::tools::ToolError;

use super::{
    arguments,
    result::{self, Answer},
};
use crate::{
    identify::{self, Refusal, RequestContext},
    state::AppState,
};

/// Changes the default session of the connection. The change is stored before the answer is sent.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Answer, Refusal> {
    if !arguments(context).names_session()? {
        return Err(ToolError::MissingSession.into());
    }
    let found = identify::named_session(app, context, true).await?.found;
    let found = found.ok_or(ToolError::MissingSession)?;
    let change = identify::set_default_session(app, context, &found.session).await;
    change.map_err(|error| Refusal::for_open_error(&error, "Try again."))?;
    let origin = result::origin(context, &found);
    Ok(result::describe(&found.session, origin, |view| view.switched()).into())
}
