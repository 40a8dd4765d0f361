//! Explicit names of sessions in a request.

use std::sync::Arc;

use stayput_core::{Agent, Name, SessionId};
use stayput_identify::{
    ArgumentName, ArgumentRule, ExplicitNames, MetaMembers, NameError, SessionArguments,
};

use super::{RequestContext, refusal::Refusal};
use crate::state::AppState;

/// Explicit names of a request.
pub(super) struct Explicit {
    pub(super) names: ExplicitNames,
    /// Whether the target is known to keep state.
    pub(super) kept: bool,
}

/// Reads the names of a request from every name source that is enabled. `own` is set for a call of a session tool.
///
/// # Errors
/// If a value in the place of a name is not a valid name.
pub(super) async fn read(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    members: &MetaMembers<'_>,
    own: bool,
) -> Result<Explicit, Refusal> {
    let mut explicit = Explicit { names: ExplicitNames::default(), kept: false };
    explicit.read_argument(app, context, own).await?;
    explicit.read_others(app, context, members)?;
    Ok(explicit)
}

impl Explicit {
    /// E39: only a value with the form of a name belongs to Stayput; every other value belongs to the tool. The
    /// argument of a session tool always belongs to Stayput.
    async fn read_argument(
        &mut self,
        app: &Arc<AppState>,
        context: &RequestContext<'_>,
        own: bool,
    ) -> Result<(), Refusal> {
        if !(own || app.takes_argument(context)) {
            return Ok(());
        }
        let Some(arguments) = SessionArguments::from_call(context.message) else { return Ok(()) };
        let (name, rule) = match own {
            true => (ArgumentName::Plain, ArgumentRule::Owned),
            false => {
                let tool_view = match app.known_tool_view(context) {
                    None => Box::pin(app.tool_view(context)).await,
                    known => known,
                };
                // Tools of a shared server take no handle.
                let Some(tool_view) = tool_view.filter(|it| it.kept) else { return Ok(()) };
                self.kept = true;
                (tool_view.argument.name(), ArgumentRule::Added)
            }
        };
        Ok(self.names.read_argument(arguments, name, rule)?)
    }

    fn read_others(
        &mut self,
        app: &AppState,
        context: &RequestContext<'_>,
        members: &MetaMembers<'_>,
    ) -> Result<(), NameError> {
        let carriers = &app.identify.configured.carriers;
        if carriers.meta {
            self.names.read_meta(members)?;
        }
        if carriers.header {
            self.names.read_header(context.headers)?;
        }
        if let Some(key) = context.path_key {
            self.names.read_path(key)?;
        }
        for source in &carriers.also {
            let claim = |name: &str| context.claims.text(name);
            self.names.read_custom(source, context.headers, members, claim)?;
        }
        Ok(())
    }
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
