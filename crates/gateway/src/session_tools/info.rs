//! `session_info`.

use std::sync::Arc;

use crate::{
    identify::{self, Refusal, RequestContext},
    session_tools::result::{self, ToolReply},
    state::AppState,
};

/// Describes the session of a call.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ToolReply, Refusal> {
    let found = identify::current(app, context).await?;
    let record = found.session.record();
    let mut structure = result::session(&found.session, result::origin(context, &found));
    structure["servers"] = record.attachments.keys().cloned().collect::<Vec<String>>().into();
    let name = result::name(&record).map(|name| format!(" (name: {name})")).unwrap_or_default();
    let state = structure["state"].as_str().unwrap_or_default();
    let text = format!(
        "Session {}{name}: its state is {state}. It {}.",
        found.session.id(),
        app.identify.lifetime()
    );
    Ok(ToolReply::new(text, structure))
}
