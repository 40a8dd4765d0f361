//! What becomes of a request that nothing tells the session of.

use std::{sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, Handle, Key, OpenError, Opened, Wish};
use stayput_wire::{Edits, Message, json, meta};

use super::{
    Claim, Rest, Which,
    open::{self, keyed},
    refusal::Refusal,
};
use crate::{config::Unidentified, handles, house::House, reply};

/// How long a session that ends with its call lives if nobody ends it.
const FLEETING: Duration = Duration::from_secs(2 * 60);

/// Does what is configured for a request without a session.
pub(super) async fn apply(house: &Arc<House>, claim: &Claim<'_>, text: Option<Rest>) -> Which {
    let policy = house.identify.configured.unidentified;
    // Only a tool has an argument that can bring a handle back.
    let tool = claim.asked().method == "tools/call";
    let done = match policy {
        Unidentified::Offer if tool => offer(house, claim).await,
        Unidentified::Mint if tool => mint(house, claim).await,
        Unidentified::Offer | Unidentified::Mint => fleeting(house, claim).await,
        Unidentified::Owner => of_owner(house, claim).await,
        Unidentified::Refuse => Ok(Which::Answer(refused(house, claim).await)),
    };
    match done {
        Ok(Which::Session { session, origin, given, fleeting, .. }) => {
            Which::Session { session, origin, text, given, fleeting }
        }
        Ok(answer) => answer,
        Err(error) => {
            let refusal = Refusal::of(&error, "Try again later.");
            Which::Answer(refusal.answer(claim.asked(), claim.era()))
        }
    }
}

/// A session that ends soon unless its handle comes back.
async fn provisional(house: &House, claim: &Claim<'_>) -> Result<(Opened, Handle), OpenError> {
    let wish = Wish::new(claim.owner.clone()).provisional();
    let opened = house.open(&wish, claim.label()).await?;
    let handle = house.sessions.issue_handle(&opened.session).await?;
    Ok((opened, handle))
}

/// Nothing runs and nothing starts: the answer carries a handle to come back with.
async fn offer(house: &Arc<House>, claim: &Claim<'_>) -> Result<Which, OpenError> {
    let (_opened, handle) = provisional(house, claim).await?;
    let sentence = format!(
        "This call was not run: the server keeps state between calls, and nothing says which session \
         the call belongs to. A session is ready for this conversation: {}. Repeat the call with it, \
         and pass it in every later call of this conversation. Keep it when the conversation is \
         summarised. Never use it for another conversation. The session {}.",
        how(house, claim, &handle).await,
        house.identify.lifetime()
    );
    Ok(Which::Answer(offered(claim, &sentence, &handle)))
}

/// How a handle is sent along.
async fn how(house: &Arc<House>, claim: &Claim<'_>, handle: &Handle) -> String {
    let handle = handle.expose();
    if house.takes_argument(claim) {
        let sight = house.sight(claim).await;
        let argument = sight.map_or(handles::ARGUMENT, |sight| sight.argument.name());
        return format!("`\"{argument}\": \"{handle}\"` in the arguments of the tool");
    }
    format!(
        "`\"{}\": \"{handle}\"` in `_meta`, or the header `Stayput-Session: {handle}`",
        meta::SESSION
    )
}

fn offered(claim: &Claim<'_>, sentence: &str, handle: &Handle) -> String {
    let (kind, text) = (reply::kind_of_result(claim.era()), json::quote(sentence));
    let (key, handle) = (json::quote(meta::SESSION), json::quote(handle.expose()));
    let result = format!(
        r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{{key}:{handle}}}}}"#
    );
    reply::result(claim.asked().id, &result)
}

/// The call runs at once, and its answer carries the handle.
async fn mint(house: &Arc<House>, claim: &Claim<'_>) -> Result<Which, OpenError> {
    let (Opened { session, origin }, handle) = provisional(house, claim).await?;
    Ok(Which::Session { session, origin, text: None, given: Some(handle), fleeting: false })
}

/// A session for this one call.
async fn fleeting(house: &Arc<House>, claim: &Claim<'_>) -> Result<Which, OpenError> {
    let wish = Wish::new(claim.owner.clone()).expiry(Expiry::idle(FLEETING));
    let Opened { session, origin } = house.open(&wish, claim.label()).await?;
    Ok(Which::Session { session, origin, text: None, given: None, fleeting: true })
}

/// One session for all that an owner does without a name.
async fn of_owner(house: &Arc<House>, claim: &Claim<'_>) -> Result<Which, OpenError> {
    // A source of its own, so that nobody comes upon it by chance.
    let Ok(key) = Key::new("owner", "all") else { return Err(OpenError::Unknown) };
    let Opened { session, origin } = keyed(house, claim, Agent::none(), key).await?;
    Ok(Which::Session { session, origin, text: None, given: None, fleeting: false })
}

async fn refused(house: &Arc<House>, claim: &Claim<'_>) -> String {
    let refusal = Refusal::caller(format!(
        "Nothing was run: the server keeps state between calls, and nothing says which session this \
         belongs to. {}",
        open::way_out(house, claim).await
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
    let longer = handles::appended(answer, content, &block);
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
