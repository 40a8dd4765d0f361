//! Session tools.

use std::{collections::HashMap, sync::Arc};

use rmcp::{
    ErrorData,
    handler::server::tool::{ToolCallContext, ToolRoute},
    model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations},
};
use serde_json::{Value, json};
use stayput_core::{Agent, Handle, Key, Record, SessionId};

use super::describe_lifetime;
use crate::{
    Error, ServerSessions, State, names::SessionRef, registry::SessionGuard,
    request::RequestSession,
};

/// Session tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionTool {
    Start,
    Info,
    End,
    List,
    Switch,
}

/// Sessions listed at once.
const LIST_PAGE: usize = 100;

impl SessionTool {
    pub(super) const DEFAULT: [Self; 3] = [Self::Start, Self::Info, Self::End];
    pub(super) const ALL: [Self; 5] =
        [Self::Start, Self::Info, Self::End, Self::List, Self::Switch];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Start => "session_start",
            Self::Info => "session_info",
            Self::End => "session_end",
            Self::List => "session_list",
            Self::Switch => "session_switch",
        }
    }

    pub(super) fn route<S: Send + Sync + 'static>(
        self,
        sessions: &ServerSessions,
        name: String,
    ) -> ToolRoute<S> {
        let schema = Arc::new(self.input_schema());
        let hints = ToolAnnotations::new()
            .read_only(matches!(self, Self::Info))
            .destructive(self == Self::End)
            .idempotent(matches!(self, Self::Info | Self::End | Self::Switch))
            .open_world(false);
        let tool = Tool::new(name, self.description(sessions), schema).with_annotations(hints);
        ToolRoute::new_dyn(tool, move |context: ToolCallContext<'_, S>| {
            Box::pin(async move {
                let state =
                    State::from_context(&context.request_context).map_err(ErrorData::from)?;
                let result = self.call(&state, context.arguments.unwrap_or_default()).await;
                let result = match result {
                    Ok((text, structure)) => {
                        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                        result.structured_content = Some(structure);
                        result
                    }
                    Err(error) => {
                        CallToolResult::error(vec![ContentBlock::text(error.to_string())])
                    }
                };
                Ok(result.into())
            })
        })
    }

    /// Returns the description. It includes the lifetime, because the model reads no other text.
    fn description(self, sessions: &ServerSessions) -> String {
        match self {
            Self::Start => format!(
                "Starts a session on this server, a state of its own for one conversation, and returns its \
                 session_id. Call it once at the beginning of a conversation that uses this server, pass the \
                 session_id in every later call, and keep it when the conversation is summarised. Give a name, \
                 such as the task, and you get the same session back by that name if you lose the session_id. \
                 A session {}; then its state is gone.",
                describe_lifetime(sessions.registry().settings.expiry)
            ),
            Self::Info => "Tells about the session of this conversation: its id, its name, its age, and when it \
                           ends. Changes nothing."
                .to_owned(),
            Self::End => "Ends the session of this conversation for good: its state on the server is gone, and \
                          its session_id becomes invalid. Call it when nothing of the session is needed any more."
                .to_owned(),
            Self::List => "Lists your live sessions with their ids, names and ages, the latest last, if it is \
                           certain who you are. With `session`, the id of one of them, it returns a session_id \
                           for that one."
                .to_owned(),
            Self::Switch => "Makes another session the one that calls on this connection go to when they name \
                             none. Only for clients that have a connection."
                .to_owned(),
        }
    }

    fn input_schema(self) -> JsonObject {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let session_id = text("The session_id of the session (sp_…), or `key:` and its name.");
        let (properties, required) = match self {
            Self::Start => (
                json!({
                    "name": text("A name of your choice. The session of this name is found, or made if there is none."),
                    "agent": text("Who uses the name: under another agent it is another session."),
                    "project": text("What the name belongs to: in another project it is another session."),
                    "session_id": text("A session_id that you have: checks that its session still lives."),
                }),
                json!([]),
            ),
            Self::Info | Self::End => (json!({ "session_id": session_id }), json!([])),
            Self::List => (
                json!({
                    "session": text("The id of a session of yours, to get a session_id for it."),
                    "after": text("The last id of the page before, for the next one."),
                }),
                json!([]),
            ),
            Self::Switch => (json!({ "session_id": session_id }), json!(["session_id"])),
        };
        let parts = [("type", "object".into()), ("properties", properties), ("required", required)];
        parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    async fn call(self, state: &State, arguments: JsonObject) -> Result<(String, Value), Error> {
        let arguments: HashMap<String, String> = arguments
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        match self {
            Self::Start => start(state, &arguments).await,
            Self::Info => info(state).await,
            Self::End => end(state).await,
            Self::List => list(state, &arguments).await,
            Self::Switch => switch(state).await,
        }
    }
}

