//! Identification of the session that a request means.
//!
//! There are four classes of name sources, in this order: an explicit name, a hint of the host, the session of the
//! connection, and the policy for unidentified requests. The higher class wins silently. Two different values inside
//! one class are an error.

mod connection;
mod context;
pub(crate) mod cookie;
mod ephemeral;
mod explicit;
pub(crate) mod header_names;
mod open;
mod policy;
mod refusal;
#[cfg(test)]
pub(crate) mod tests;
mod tool_view;

use std::sync::Arc;

use stayput_core::{ActiveSession, Handle, Name, Origin};
use stayput_identify::{MetaMembers, read_hints};
pub(crate) use stayput_identify::{RequestEdit, add_handle};
use stayput_upstream::Server;

pub(crate) use self::{
    connection::{read_connection_name, refusal_if_home_is_elsewhere, set_default_session},
    context::RequestContext,
    cookie::renew_cookie,
    open::open_by_key,
    refusal::Refusal,
};
use self::{ephemeral::EphemeralSession, explicit::ReadNames};
use crate::{
    observe::recent::NameSource,
    reply::ReplyText,
    state::{AppState, shared_servers::ServerHolder},
};

/// Result of identification.
pub(crate) enum SessionChoice {
    /// The request runs in this session, without the session name if that had to be removed.
    Session(ChosenSession, Option<RequestEdit>),
    /// The request is not run. This is its answer: a tool error or an error, as JSON-RPC text.
    Answer(ReplyText),
}

/// Session in which a request runs. It does not become idle meanwhile.
pub(crate) struct ChosenSession {
    pub(crate) session: ActiveSession,
    /// Whether the state that the client remembers still exists.
    pub(crate) origin: Origin,
    /// New handle, which the answer returns to the client.
    pub(crate) new_handle: Option<Handle>,
    /// Ends a session that exists for this request only. It comes after `session`, so that it is dropped later.
    _ephemeral: Option<EphemeralSession>,
    /// Part of the request that named the session, or the policy that chose it.
    pub(crate) name_source: NameSource,
}

impl ChosenSession {
    /// Session that lives on after the request, and of which the client gets no new handle.
    pub(crate) fn new(session: ActiveSession, origin: Origin, name_source: NameSource) -> Self {
        Self { session, origin, new_handle: None, _ephemeral: None, name_source }
    }
}

/// Session that a name source identified.
pub(crate) struct FoundSession {
    pub(crate) session: ActiveSession,
    pub(crate) origin: Origin,
    /// Handle that named the session, if one did.
    pub(crate) handle: Option<Handle>,
}

impl FoundSession {
    /// Wraps an existing session in use.
    fn from_existing(session: ActiveSession) -> Self {
        let origin = session.latest_unacknowledged_loss().map_or(Origin::Existing, Origin::Lost);
        Self { session, origin, handle: None }
    }
}

/// Session that a request names itself.
pub(crate) struct NamedSession {
    /// Session, if the request names one.
    pub(crate) found: Option<FoundSession>,
    /// Message without the session name, if it had to be removed.
    edit: Option<RequestEdit>,
    /// Part of the request that names the session.
    name_source: Option<NameSource>,
}

/// Identifies the session of a request.
pub(crate) async fn identify_session(context: &RequestContext<'_>) -> SessionChoice {
    let app = context.app;
    let done = async {
        let NamedSession { found, edit, name_source } = named_session(app, context, false).await?;
        let found = match found {
            None => connection::session(app, context).await?,
            found => found,
        };
        let name_source = name_source.unwrap_or(match context.connection {
            Some(_) => NameSource::Connection,
            None => NameSource::Cookie,
        });
        Ok::<_, Refusal>(match found {
            Some(FoundSession { session, origin, .. }) => {
                SessionChoice::Session(ChosenSession::new(session, origin, name_source), edit)
            }
            None => Box::pin(policy::apply(app, context, edit)).await,
        })
    };
    done.await.unwrap_or_else(|refusal| {
        SessionChoice::Answer(refusal.answer(context.request_ref(), context.era))
    })
}

