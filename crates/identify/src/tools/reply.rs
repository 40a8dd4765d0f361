//! Results of the session tools.

use serde_json::{Value, json};
use stayput_core::{Handle, Origin, Record, SessionId, Timestamp};

use super::LIST_PAGE;
use crate::text::{self, HandlePlace};

/// Result with the same content as text for a model and as JSON for a program.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolReply {
    /// Text for a model.
    pub text: String,
    /// JSON for a program.
    pub structure: Value,
}

/// Session that a result describes.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a> {
    /// Record of the session.
    pub record: &'a Record,
    /// Whether the state that the client remembers still exists.
    pub origin: Origin,
    /// Current time.
    pub now: Timestamp,
}

impl SessionView<'_> {
    /// Describes the session. It is in use now, so it expires a whole idle time from now.
    fn structure(&self) -> Value {
        let Self { record, origin, now } = *self;
        let (state, generation) = match origin {
            Origin::New => ("fresh", record.generation),
            Origin::Existing => ("kept", record.generation),
            Origin::Lost(generation) => ("lost", generation),
        };
        let expires = record.expiry.deadline(record.created, now);
        let mut described = describe(record, expires, now);
        described["state"] = state.into();
        described["generation"] = generation.0.into();
        described
    }

    /// Returns the result of `session_start`.
    #[must_use]
    pub fn started(&self, handle: &Handle, place: &HandlePlace) -> ToolReply {
        let state = match self.origin {
            Origin::New => "A new session was started.",
            Origin::Existing => "The session is there.",
            Origin::Lost(_) => {
                "The state of this session was lost: whatever was open, logged in or noted is gone, and it \
                 has started afresh. Set up again what you need."
            }
        };
        let how = match place {
            HandlePlace::Argument(name) => {
                format!("Pass it as `{name}` in every later call of this conversation")
            }
            HandlePlace::Meta => {
                "It goes into `_meta[\"dev.stayput/session\"]` of every later call".to_owned()
            }
            HandlePlace::SwitchTool(name) => {
                format!("Call `{name}` with it to use it on this connection")
            }
        };
        let (handle, lifetime) = (handle.expose(), text::lifetime(self.record.expiry));
        let text = format!(
            "{state} session_id: {handle}\n{how}, and keep it when the conversation is summarised. \
             The session {lifetime}."
        );
        let mut structure = self.structure();
        structure["session_id"] = handle.into();
        ToolReply { text, structure }
    }

    /// Returns the result of `session_info`.
    #[must_use]
    pub fn info(&self) -> ToolReply {
        let structure = self.structure();
        let name = chosen_name(self.record).map(|name| format!(" (name: {name})"));
        let (id, name) = (self.record.id, name.unwrap_or_default());
        let state = structure["state"].as_str().unwrap_or_default();
        let lifetime = text::lifetime(self.record.expiry);
        let text = format!("Session {id}{name}: its state is {state}. It {lifetime}.");
        ToolReply { text, structure }
    }

    /// Returns the result of `session_switch`.
    #[must_use]
    pub fn switched(&self) -> ToolReply {
        let id = self.record.id;
        let text = format!("Calls on this connection that name no session go to session {id} now.");
        ToolReply { text, structure: self.structure() }
    }
}

impl ToolReply {
    /// Returns the result of `session_end`.
    #[must_use]
    pub fn ended(id: SessionId) -> Self {
        let text =
            format!("Session {id} has ended. Its state is gone, and its session_id leads nowhere.");
        Self { text, structure: json!({ "session": id.to_string(), "ended": true }) }
    }

    /// Returns a page of `session_list`, of at most [`LIST_PAGE`] records. Provisional sessions are left out, because
    /// no client has asked for them yet. R158: `active` is the session of requests that name none, if the
    /// client has one.
    #[must_use]
    pub fn listed(page: &[Record], active: Option<SessionId>, now: Timestamp) -> Self {
        let shown: Vec<&Record> = page.iter().filter(|record| !record.provisional).collect();
        let lines: Vec<String> = shown.iter().map(|record| list_line(record, active)).collect();
        let mut text = match lines.is_empty() {
            true => "You have no sessions.".to_owned(),
            false => lines.join("\n"),
        };
        let last = page.last().filter(|_| page.len() == LIST_PAGE).map(|it| it.id.to_string());
        if last.is_some() {
            text.push_str("\nThere are more: call again with `after` and the last id.");
        }
        let sessions: Vec<Value> = shown
            .iter()
            .map(|record| {
                let mut entry = list_entry(record, now);
                if let Some(active) = active {
                    entry["active"] = (active == record.id).into();
                }
                entry
            })
            .collect();
        Self { text, structure: json!({ "sessions": sessions, "after": last }) }
    }

    /// Returns the result of `session_list` with a new handle for one session.
    #[must_use]
    pub fn issued(id: SessionId, handle: &Handle) -> Self {
        let (id, handle) = (id.to_string(), handle.expose());
        let text = format!("session_id of session {id}: {handle}");
        Self { text, structure: json!({ "session": id, "session_id": handle }) }
    }
}

