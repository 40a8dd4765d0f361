//! Policy for requests without an identified session.

use std::{sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, Handle, Key, OpenOptions, OpenedSession, SessionOpenError};
use stayput_wire::{Edits, Message, json, meta};

use super::{
    RequestContext, RequestEdit, SessionChoice,
    open::{self, keyed},
    refusal::Refusal,
};
use crate::{catalog::tool_argument, config::Unidentified, reply, state::AppState};

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
        Unidentified::Offer if tool => offer(app, context).await,
        Unidentified::Mint if tool => mint(app, context).await,
        Unidentified::Offer | Unidentified::Mint => fleeting(app, context).await,
        Unidentified::Owner => of_owner(app, context).await,
        Unidentified::Refuse => Ok(SessionChoice::Answer(refused(app, context).await)),
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
    let sentence = format!(
        "This call was not run: the server keeps state between calls, and nothing says which session \
         the call belongs to. A session is ready for this conversation: {}. Repeat the call with it, \
         and pass it in every later call of this conversation. Keep it when the conversation is \
         summarised. Never use it for another conversation. The session {}.",
        how(app, context, &handle).await,
        app.identify.lifetime()
    );
    Ok(SessionChoice::Answer(offered(context, &sentence, &handle)))
}

/// Text that tells how a handle is sent with a call.
async fn how(app: &Arc<AppState>, context: &RequestContext<'_>, handle: &Handle) -> String {
    let handle = handle.expose();
    if app.takes_argument(context) {
        let tool_view = app.tool_view(context).await;
        let argument =
            tool_view.map_or(tool_argument::ARGUMENT, |tool_view| tool_view.argument.name());
        return format!("`\"{argument}\": \"{handle}\"` in the arguments of the tool");
    }
    format!(
        "`\"{}\": \"{handle}\"` in `_meta`, or the header `Stayput-Session: {handle}`",
        meta::SESSION
    )
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

/// Adds a handle to an answer: as the last block of a tool's result, and in `_meta`. Returns `None` for an answer
/// that is no tool result; it stays unchanged, and its session ends soon.
pub(crate) fn give(answer: &str, handle: &Handle) -> Option<String> {
    let message = Message::parse(answer.as_bytes()).ok()?;
    let result = message.result()?;
    let content = result.find(&["content"]).filter(|content| content.is_array())?;
    let sentence = format!(
        "This call ran in a new session: {}. Pass it as the session argument of the tool (`session_id`, \
         or `stayput_session_id` where the tool has that) in every later call of this conversation, and \
         keep it when the conversation is summarised; a call without it begins with nothing.",
        handle.expose()
    );
    let block = format!(r#"{{"type":"text","text":{}}}"#, json::quote(&sentence));
    let longer = tool_argument::appended(answer, content, &block);
    let mut edits = Edits::new(&longer);
    edits.set_text(&["result", meta::META, meta::SESSION], handle.expose());
    edits.apply().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_added_as_the_last_block() {
        let handle = Handle::generate();
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"n":1.10,"content":[{"type":"text","text":"a"}],"_meta":{"x":1}}}"#;
        let given: serde_json::Value =
            serde_json::from_str(&give(answer, &handle).unwrap()).unwrap();
        let blocks = given["result"]["content"].as_array().unwrap();
        assert_eq!((blocks.len(), &blocks[0]["text"]), (2, &serde_json::json!("a")));
        assert!(blocks[1]["text"].as_str().unwrap().contains(handle.expose()));
        assert_eq!(given["result"]["_meta"][meta::SESSION], handle.expose());
        assert_eq!(given["result"]["_meta"]["x"], 1);
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#;
        assert_eq!(give(error, &handle), None);
        let other = r#"{"jsonrpc":"2.0","id":1,"result":{"messages":[]}}"#;
        assert_eq!(give(other, &handle), None);
    }
}
