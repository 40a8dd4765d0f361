//! `session_list`.

use std::sync::Arc;

use serde_json::{Value, json};
use stayput_core::{Record, SessionId};

use super::argument;
use crate::{
    identify::{Refusal, RequestContext},
    observe::time_format,
    session_tools::result::{self, ToolReply},
    state::{AppState, identify_rules::Front},
};

/// Maximum number of sessions in one answer.
const PAGE_SIZE: usize = 100;

/// Lists the sessions of the owner, or issues a new handle for one of them.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ToolReply, Refusal> {
    if let Some(id) = argument(context, "session")? {
        return issue(app, context, read(&id)?).await;
    }
    let after = argument(context, "after")?.map(|id| read(&id)).transpose()?;
    let page = app.sessions.list(context.owner, after, PAGE_SIZE).await;
    let page = page.map_err(|error| Refusal::of(&error, "Try again later."))?;
    let more = page.len() == PAGE_SIZE;
    // No client has asked for a provisional session yet.
    let shown: Vec<&Record> = page.iter().filter(|record| !record.provisional).collect();
    let lines: Vec<String> = shown.iter().map(|record| line(record)).collect();
    let mut text = match lines.is_empty() {
        true => "You have no sessions.".to_owned(),
        false => lines.join("\n"),
    };
    if more {
        text.push_str("\nThere are more: call again with `after` and the last id.");
    }
    let sessions: Vec<Value> = shown.iter().map(|record| structure(record)).collect();
    let last = page.last().filter(|_| more).map(|record| record.id.to_string());
    Ok(ToolReply::new(text, json!({ "sessions": sessions, "after": last })))
}

fn read(id: &str) -> Result<SessionId, Refusal> {
    let wrong = |_| {
        Refusal::caller("Nothing was done: this is not an id of a session; they are in the list.")
    };
    id.parse().map_err(wrong)
}

fn line(record: &Record) -> String {
    let name = result::name(record).map(|name| format!(", name: {name}")).unwrap_or_default();
    let (created, used) = (time_format::text(record.created), time_format::text(record.last_used));
    format!("{}{name}, started {created}, last used {used}", record.id)
}

fn structure(record: &Record) -> Value {
    let source = record.key.as_ref().map(|key| key.source().to_owned());
    json!({
        "session": record.id.to_string(),
        "name": result::name(record),
        "source": source,
        "created": time_format::text(record.created),
        "last_used": time_format::text(record.last_used),
        "expires": record.deadline().map(time_format::text),
    })
}

/// Issues a handle for a session id. Session ids are not secret, and clients without credentials cannot be
/// distinguished, so only an authenticated owner or a stdio client gets a handle.
async fn issue(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    id: SessionId,
) -> Result<ToolReply, Refusal> {
    let certain = context.owner.issuer().is_some() || context.front() == Front::Stdio;
    if !certain {
        return Err(Refusal::caller(
            "Nothing was done: a session_id is given out again only to an owner who is authenticated, or \
             on standard input and output. Give sessions a name, and get them back by `session_start`.",
        ));
    }
    let failed = |error| Refusal::of(&error, "The list has those that there are.");
    let session = app.sessions.find_by_id(context.owner, id).await.map_err(failed)?;
    let handle = app.sessions.issue_handle(&session).await.map_err(failed)?;
    let text = format!("session_id of session {id}: {}", handle.expose());
    Ok(ToolReply::new(text, json!({ "session": id.to_string(), "session_id": handle.expose() })))
}