/// Returns `Some` if the request names a session explicitly: the handle, or `None` for another kind of name.
fn explicit_handle(request_session: &RequestSession) -> Option<Option<&Handle>> {
    match request_session.session_ref() {
        SessionRef::Handle(handle) => Some(Some(handle)),
        SessionRef::Key(_) | SessionRef::Invalid(_) => Some(None),
        _ => None,
    }
}

async fn start(
    state: &State,
    arguments: &HashMap<String, String>,
) -> Result<(String, Value), Error> {
    let (request_session, registry) =
        (state.request_session(), state.request_session().sessions().registry());
    request_session.sessions().start_sweeper();
    let explicit = explicit_handle(request_session);
    let (guard, handle);
    let opened;
    match (arguments.get("name"), explicit) {
        (Some(name), None) => {
            opened = open_by_name(request_session, name, arguments).await?;
            (guard, handle) = (&opened, None);
        }
        (_, Some(given)) => (guard, handle) = (request_session.session().await?, given.cloned()),
        // R148, E31: the server mints the id and never takes one over from the caller.
        (None, None) => {
            opened = registry.create(request_session.owner(), false).await?;
            (guard, handle) = (&opened, None);
        }
    }
    let session = guard.session();
    let lost = session.record().unacknowledged_loss().is_some();
    let what = match lost {
        true => {
            "The state of this session is lost: it starts again empty. Set up again what you need."
        }
        false => "The session is live.",
    };
    if lost {
        registry.acknowledge_loss(session.id()).await?;
    }
    let handle = match handle {
        Some(handle) => handle,
        None => registry.issue_handle(session).await?,
    };
    let lifetime = describe_lifetime(session.record().expiry);
    let text = format!(
        "{what} session_id: {}\nPass it as `session_id` in every later call of this conversation, and keep it \
         when the conversation is summarised. The session {lifetime}.",
        handle.expose()
    );
    let result = json!({
        "session": session.id().to_string(),
        "session_id": handle.expose(),
        "state": if lost { "lost" } else { "kept" },
    });
    Ok((text, result))
}

/// Opens the session of a name. A client that lost its handle gets the session back by name.
async fn open_by_name(
    request_session: &RequestSession,
    name: &str,
    arguments: &HashMap<String, String>,
) -> Result<SessionGuard, Error> {
    let invalid = |what: &str| {
        Error::InvalidName(format!("`{what}` must have 1 to 128 printable bytes").into())
    };
    let agent = match arguments.get("agent") {
        Some(agent) => Agent::named(agent).map_err(|_| invalid("agent"))?,
        None => Agent::none(),
    };
    if name.len() > 128 {
        return Err(invalid("name"));
    }
    let key = match arguments.get("project") {
        None => Key::named(name).map_err(|_| invalid("name"))?,
        Some(project) => {
            // Escaped, so that the first slash is the separator.
            let plain = project.replace('%', "%25").replace('/', "%2F");
            Key::new("project", &format!("{plain}/{name}")).map_err(|_| invalid("project"))?
        }
    };
    Ok(request_session
        .sessions()
        .registry()
        .find_or_create(request_session.owner(), &agent, &key)
        .await?)
}

