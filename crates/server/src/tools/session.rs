//! The tools for sessions.

use std::{collections::HashMap, sync::Arc};

use rmcp::{
    ErrorData,
    handler::server::tool::{ToolCallContext, ToolRoute},
    model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations},
};
use serde_json::{Value, json};
use stayput_core::{Agent, Handle, Key, Record, SessionId};

use super::lifetime;
use crate::{Error, Keeper, State, carrier::Claim, shared::Use, visit::Visit};

/// A tool for sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionTool {
    Start,
    Info,
    End,
    List,
    Switch,
}

/// The most sessions that are told at once.
const PAGE: usize = 100;

impl SessionTool {
    pub(super) const USUAL: [Self; 3] = [Self::Start, Self::Info, Self::End];
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
        keeper: &Keeper,
        name: String,
    ) -> ToolRoute<S> {
        let schema = Arc::new(self.takes());
        let hints = ToolAnnotations::new()
            .read_only(matches!(self, Self::Info))
            .destructive(self == Self::End)
            .idempotent(matches!(self, Self::Info | Self::End | Self::Switch))
            .open_world(false);
        let tool = Tool::new(name, self.description(keeper), schema).with_annotations(hints);
        ToolRoute::new_dyn(tool, move |context: ToolCallContext<'_, S>| {
            Box::pin(async move {
                let state = State::of(&context.request_context).map_err(ErrorData::from)?;
                let told = self.call(&state, context.arguments.unwrap_or_default()).await;
                let result = match told {
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

    /// How long a session lives stands here, because it is the only text that a model reads.
    fn description(self, keeper: &Keeper) -> String {
        match self {
            Self::Start => format!(
                "Starts a session on this server, a state of its own for one conversation, and returns its \
                 session_id. Call it once at the beginning of a conversation that uses this server, pass the \
                 session_id in every later call, and keep it when the conversation is summarised. Give a name, \
                 such as the task, and you get the same session back by that name if you lose the session_id. \
                 A session {}; then its state is gone.",
                lifetime(keeper.shared().settings.expiry)
            ),
            Self::Info => "Tells about the session of this conversation: its id, its name, its age, and when it \
                           ends. Changes nothing."
                .to_owned(),
            Self::End => "Ends the session of this conversation for good: its state on the server is gone, and \
                          its session_id leads nowhere. Call it when nothing of the session is needed any more."
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

    fn takes(self) -> JsonObject {
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

    async fn call(self, state: &State, said: JsonObject) -> Result<(String, Value), Error> {
        let said: HashMap<String, String> = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        match self {
            Self::Start => start(state, &said).await,
            Self::Info => info(state).await,
            Self::End => end(state).await,
            Self::List => list(state, &said).await,
            Self::Switch => switch(state).await,
        }
    }
}

/// Whether a session was named on purpose.
fn named(visit: &Visit) -> Option<Option<&Handle>> {
    match visit.claim() {
        Claim::Handle(handle) => Some(Some(handle)),
        Claim::Key(_) | Claim::Wrong(_) => Some(None),
        _ => None,
    }
}

async fn start(state: &State, said: &HashMap<String, String>) -> Result<(String, Value), Error> {
    let (visit, shared) = (state.visit(), state.visit().keeper().shared());
    visit.keeper().tend();
    let explicit = named(visit);
    let (used, handle);
    let made;
    match (said.get("name"), explicit) {
        (Some(name), None) => {
            made = by_name(visit, name, said).await?;
            (used, handle) = (&made, None);
        }
        (_, Some(given)) => (used, handle) = (visit.session().await?, given.cloned()),
        // R148, E31: an id is minted here and never taken over from the caller.
        (None, None) => {
            made = shared.make(visit.owner(), false).await?;
            (used, handle) = (&made, None);
        }
    }
    let held = used.held();
    let lost = held.record().lost().is_some();
    let what = match lost {
        true => "What this session had kept is gone: it begins anew. Set up again what you need.",
        false => "The session is there.",
    };
    if lost {
        shared.told(held.id()).await?;
    }
    let handle = match handle {
        Some(handle) => handle,
        None => shared.issue(held).await?,
    };
    let lifetime = lifetime(held.record().expiry);
    let text = format!(
        "{what} session_id: {}\nPass it as `session_id` in every later call of this conversation, and keep it \
         when the conversation is summarised. The session {lifetime}.",
        handle.expose()
    );
    let told = json!({
        "session": held.id().to_string(),
        "session_id": handle.expose(),
        "state": if lost { "lost" } else { "kept" },
    });
    Ok((text, told))
}

/// The session of a name: whoever lost a handle, and is its owner, gets it back by that.
async fn by_name(visit: &Visit, name: &str, said: &HashMap<String, String>) -> Result<Use, Error> {
    let wrong =
        |what: &str| Error::Name(format!("`{what}` must have 1 to 128 printable bytes").into());
    let agent = match said.get("agent") {
        Some(agent) => Agent::named(agent).map_err(|_| wrong("agent"))?,
        None => Agent::none(),
    };
    if name.len() > 128 {
        return Err(wrong("name"));
    }
    let key = match said.get("project") {
        None => Key::named(name).map_err(|_| wrong("name"))?,
        Some(project) => {
            // So that the first slash is the one in between.
            let plain = project.replace('%', "%25").replace('/', "%2F");
            Key::new("project", &format!("{plain}/{name}")).map_err(|_| wrong("project"))?
        }
    };
    Ok(visit.keeper().shared().keyed(visit.owner(), &agent, &key).await?)
}

async fn info(state: &State) -> Result<(String, Value), Error> {
    let info = state.info().await?;
    let ends = info.expires_in.map(|it| it.as_secs());
    let told = json!({
        "session": info.session.to_string(),
        "name": info.name,
        "age_seconds": info.age.as_secs(),
        "expires_in_seconds": ends,
    });
    let name = info.name.map(|name| format!(", name: {name}")).unwrap_or_default();
    let ends = ends.map_or("never".to_owned(), |secs| format!("in {secs} s, if it is not used"));
    let age = info.age.as_secs();
    Ok((format!("Session {}{name}, started {age} s ago, ends {ends}.", info.session), told))
}

async fn end(state: &State) -> Result<(String, Value), Error> {
    let session = state.info().await?.session;
    state.end().await?;
    let text = format!("Session {session} is over, and its state is gone.");
    Ok((text, json!({ "session": session.to_string(), "state": "ended" })))
}

/// Whoever comes without credentials is anybody: they get nobody's sessions.
async fn list(state: &State, said: &HashMap<String, String>) -> Result<(String, Value), Error> {
    let (visit, shared) = (state.visit(), state.visit().keeper().shared());
    if visit.owner().issuer().is_none() && !matches!(visit.via(), Some(Claim::Line(_))) {
        return Err(Error::Name(
            "sessions are listed only for an owner who is authenticated, or on a line of its own; give them a \
             name, and get them back by `session_start`"
                .into(),
        ));
    }
    let read = |id: &String| {
        let wrong = |_| Error::Name("this is not an id of a session; they are in the list".into());
        id.parse::<SessionId>().map_err(wrong)
    };
    if let Some(id) = said.get("session") {
        let used = shared.by_id(visit.owner(), read(id)?).await?;
        let handle = shared.issue(used.held()).await?;
        let text = format!("session_id of session {id}: {}", handle.expose());
        return Ok((text, json!({ "session": id, "session_id": handle.expose() })));
    }
    let after = said.get("after").map(read).transpose()?;
    let page = shared.store.list(Some(visit.owner()), after, PAGE).await?;
    let more = page.last().filter(|_| page.len() == PAGE).map(|it| it.id.to_string());
    // Nobody has asked for a provisional one yet.
    let shown = page.iter().filter(|it| !it.provisional);
    let sessions: Vec<Value> = shown.map(|it| line(it, shared.now())).collect();
    let lines: Vec<String> = sessions.iter().map(Value::to_string).collect();
    let text = if lines.is_empty() { "You have no sessions.".to_owned() } else { lines.join("\n") };
    Ok((text, json!({ "sessions": sessions, "after": more })))
}

fn line(record: &Record, now: stayput_core::Timestamp) -> Value {
    let name = record.key.as_ref().filter(|key| ["name", "project"].contains(&key.source()));
    json!({
        "session": record.id.to_string(),
        "name": name.map(Key::value),
        "age_seconds": now.since(record.created).as_secs(),
        "unused_seconds": now.since(record.last_used).as_secs(),
    })
}

async fn switch(state: &State) -> Result<(String, Value), Error> {
    let visit = state.visit();
    let shared = visit.keeper().shared();
    if named(visit).is_none() {
        return Err(Error::Name(
            "`session_id` must be a session_id (`sp_…`), or `key:` and a name".into(),
        ));
    }
    let used = visit.session().await?;
    let id = used.held().id();
    match visit.via() {
        Some(Claim::Line(line)) => line.lead(shared, id).await?,
        Some(Claim::Connection(name)) => shared.lead_to(*name, used).await?,
        _ => {
            return Err(Error::Name(
                "this client has no connection that could lead to a session; pass the session_id in every call"
                    .into(),
            ));
        }
    }
    let text = format!("Calls on this connection that name no session go to session {id} now.");
    Ok((text, json!({ "session": id.to_string() })))
}
