//! What becomes of a request that nothing tells the session of.

use std::{sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, Handle, Key, OpenOptions, OpenedSession, SessionOpenError};
use stayput_wire::{Edits, Message, json, meta};

use super::{
    RequestContext, RequestEdit, SessionChoice,
    open::{self, keyed},
    refusal::Refusal,
};
use crate::{catalog::tool_argument, config::Unidentified, reply, state::AppState};

/// How long a session that ends with its call lives if nobody ends it.
const FLEETING: Duration = Duration::from_secs(2 * 60);

/// Does what is configured for a request without a session.
pub(super) async fn apply(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    text: Option<RequestEdit>,
) -> SessionChoice {
    let policy = app.identify.configured.unidentified;
    // Only a tool has an argument that can bring a handle back.
    let tool = claim.asked().method == "tools/call";
    let done = match policy {
        Unidentified::Offer if tool => offer(app, claim).await,
        Unidentified::Mint if tool => mint(app, claim).await,
        Unidentified::Offer | Unidentified::Mint => fleeting(app, claim).await,
        Unidentified::Owner => of_owner(app, claim).await,
        Unidentified::Refuse => Ok(SessionChoice::Answer(refused(app, claim).await)),
    };
    match done {
        Ok(SessionChoice::Session { session, origin, given, fleeting, .. }) => {
            SessionChoice::Session { session, origin, text, given, fleeting }
        }
        Ok(answer) => answer,
        Err(error) => {
            let refusal = Refusal::of(&error, "Try again later.");
            SessionChoice::Answer(refusal.answer(claim.asked(), claim.era()))
        }
    }
}

/// A session that ends soon unless its handle comes back.
async fn provisional(
    app: &AppState,
    claim: &RequestContext<'_>,
) -> Result<(OpenedSession, Handle), SessionOpenError> {
    let wish = OpenOptions::new(claim.owner.clone()).provisional();
    let opened = app.open(&wish, claim.label()).await?;
    let handle = app.sessions.issue_handle(&opened.session).await?;
    Ok((opened, handle))
}

/// Nothing runs and nothing starts: the answer carries a handle to come back with.
async fn offer(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let (_opened, handle) = provisional(app, claim).await?;
    let sentence = format!(
        "This call was not run: the server keeps state between calls, and nothing says which session \
         the call belongs to. A session is ready for this conversation: {}. Repeat the call with it, \
         and pass it in every later call of this conversation. Keep it when the conversation is \
         summarised. Never use it for another conversation. The session {}.",
        how(app, claim, &handle).await,
        app.identify.lifetime()
    );
    Ok(SessionChoice::Answer(offered(claim, &sentence, &handle)))
}

/// How a handle is sent along.
async fn how(app: &Arc<AppState>, claim: &RequestContext<'_>, handle: &Handle) -> String {
    let handle = handle.expose();
    if app.takes_argument(claim) {
        let sight = app.sight(claim).await;
        let argument = sight.map_or(tool_argument::ARGUMENT, |sight| sight.argument.name());
        return format!("`\"{argument}\": \"{handle}\"` in the arguments of the tool");
    }
    format!(
        "`\"{}\": \"{handle}\"` in `_meta`, or the header `Stayput-Session: {handle}`",
        meta::SESSION
    )
}

fn offered(claim: &RequestContext<'_>, sentence: &str, handle: &Handle) -> String {
    let (kind, text) = (reply::kind_of_result(claim.era()), json::quote(sentence));
    let (key, handle) = (json::quote(meta::SESSION), json::quote(handle.expose()));
    let result = format!(
        r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{{key}:{handle}}}}}"#
    );
    reply::result(claim.asked().id, &result)
}

/// The call runs at once, and its answer carries the handle.
async fn mint(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let (OpenedSession { session, origin }, handle) = provisional(app, claim).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: Some(handle), fleeting: false })
}

/// A session for this one call.
async fn fleeting(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    let wish = OpenOptions::new(claim.owner.clone()).expiry(Expiry::idle(FLEETING));
    let OpenedSession { session, origin } = app.open(&wish, claim.label()).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: None, fleeting: true })
}

/// One session for all that an owner does without a name.
async fn of_owner(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<SessionChoice, SessionOpenError> {
    // A source of its own, so that nobody comes upon it by chance.
    let Ok(key) = Key::new("owner", "all") else { return Err(SessionOpenError::Unknown) };
    let OpenedSession { session, origin } = keyed(app, claim, Agent::none(), key).await?;
    Ok(SessionChoice::Session { session, origin, text: None, given: None, fleeting: false })
}

async fn refused(app: &Arc<AppState>, claim: &RequestContext<'_>) -> String {
    let refusal = Refusal::caller(format!(
        "Nothing was run: the server keeps state between calls, and nothing says which session this \
         belongs to. {}",
        open::way_out(app, claim).await
    ));
    refusal.answer(claim.asked(), claim.era())
}

/// An answer that also gives a handle out: as the last block of a tool's result, and in `_meta`. One that
/// is no result stays as it is, and the session behind it ends soon.
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
    fn a_handle_is_given_as_the_last_block() {
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
