//! Explicit names of sessions in a request.

use std::sync::Arc;

use stayput_core::{Agent, Name, SessionId, SessionOpenError};
use stayput_identify::{ArgumentName, ArgumentRule, ExplicitNames, MetaMembers, SessionArguments};

use super::{RequestContext, refusal::Refusal};
use crate::{observe::recent::NameSource, state::AppState};

/// Names of a request, and facts about them.
pub(super) struct ReadNames {
    pub(super) names: ExplicitNames,
    /// Whether the target is known to keep state.
    pub(super) kept: bool,
    /// Part of the request that has the first name.
    pub(super) name_source: Option<NameSource>,
}

/// Reads the names of a request from every name source that is enabled.
/// `own` is set for a call of a session tool.
///
/// # Errors
/// If a value in the place of a name is not a valid name.
pub(super) async fn read(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    members: &MetaMembers<'_>,
    own: bool,
) -> Result<ReadNames, Refusal> {
    let (mut names, mut name_source) = (ExplicitNames::default(), None);
    let mut read_from = |names: &ExplicitNames, source: NameSource| {
        if names.first().is_some() {
            name_source.get_or_insert(source);
        }
    };
    let argument = argument(app, context, own).await;
    if let Some((arguments, name, rule)) = argument {
        names.read_argument(arguments, name, rule)?;
        read_from(&names, NameSource::Argument);
    }
    let name_sources = &app.identify.configured.name_sources;
    if name_sources.meta {
        names.read_meta(members)?;
        read_from(&names, NameSource::Meta);
    }
    if name_sources.header {
        names.read_header(context.headers)?;
        read_from(&names, NameSource::Header);
    }
    if let Some(key) = context.path_key {
        names.read_path(key)?;
        read_from(&names, NameSource::Path);
    }
    for source in &name_sources.custom {
        let claim = |name: &str| context.claims.text(name);
        names.read_custom(source, context.headers, members, claim)?;
        read_from(&names, NameSource::Custom);
    }
    // Only tools of a server that keeps state take the argument.
    let kept = argument.is_some() && !own;
    Ok(ReadNames { names, kept, name_source })
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
        let found = [find(app, context, first).await, find(app, context, other).await];
        match found {
            [Ok(one), Ok(two)] if one == two => {}
            // The holder of both decides.
            [
                Err(SessionOpenError::HeldElsewhere { holder }),
                Err(SessionOpenError::HeldElsewhere { holder: same }),
            ] if holder == same => return Err(Refusal::held_by(holder)),
            _ => return Err(conflict.into()),
        }
    }
    Ok(())
}

/// Session that a name leads to.
async fn find(
    app: &AppState,
    context: &RequestContext<'_>,
    name: &Name,
) -> Result<SessionId, SessionOpenError> {
    let found = match name {
        Name::Handle(handle) => app.sessions.find_by_handle(context.owner, handle).await,
        Name::Key(key) => app.sessions.find_by_key(context.owner, &Agent::none(), key).await,
    };
    found.map(|session| session.id())
}
