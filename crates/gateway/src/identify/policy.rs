//! Policy for requests without an identified session.

use std::{sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, Handle, Key, OpenOptions, OpenedSession, SessionOpenError};
use stayput_identify::text;
use stayput_wire::{json, meta};

use super::{
    RequestContext, RequestEdit, SessionChoice,
    open::{self, keyed},
    refusal::Refusal,
};
use crate::{config::UnidentifiedPolicy, reply, state::AppState};

/// Idle limit of an ephemeral session, in case it is not ended with its call.
const FLEETING: Duration = Duration::from_secs(2 * 60);

/// Applies the configured policy to a request without a session.
pub(super) async fn apply(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    text: Option<RequestEdit>,
) -> SessionChoice {
    let policy = app.identify.configured.unidentified;
    // Only a tool call has an argument that can return the handle.
    let tool = context.asked().method == "tools/call";
    let done = match policy {
        UnidentifiedPolicy::Offer if tool => offer(app, context).await,
        UnidentifiedPolicy::Mint if tool => mint(app, context).await,
        UnidentifiedPolicy::Offer | UnidentifiedPolicy::Mint => fleeting(app, context).await,
        UnidentifiedPolicy::Owner => of_owner(app, context).await,
        UnidentifiedPolicy::Refuse => Ok(SessionChoice::Answer(refused(app, context).await)),
    };
    match done {
        Ok(SessionChoice::Session { session, origin, given, fleeting, .. }) => {
            SessionChoice::Session { session, origin, text, given, fleeting }
        }
        Ok(answer) => answer,
        Err(error) => {
            let refusal = Refusal::of(&error, "Try again later.");
            SessionChoice::Answer(refusal.answer(context.asked(), context.era()))
        }
    }
}

/// Opens a provisional session, which ends soon unless its handle is used.
async fn provisional(
    app: &AppState,
    context: &RequestContext<'_>,
) -> Result<(OpenedSession, Handle), SessionOpenError> {
    let options = OpenOptions::new(context.owner.clone()).provisional();
    let opened = app.open(&options, context.label()).await?;
    let handle = app.sessions.issue_handle(&opened.session).await?;
    Ok((opened, handle))
}

/// Runs and starts nothing: the answer carries a handle for the next call.
async fn offer(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let (_opened, handle) = provisional(app, context).await?;
    let offer = text::offer(&handle, &app.handle_place(context).await);
    let sentence = format!("{offer} The session {}.", text::lifetime(app.identify.expiry));
    Ok(SessionChoice::Answer(offered(context, &sentence, &handle)))
}

fn offered(context: &RequestContext<'_>, sentence: &str, handle: &Handle) -> String {
    let (kind, text) = (reply::kind_of_result(context.era()), json::quote(sentence));
    let (key, handle) = (json::quote(meta::SESSION), json::quote(handle.expose()));
    let result = format!(
        r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{{key}:{handle}}}}}"#
    );
    reply::result(context.asked().id, &result)
}

/// Runs the call at once; its answer carries the handle.
async fn mint(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let (OpenedSession { session, origin }, handle) = provisional(app, context).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: Some(handle), fleeting: false })
}

/// Opens a session for this one call.
async fn fleeting(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let options = OpenOptions::new(context.owner.clone()).expiry(Expiry::idle(FLEETING));
    let OpenedSession { session, origin } = app.open(&options, context.label()).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: None, fleeting: true })
}

/// Opens the one session for all unidentified requests of an owner.
async fn of_owner(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    // This key source is reserved, so that no client reaches the session by chance.
    let Ok(key) = Key::new("owner", "all") else { return Err(SessionOpenError::Unknown) };
    let OpenedSession { session, origin } = keyed(app, context, Agent::none(), key).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: None, fleeting: false })
}

async fn refused(app: &Arc<AppState>, context: &RequestContext<'_>) -> String {
    let refusal = Refusal::caller(format!(
        "Nothing was run: the server keeps state between calls, and nothing says which session this \
         belongs to. {}",
        open::way_out(app, context).await
    ));
    refusal.answer(context.asked(), context.era())
}