/// Identifies the session that a client names in `initialize`. The connection will lead to it.
pub(crate) async fn session_for_initialize(
    context: &RequestContext<'_>,
) -> Result<Option<FoundSession>, Refusal> {
    let app = context.app;
    let names = explicit::read(app, context, &meta_members(app, context), false).await?.names;
    if names.first().is_none() || !app.keeps_state(context).await {
        return Ok(None);
    }
    explicit::check_agreement(app, context, &names).await?;
    let Some(name) = names.into_first() else { return Ok(None) };
    open::open_by_name(app, context, name).await.map(Some)
}

/// Identifies the session that a call of a session tool is about.
pub(crate) async fn session_of_tool_call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<FoundSession, Refusal> {
    let found = match named_session(app, context, true).await?.found {
        None => connection::session(app, context).await?,
        found => found,
    };
    match found {
        Some(found) => Ok(found),
        None => {
            let hint = open::recovery_hint(app, context).await;
            Err(Refusal::caller(format!("Nothing says which session is meant. {hint}")))
        }
    }
}

/// Removes the names of sessions from a request that needs no session: one replica holds the process of the server for all
/// its users. Another one may hold the session, so it is not looked up.
pub(crate) async fn without_names(
    context: &RequestContext<'_>,
) -> Result<Option<RequestEdit>, Refusal> {
    let members = meta_members(context.app, context);
    let ReadNames { names, .. } = explicit::read(context.app, context, &members, false).await?;
    Ok(names.edit(context.message)?)
}

/// Claims the process of a server for this replica, if one replica holds it for all its users.
///
/// # Errors
/// The refusal of the request, if another replica holds the process or the store cannot be asked.
pub(crate) async fn claim_server(
    context: &RequestContext<'_>,
    server: &Server,
) -> Result<Option<Arc<ActiveSession>>, Refusal> {
    match context.app.server_holder(server, context.owner).await {
        Ok(ServerHolder::Any) => Ok(None),
        Ok(ServerHolder::Here(claim)) => Ok(Some(claim)),
        Ok(ServerHolder::Elsewhere(holder, name)) => Err(Refusal::process_held_by(holder, name)),
        Err(error) => Err(Refusal::for_open_error(&error, "Try again in a moment.")),
    }
}

/// Identifies the session that a request names itself, by an explicit name or by a hint of its host. `own` is set for
/// a call of a session tool, whose argument always belongs to Stayput.
pub(crate) async fn named_session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    own: bool,
) -> Result<NamedSession, Refusal> {
    let members = meta_members(app, context);
    let ReadNames { names, kept, name_source } =
        explicit::read(app, context, &members, own).await?;
    let edit = names.edit(context.message)?;
    if names.conflicts().next().is_some() {
        // Boxed because it is rare: without the box, the future of every call would be as large as this one.
        Box::pin(explicit::check_agreement(app, context, &names)).await?;
    }
    let name = match names.into_first() {
        None => read_hints(&app.identify.configured.hints.0, &members)?.map(Name::Key),
        name => name,
    };
    let unnamed = |edit| Ok(NamedSession { found: None, edit, name_source: None });
    let Some(name) = name else { return unnamed(edit) };
    if context.connection.is_some() && !own && !kept && !keeps_state(app, context).await {
        // A shared link is the same in every session.
        return unnamed(edit);
    }
    let found = match open::find_held(app, context, &name) {
        Some(found) => found,
        None => Box::pin(open::open_by_name(app, context, name)).await?,
    };
    connection::note_named_session(context, &found.session);
    let name_source = Some(name_source.unwrap_or(NameSource::Hint));
    Ok(NamedSession { found: Some(found), edit, name_source })
}

/// Reads the members of `_meta` that can name a session.
fn meta_members<'a>(app: &AppState, context: &RequestContext<'a>) -> MetaMembers<'a> {
    MetaMembers::from_message(context.message, &app.identify.configured.name_sources.custom)
}

/// Whether the target of a request keeps state per session.
async fn keeps_state(app: &Arc<AppState>, context: &RequestContext<'_>) -> bool {
    match app.keeps_state_if_known(context) {
        Some(keeps) => keeps,
        None => Box::pin(app.keeps_state(context)).await,
    }
}