async fn info(state: &State) -> Result<(String, Value), Error> {
    let info = state.info().await?;
    let ends = info.expires_in.map(|it| it.as_secs());
    let result = json!({
        "session": info.session.to_string(),
        "name": info.name,
        "age_seconds": info.age.as_secs(),
        "expires_in_seconds": ends,
    });
    let name = info.name.map(|name| format!(", name: {name}")).unwrap_or_default();
    let ends = ends.map_or("never".to_owned(), |secs| format!("in {secs} s, if it is not used"));
    let age = info.age.as_secs();
    Ok((format!("Session {}{name}, started {age} s ago, ends {ends}.", info.session), result))
}

async fn end(state: &State) -> Result<(String, Value), Error> {
    let session = state.info().await?.session;
    state.end().await?;
    let text = format!("Session {session} has ended, and its state is deleted.");
    Ok((text, json!({ "session": session.to_string(), "state": "ended" })))
}

/// Lists the sessions of the owner. Anonymous clients share an owner, so they get no list.
async fn list(
    state: &State,
    arguments: &HashMap<String, String>,
) -> Result<(String, Value), Error> {
    let (request_session, registry) =
        (state.request_session(), state.request_session().sessions().registry());
    if request_session.owner().issuer().is_none()
        && !matches!(request_session.connection(), Some(SessionRef::Transport(_)))
    {
        return Err(Error::InvalidName(
            "sessions are listed only for an owner who is authenticated, or over stdio; give them a \
             name, and get them back by `session_start`"
                .into(),
        ));
    }
    let read = |id: &String| {
        let invalid =
            |_| Error::InvalidName("this is not an id of a session; they are in the list".into());
        id.parse::<SessionId>().map_err(invalid)
    };
    if let Some(id) = arguments.get("session") {
        let guard = registry.open_by_id(request_session.owner(), read(id)?).await?;
        let handle = registry.issue_handle(guard.session()).await?;
        let text = format!("session_id of session {id}: {}", handle.expose());
        return Ok((text, json!({ "session": id, "session_id": handle.expose() })));
    }
    let after = arguments.get("after").map(read).transpose()?;
    let page = registry.store.list(Some(request_session.owner()), after, LIST_PAGE).await?;
    let more = page.last().filter(|_| page.len() == LIST_PAGE).map(|it| it.id.to_string());
    // Provisional sessions are not confirmed by a client yet.
    let shown = page.iter().filter(|it| !it.provisional);
    let sessions: Vec<Value> = shown.map(|it| describe_session(it, registry.now())).collect();
    let lines: Vec<String> = sessions.iter().map(Value::to_string).collect();
    let text = if lines.is_empty() { "You have no sessions.".to_owned() } else { lines.join("\n") };
    Ok((text, json!({ "sessions": sessions, "after": more })))
}

fn describe_session(record: &Record, now: stayput_core::Timestamp) -> Value {
    let name = record.key.as_ref().filter(|key| ["name", "project"].contains(&key.source()));
    json!({
        "session": record.id.to_string(),
        "name": name.map(Key::value),
        "age_seconds": now.since(record.created).as_secs(),
        "unused_seconds": now.since(record.last_used).as_secs(),
    })
}

async fn switch(state: &State) -> Result<(String, Value), Error> {
    let request_session = state.request_session();
    let registry = request_session.sessions().registry();
    if explicit_handle(request_session).is_none() {
        return Err(Error::InvalidName(
            "`session_id` must be a session_id (`sp_…`), or `key:` and a name".into(),
        ));
    }
    let guard = request_session.session().await?;
    let id = guard.session().id();
    match request_session.connection() {
        Some(SessionRef::Transport(transport)) => transport.switch_to(registry, id).await?,
        Some(SessionRef::Connection(name)) => registry.switch_connection(*name, guard).await?,
        _ => {
            return Err(Error::InvalidName(
                "this client has no connection to switch; pass the session_id in every call".into(),
            ));
        }
    }
    let text = format!("Calls on this connection that name no session go to session {id} now.");
    Ok((text, json!({ "session": id.to_string() })))
}
