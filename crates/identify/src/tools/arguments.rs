//! Arguments of the session tools.

use std::borrow::Cow;

use stayput_core::{Agent, Key, SessionId};
use stayput_wire::Message;

use crate::JsonValue;

/// Maximum length in bytes of a chosen name.
const MAX_NAME_BYTES: usize = 128;

/// Error about an argument of a session tool. The text is a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// An argument is no string.
    #[error("`{0}` must be a text")]
    NotText(&'static str),
    /// A part of a name is too long, or not printable.
    #[error("`{0}` must have 1 to 128 printable bytes")]
    InvalidName(&'static str),
    /// A value is no session id.
    #[error("this is not an id of a session; they are in the list")]
    InvalidId,
    /// The required argument `session_id` is missing.
    #[error("`session_id` must be a session id (`sp_…`), or `key:` and a name")]
    MissingSession,
    /// The owner is not authenticated. Clients without credentials cannot be told apart, and session ids are no secret.
    #[error(
        "sessions are given out again only to an owner who is authenticated, or over stdio. Give them a \
         name, and get them back by `session_start`"
    )]
    UncertainOwner,
}

/// Arguments of a call of a session tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolArguments<'a>(Option<JsonValue<'a>>);

impl<'a> ToolArguments<'a> {
    /// Reads the arguments of a `tools/call`.
    #[must_use]
    pub fn from_call(message: &Message<'a>) -> Self {
        Self(message.arguments().map(JsonValue::Raw))
    }

    /// Reads the object with all arguments.
    #[must_use]
    pub fn from_object(arguments: JsonValue<'a>) -> Self {
        Self(Some(arguments))
    }

    fn text(self, name: &'static str) -> Result<Option<Cow<'a, str>>, ToolError> {
        let value = self.0.and_then(|arguments| arguments.get(name));
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let text = value.text().ok_or(ToolError::NotText(name))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Returns whether the argument `session_id` is given and not empty.
    ///
    /// # Errors
    /// If it is no string.
    pub fn names_session(self) -> Result<bool, ToolError> {
        Ok(self.text("session_id")?.is_some())
    }

    /// Returns the key of the session that the arguments `name`, `agent` and `project` choose, with its agent; `None`
    /// without `name`.
    ///
    /// # Errors
    /// If one of them is no string, too long or not printable.
    pub fn chosen_key(self) -> Result<Option<(Agent, Key)>, ToolError> {
        let Some(name) = self.text("name")? else { return Ok(None) };
        let agent = match self.text("agent")? {
            Some(agent) => Agent::named(&agent).map_err(|_| ToolError::InvalidName("agent"))?,
            None => Agent::none(),
        };
        if name.len() > MAX_NAME_BYTES {
            return Err(ToolError::InvalidName("name"));
        }
        let key = match self.text("project")? {
            None => Key::named(&name).map_err(|_| ToolError::InvalidName("name"))?,
            Some(project) => {
                // Escapes the project, so that the first slash is the separator.
                let plain = project.replace('%', "%25").replace('/', "%2F");
                let key = Key::new("project", &format!("{plain}/{name}"));
                key.map_err(|_| ToolError::InvalidName("project"))?
            }
        };
        Ok(Some((agent, key)))
    }

    /// Returns the session id in an argument of `session_list`: `session` or `after`.
    ///
    /// # Errors
    /// If it is no session id.
    pub fn session_id(self, name: &'static str) -> Result<Option<SessionId>, ToolError> {
        let text = self.text(name)?;
        text.map(|id| id.parse().map_err(|_| ToolError::InvalidId)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn name_agent_and_project_choose_the_key() {
        let key = |arguments: Value| {
            let chosen = ToolArguments::from_object(JsonValue::Parsed(&arguments)).chosen_key();
            chosen.map(|chosen| chosen.map(|(_, key)| key.as_str().to_owned()))
        };
        let part = Some("project:p%2Fq/a".to_owned());
        assert_eq!(key(json!({ "name": "a" })), Ok(Some("name:a".into())));
        assert_eq!(key(json!({ "name": "a", "project": "p/q", "agent": null })), Ok(part));
        assert_eq!(key(json!({ "name": "", "project": "p" })), Ok(None));
        let long = json!({ "name": "x".repeat(129) });
        for (arguments, error) in [
            (json!({ "name": 7 }), ToolError::NotText("name")),
            (long, ToolError::InvalidName("name")),
            (json!({ "name": "a", "agent": "b\n" }), ToolError::InvalidName("agent")),
        ] {
            assert_eq!(key(arguments), Err(error));
        }
    }
}
