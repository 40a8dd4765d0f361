//! Policy for a request that names no session.

use std::{sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, Handle, Key, OpenOptions, OpenedSession, SessionOpenError};
use stayput_identify::text;
use stayput_wire::{json, meta};

use super::{
    ChosenSession, EphemeralSession, RequestContext, RequestEdit, SessionChoice,
    open::{self, open_by_key},
    refusal::Refusal,
};
use crate::{
    config::{UnidentifiedPolicy, target::Target},
    observe::recent::NameSource,
    reply::{self, ReplyText},
    state::{AppState, identify_rules::ConnectionKind},
};

/// Idle limit of an ephemeral session, in case it is not ended with its call.
const EPHEMERAL_IDLE_LIMIT: Duration = Duration::from_secs(2 * 60);

/// Applies the configured policy to a request without a session.
pub(super) async fn apply(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    edit: Option<RequestEdit>,
) -> SessionChoice {
    let policy = app.identify.configured.unidentified;
    // Only a tool call has an argument that can return the handle.
    let tool = context.request_ref().method == "tools/call";
    let run = |chosen| SessionChoice::Session(chosen, edit);
    let done = match policy {
        UnidentifiedPolicy::Offer if tool => offer(app, context).await.map(SessionChoice::Answer),
        UnidentifiedPolicy::Mint if tool => mint(app, context).await.map(run),
        UnidentifiedPolicy::Offer | UnidentifiedPolicy::Mint => {
            open_ephemeral(app, context).await.map(run)
        }
        UnidentifiedPolicy::Owner => open_for_owner(app, context).await.map(run),
        UnidentifiedPolicy::Refuse => Ok(SessionChoice::Answer(refuse(app, context).await)),
    };
    done.unwrap_or_else(|error| {
        let refusal = Refusal::for_open_error(&error, "Try again later.");
        SessionChoice::Answer(refusal.answer(context.request_ref(), context.era))
    })
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
) -> Result<ReplyText, SessionOpenError> {
    let (_opened, handle) = provisional(app, context).await?;
    let offer = text::offer(&handle, &app.handle_place(context).await);
    let (lifetime, hint) = (text::lifetime(app.identify.expiry), program_hint(app, context));
    let sentence = format!("{offer} The session {lifetime}.{hint}");
    Ok(ReplyText::of_era(context.era, offer_result(context, &sentence, &handle)))
}

/// Sentence for the author of a program, which can name the session by URL or header. It begins with a space, and is
/// empty where neither works.
fn program_hint(app: &AppState, context: &RequestContext<'_>) -> String {
    let name_sources = &app.identify.configured.name_sources;
    let mut ways = Vec::new();
    if name_sources.path {
        ways.extend(url(app, context).map(|url| format!("use the URL {url}/~NAME")));
    }
    if name_sources.header && context.connection_kind() != ConnectionKind::Stdio {
        ways.push("send the header `Stayput-Session: key:NAME`".to_owned());
    }
    match ways.is_empty() {
        true => String::new(),
        false => format!(
            " If you are writing a program: {}. Each NAME that you choose is a session of its own.",
            ways.join(", or ")
        ),
    }
}

/// URL of the request's target, as its client reaches it.
fn url(app: &AppState, context: &RequestContext<'_>) -> Option<String> {
    let base = match &app.rules.public_url {
        Some(url) => url.clone(),
        None => {
            let host = context.headers.get(http::header::HOST)?.to_str().ok()?;
            let scheme = if app.rules.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{host}")
        }
    };
    Some(match context.target {
        Target::All => format!("{base}/mcp"),
        Target::Server(name) => format!("{base}/mcp/{name}"),
    })
}

fn offer_result(context: &RequestContext<'_>, sentence: &str, handle: &Handle) -> String {
    let (kind, text) = (reply::kind_of_result(context.era), json::quote(sentence));
    let (key, handle) = (json::quote(meta::SESSION), json::quote(handle.expose()));
    let result = format!(
        r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{{key}:{handle}}}}}"#
    );
    reply::result(context.request_ref().id, &result)
}

/// Runs the call at once; its answer carries the handle.
async fn mint(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ChosenSession, SessionOpenError> {
    let (OpenedSession { session, origin }, handle) = provisional(app, context).await?;
    let chosen = ChosenSession::new(session, origin, NameSource::Minted);
    Ok(ChosenSession { new_handle: Some(handle), ..chosen })
}

/// Opens a session for this one call.
async fn open_ephemeral(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ChosenSession, SessionOpenError> {
    let options =
        OpenOptions::new(context.owner.clone()).expiry(Expiry::idle(EPHEMERAL_IDLE_LIMIT));
    let OpenedSession { session, origin } = app.open(&options, context.label()).await?;
    let _ephemeral = Some(EphemeralSession::new(app, session.session()));
    let chosen = ChosenSession::new(session, origin, NameSource::Ephemeral);
    Ok(ChosenSession { _ephemeral, ..chosen })
}

/// Opens the one session for all unidentified requests of an owner.
async fn open_for_owner(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ChosenSession, SessionOpenError> {
    // This key source is reserved, so that no client reaches the session by chance.
    let Ok(key) = Key::new("owner", "all") else { return Err(SessionOpenError::Unknown) };
    let OpenedSession { session, origin } = open_by_key(app, context, Agent::none(), key).await?;
    Ok(ChosenSession::new(session, origin, NameSource::Owner))
}

async fn refuse(app: &Arc<AppState>, context: &RequestContext<'_>) -> ReplyText {
    let refusal = Refusal::caller(format!(
        "Nothing was run: the server keeps state between calls, and nothing says which session this \
         belongs to. {}{}",
        open::recovery_hint(app, context).await,
        program_hint(app, context)
    ));
    refusal.answer(context.request_ref(), context.era)
}
