//! Explicit names of sessions in a request.

use std::sync::Arc;

use stayput_core::{Agent, Name, SessionId};
use stayput_identify::{ArgumentName, ArgumentRule, ExplicitNames, MetaMembers, SessionArguments};

use super::{RequestContext, refusal::Refusal};
use crate::state::AppState;

/// Reads the names of a request from every name source that is enabled, and whether its target is known to keep state.
/// `own` is set for a call of a session tool.
///
/// # Errors
/// If a value in the place of a name is not a valid name.
pub(super) async fn read(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    members: &MetaMembers<'_>,
    own: bool,
) -> Result<(ExplicitNames, bool), Refusal> {
    let mut names = ExplicitNames::default();
    let argument = argument(app, context, own).await;
    if let Some((arguments, name, rule)) = argument {
        names.read_argument(arguments, name, rule)?;
    }
    let name_sources = &app.identify.configured.name_sources;
    if name_sources.meta {
        names.read_meta(members)?;
    }
    if name_sources.header {
        names.read_header(context.headers)?;
    }
    if let Some(key) = context.path_key {
        names.read_path(key)?;
    }
    for source in &name_sources.custom {
        let claim = |name: &str| context.claims.text(name);
        names.read_custom(source, context.headers, members, claim)?;
    }
    // Only tools of a server that keeps state take the argument.
    Ok((names, argument.is_some() && !own))
}

/// Returns the session arguments of a call, with the name that counts. E39: only a value with the form of a name
/// belongs to Stayput; every other value belongs to the tool. The argument of a session tool always belongs to Stayput.
async fn argument<'a>(
    app: &Arc<AppState>,
    context: &RequestContext<'a>,
    own: bool,
) -> Option<(SessionArguments<'a>, ArgumentName, ArgumentRule)> {
    if !(own || app.reads_argument(context)) {
        return None;
    }
    let arguments = SessionArguments::from_call(context.message)?;
    if own {
        return Some((arguments, ArgumentName::Plain, ArgumentRule::Owned));
    }
    let tool_view = match app.known_tool_view(context) {
        None => Box::pin(app.tool_view(context)).await,
        known => known,
    };
    let tool_view = tool_view.filter(|it| it.kept)?;
    Some((arguments, tool_view.argument.name(), ArgumentRule::Added))
}

/// Checks that all names refer to one session: a handle and a key may.
///
/// # Errors
/// If they refer to different sessions.
pub(super) async fn check_agreement(
    app: &AppState,
    context: &RequestContext<'_>,
    names: &ExplicitNames,
) -> Result<(), Refusal> {
    let Some(first) = names.first() else { return Ok(()) };
    for (other, conflict) in names.conflicts() {
        let session = session_of(app, context, first).await;
        if session.is_none() || session != session_of(app, context, other).await {
            return Err(conflict.into());
        }
    }
    Ok(())
}

/// Session that a name leads to, if it exists.
async fn session_of(
    app: &AppState,
    context: &RequestContext<'_>,
    name: &Name,
) -> Option<SessionId> {
    let found = match name {
        Name::Handle(handle) => app.sessions.find_by_handle(context.owner, handle).await,
        Name::Key(key) => app.sessions.find_by_key(context.owner, &Agent::none(), key).await,
    };
    found.ok().map(|session| session.id())
}
