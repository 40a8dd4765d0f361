//! Opens the session that a name refers to.

use std::sync::Arc;

use stayput_core::{Agent, Key, Name, OpenOptions, OpenedSession, SessionOpenError};
use stayput_identify::{text, tools::SessionTool};

use super::{FoundSession, RequestContext, refusal::Refusal};
use crate::{reply::SessionName, state::AppState};

/// Returns the session with this name, if this process holds it and no waiting is needed. Nearly every call takes
/// this path.
pub(super) fn find_held(
    app: &AppState,
    context: &RequestContext<'_>,
    name: &Name,
) -> Option<FoundSession> {
    app.sessions.find_held(context.owner, name).map(|session| {
        let handle = match name {
            Name::Handle(handle) => Some(handle.clone()),
            Name::Key(_) => None,
        };
        FoundSession { handle, ..FoundSession::from_existing(session) }
    })
}

/// Returns the session with this name. A new key creates a session; a handle only leads to the session that it was
/// issued for.
pub(super) async fn open_by_name(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    name: Name,
) -> Result<FoundSession, Refusal> {
    let cached = app.cluster.as_ref().map(|_| SessionName::new(context.owner, &name));
    if let Some(holder) = cached.as_ref().and_then(|name| app.cached_holder(name)) {
        return Err(Refusal::held_by(holder).found_by(cached));
    }
    let found = match name {
        Name::Key(key) => open_by_key(app, context, Agent::none(), key).await.map(|opened| {
            let OpenedSession { session, origin } = opened;
            FoundSession { session, origin, handle: None }
        }),
        Name::Handle(handle) => {
            let found =
                app.wait_for_holder(|| app.sessions.find_by_handle(context.owner, &handle)).await;
            found.map(|session| FoundSession {
                handle: Some(handle),
                ..FoundSession::from_existing(session)
            })
        }
    };
    match found {
        Ok(found) => Ok(found),
        Err(SessionOpenError::HeldElsewhere { holder }) if cached.is_some() => {
            cached.iter().for_each(|name| app.cache_holder(*name, &holder));
            Err(Refusal::held_by(holder).found_by(cached))
        }
        Err(error) => Err(Refusal::for_open_error(&error, &recovery_hint(app, context).await)),
    }
}

/// Finds or creates the session with this key.
pub(crate) async fn open_by_key(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    agent: Agent,
    key: Key,
) -> Result<OpenedSession, SessionOpenError> {
    let options = OpenOptions::with_key(context.owner.clone(), agent, key);
    app.open(&options, context.label()).await
}

/// Text that tells what the caller can do about a missing session.
pub(crate) async fn recovery_hint(app: &Arc<AppState>, context: &RequestContext<'_>) -> String {
    // A client that does not call tools cannot call the session tools.
    let tool = context.request_ref().method == "tools/call";
    let tool_view = if tool { app.tool_view(context).await.filter(|it| it.kept) } else { None };
    match tool_view {
        Some(tool_view) if app.shows_tools(context) => {
            text::start_again(&SessionTool::Start.name(tool_view.prefixed))
        }
        Some(tool_view) if app.takes_argument(context) => {
            let argument = tool_view.argument.name();
            format!("Leave `{argument}` out once, and use the new one that you are given.")
        }
        _ => "Name another session, or none.".to_owned(),
    }
}
