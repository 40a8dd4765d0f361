//! Definitions of the session tools for `tools/list`.

use serde_json::{Map, Value, json};
use stayput_core::Expiry;

use super::SessionTool;
use crate::text;

impl SessionTool {
    /// Returns the whole definition under this name.
    #[must_use]
    pub fn definition(self, name: &str, expiry: Expiry) -> Value {
        json!({
            "name": name,
            "description": self.description(expiry),
            "inputSchema": self.input_schema(),
            "annotations": {
                "readOnlyHint": self.is_read_only(),
                "destructiveHint": self.is_destructive(),
                "idempotentHint": self.is_idempotent(),
                "openWorldHint": false,
            },
        })
    }

    /// Returns the description. That of `session_start` includes the lifetime of a session, because a model reads no
    /// other text about it.
    #[must_use]
    pub fn description(self, expiry: Expiry) -> String {
        let text = match self {
            Self::Start => {
                return format!(
                    "Starts a session on this server, a state of its own for one conversation, and returns its \
                     session_id. Call it once at the beginning of a conversation that uses this server, pass the \
                     session_id in every later call, and keep it when the conversation is summarised. Give a name, \
                     such as the task, and you get the same session back by that name if you lose the session_id. \
                     A session {}; then its state is gone.",
                    text::lifetime(expiry)
                );
            }
            Self::Info => {
                "Tells about the session of this conversation: its id, its name, whether its state is \
                 still there, and when it ends. Changes nothing."
            }
            Self::End => {
                "Ends the session of this conversation for good: its state on the server is gone, and its \
                 session_id leads nowhere. Call it when nothing of the session is needed any more."
            }
            Self::List => {
                "Lists your live sessions with their ids, names and ages, the latest last. With `session`, \
                 the id of one of them, it returns a session_id for that one, if it is certain who you are."
            }
            Self::Switch => {
                "Makes another session the one that calls on this connection go to when they name none."
            }
        };
        text.to_owned()
    }

    /// Returns the schema of the arguments.
    #[must_use]
    pub fn input_schema(self) -> Map<String, Value> {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let properties = match self {
            Self::Start => json!({
                "name": text("A name of your choice. The session of this name is found, or made if there is none."),
                "agent": text("Who uses the name: under another agent it is another session."),
                "project": text("What the name belongs to: in another project it is another session."),
                "session_id": text("A session_id that you have: checks that its session still lives."),
            }),
            Self::List => json!({
                "session": text("The id of a session of yours, to get a session_id for it."),
                "after": text("The last id of the page before, for the next one."),
            }),
            Self::Info | Self::End | Self::Switch => json!({
                "session_id": text("The session_id of the session (sp_…), or `key:` and its name."),
            }),
        };
        let required = if self == Self::Switch { json!(["session_id"]) } else { json!([]) };
        let parts = [("type", "object".into()), ("properties", properties), ("required", required)];
        parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns whether the tool changes nothing.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::Info)
    }

    /// Returns whether the tool destroys state.
    #[must_use]
    pub const fn is_destructive(self) -> bool {
        matches!(self, Self::End)
    }

    /// Returns whether a second call changes nothing more.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Info | Self::End | Self::Switch)
    }
}
