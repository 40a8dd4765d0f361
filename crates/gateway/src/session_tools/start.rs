//! `session_start`.

use std::sync::Arc;

use stayput_core::{Agent, Handle, Key, OpenOptions, OpenedSession, Origin, SessionOpenError};

use super::argument;
use crate::{
    catalog::{session_tool_names::name, tool_argument::ARGUMENT},
    identify::{self, FoundSession, Refusal, RequestContext},
    session_tools::result::{self, ToolReply},
    state::{AppState, identify_rules::Front},
};

/// Returns the requested session, and a handle for it.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<ToolReply, Refusal> {
    let found = match argument(context, "name")? {
        // With `name` and without `session_id`, other name sources are ignored: the name is an explicit request.
        Some(name) if argument(context, ARGUMENT)?.is_none() => {
            by_name(app, context, &name).await?
        }
        _ => match identify::named(app, context, true).await?.found {
            Some(found) => found,
            None => fresh(app, context).await?,
        },
    };
    let origin = result::origin(context, &found);
    let handle = match found.handle {
        Some(handle) => handle,
        None => {
            let issued = app.sessions.issue_handle(&found.session).await;
            issued.map_err(|error| Refusal::of(&error, "Try again."))?
        }
    };
    let text = text(app, context, origin, &handle).await;
    let mut structure = result::session(&found.session, origin);
    structure["session_id"] = handle.expose().into();
    let then = match origin {
        Origin::Lost(_) => Some(result::told(app, context, found.session.session())),
        Origin::New | Origin::Existing => None,
    };
    Ok(ToolReply { then, ..ToolReply::new(text, structure) })
}

/// R148, E31: the id is generated here and never taken from the caller.
async fn fresh(app: &Arc<AppState>, context: &RequestContext<'_>) -> Result<FoundSession, Refusal> {
    let opened = app.open(&OpenOptions::new(context.owner.clone()), context.label()).await;
    found(opened)
}

/// Opens the session with this name. An owner who lost a handle gets the session back by its name.
async fn by_name(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    name: &str,
) -> Result<FoundSession, Refusal> {
    let wrong = |what: &str| {
        Refusal::caller(format!("Nothing was done: `{what}` must have 1 to 128 printable bytes."))
    };
    let agent = match argument(context, "agent")? {
        Some(agent) => Agent::named(&agent).map_err(|_| wrong("agent"))?,
        None => Agent::none(),
    };
    if name.len() > 128 {
        return Err(wrong("name"));
    }
    let key = match argument(context, "project")? {
        None => Key::named(name).map_err(|_| wrong("name"))?,
        Some(project) => {
            // Escapes the project, so that the first slash is the separator.
            let plain = project.replace('%', "%25").replace('/', "%2F");
            let key = Key::new("project", &format!("{plain}/{name}"));
            key.map_err(|_| wrong("project"))?
        }
    };
    found(identify::keyed(app, context, agent, key).await)
}

fn found(opened: Result<OpenedSession, SessionOpenError>) -> Result<FoundSession, Refusal> {
    match opened {
        Ok(OpenedSession { session, origin }) => Ok(FoundSession { session, origin, handle: None }),
        Err(error) => Err(Refusal::of(&error, "Try again later.")),
    }
}

async fn text(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    origin: Origin,
    handle: &Handle,
) -> String {
    let what = match origin {
        Origin::New => "A new session was started.",
        Origin::Existing => "The session is there.",
        Origin::Lost(_) => {
            "The state of this session was lost: whatever was open, logged in or noted is gone, and it \
             has started afresh. Set up again what you need."
        }
    };
    let view = app.tool_view(context).await;
    let prefixed = view.as_ref().is_some_and(|view| view.prefixed);
    let how = if app.takes_argument(context) {
        let argument = view.map_or(ARGUMENT, |view| view.argument.name());
        format!("Pass it as `{argument}` in every later call of this conversation")
    } else if context.front() == Front::Modern {
        "It goes into `_meta[\"dev.stayput/session\"]` of every later call".to_owned()
    } else {
        format!("Call `{}` with it to use it on this connection", name("session_switch", prefixed))
    };
    let lifetime = app.identify.lifetime();
    format!(
        "{what} session_id: {}\n{how}, and keep it when the conversation is summarised. The session {lifetime}.",
        handle.expose()
    )
}