/// Returns the chosen name of a session (a `name` or `project` key). A key that comes from the host is not shown.
#[must_use]
pub fn chosen_name(record: &Record) -> Option<&str> {
    let key = record.key.as_ref()?;
    matches!(key.source(), "name" | "project").then(|| key.value())
}

/// Returns the project that a session belongs to, without the escapes of its key.
fn project(record: &Record) -> Option<String> {
    let key = record.key.as_ref().filter(|key| key.source() == "project")?;
    let (project, _) = key.value().split_once('/')?;
    Some(project.replace("%2F", "/").replace("%25", "%"))
}

fn list_line(record: &Record, active: Option<SessionId>) -> String {
    let name = chosen_name(record).map(|name| format!(", name: {name}")).unwrap_or_default();
    let (created, used) = (record.created.to_rfc3339(), record.last_used.to_rfc3339());
    let mark = if active == Some(record.id) { ", active" } else { "" };
    format!("{}{name}{mark}, started {created}, last used {used}", record.id)
}

fn list_entry(record: &Record, now: Timestamp) -> Value {
    let mut described = describe(record, record.deadline(), now);
    described["project"] = project(record).into();
    described["source"] = record.key.as_ref().map(|key| key.source().to_owned()).into();
    described["last_used"] = record.last_used.to_rfc3339().into();
    described["unused_seconds"] = now.since(record.last_used).as_secs().into();
    described
}

fn describe(record: &Record, expires: Option<Timestamp>, now: Timestamp) -> Value {
    json!({
        "session": record.id.to_string(),
        "name": chosen_name(record),
        "created": record.created.to_rfc3339(),
        "age_seconds": now.since(record.created).as_secs(),
        "expires": expires.map(Timestamp::to_rfc3339),
        "expires_in_seconds": expires.map(|at| at.since(now).as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stayput_core::{Agent, Expiry, Generation, Key, Owner};

    use super::*;

    fn record(key: Key) -> Record {
        let record = Record::new(Owner::local(), Expiry::default(), Timestamp::from_millis(0));
        record.with_key(Agent::none(), key)
    }

    #[test]
    fn result_tells_the_same_to_model_and_program() {
        let record = record(Key::named("task").unwrap());
        let now = Timestamp::from_millis(60_000);
        let view = |origin| SessionView { record: &record, origin, now };
        let handle = Handle::generate();
        for (origin, state, part) in [
            (Origin::New, "fresh", "new session was started"),
            (Origin::Existing, "kept", "session is there"),
            (Origin::Lost(Generation(3)), "lost", "was lost"),
        ] {
            let place = HandlePlace::Argument(crate::ArgumentName::Plain);
            let reply = view(origin).started(&handle, &place);
            assert_eq!(reply.structure["state"], state);
            assert_eq!(reply.structure["session_id"], handle.expose());
            assert!(reply.text.contains(part) && reply.text.contains(handle.expose()));
            assert!(
                view(origin).info().text.contains(&format!("(name: task): its state is {state}"))
            );
        }
        let info = view(Origin::Existing).info().structure;
        assert_eq!(
            (&info["age_seconds"], &info["expires_in_seconds"]),
            (&json!(60), &json!(1_800))
        );
        assert_eq!(info["expires"], "1970-01-01T00:31:00Z");
        assert!(info["session_id"].is_null(), "a handle is shown only where it is given out");
    }

    #[test]
    fn list_hides_provisional_sessions_and_keys_of_hosts() {
        let now = Timestamp::from_millis(0).after(Duration::from_secs(9));
        assert_eq!(ToolReply::listed(&[], None, now).text, "You have no sessions.");
        let mut page = vec![record(Key::new("codex", "host-secret").unwrap()); LIST_PAGE];
        page[0].provisional = true;
        let reply = ToolReply::listed(&page, None, now);
        assert!(!format!("{reply:?}").contains("host-secret"));
        assert_eq!(reply.structure["sessions"].as_array().unwrap().len(), LIST_PAGE - 1);
        assert_eq!(reply.structure["after"], page[LIST_PAGE - 1].id.to_string());
        assert_eq!(reply.structure["sessions"][0]["unused_seconds"], 9);
        assert!(reply.text.contains("There are more"));
    }

    /// R158.
    #[test]
    fn list_shows_the_project_and_the_active_session() {
        let now = Timestamp::from_millis(0);
        let page = ["p%2Fq%252F/a", "other/a"].map(|it| record(Key::new("project", it).unwrap()));
        let reply = ToolReply::listed(&page, Some(page[1].id), now);
        let shown = |at: usize| {
            let entry = &reply.structure["sessions"][at];
            (entry["project"].clone(), entry["active"].clone())
        };
        assert_eq!(shown(0), (json!("p/q%2F"), json!(false)));
        assert_eq!(shown(1), (json!("other"), json!(true)));
        let active: Vec<bool> = reply.text.lines().map(|it| it.contains(", active,")).collect();
        assert_eq!(active, [false, true]);
    }
}
