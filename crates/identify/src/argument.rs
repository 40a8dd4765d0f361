//! Session argument of a tool call.

use std::fmt;

use stayput_wire::Message;

use crate::JsonValue;

/// Name of the session argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentName {
    /// `session_id`.
    #[default]
    Plain,
    /// `stayput_session_id`, where a tool has its own `session_id`.
    Prefixed,
}

impl ArgumentName {
    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "session_id",
            Self::Prefixed => "stayput_session_id",
        }
    }

    /// Describes the place for error messages.
    pub(crate) const fn place(self) -> &'static str {
        match self {
            Self::Plain => "the argument `session_id`",
            Self::Prefixed => "the argument `stayput_session_id`",
        }
    }
}

impl fmt::Display for ArgumentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Rule that decides whether a value of the session argument is for Stayput or for the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentRule {
    /// The tool has no argument of this name. Every value is for Stayput, and one that is no name is an error. Session
    /// tools are like this, and tools whose schema the server library has mounted.
    Owned,
    /// The gateway has added the argument to the tools of a server. A name is for Stayput, and so is an empty value,
    /// because models fill in arguments that they have no value for. Every other value is for the tool.
    Added,
    /// The schema of the tool is unknown. Only a name is for Stayput.
    Unknown,
}

/// Arguments of a tool call that can hold a session name.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionArguments<'a> {
    plain: Option<JsonValue<'a>>,
    prefixed: Option<JsonValue<'a>>,
}

impl<'a> SessionArguments<'a> {
    /// Reads the arguments of a message; `None` if it is no `tools/call`, or has neither of them.
    #[must_use]
    pub fn from_call(message: &Message<'a>) -> Option<Self> {
        if message.method() != Some("tools/call") {
            return None;
        }
        Self::from_object(JsonValue::Raw(message.arguments()?))
    }

    /// Reads them from the object with all arguments. The last of duplicate members counts.
    #[must_use]
    pub fn from_object(arguments: JsonValue<'a>) -> Option<Self> {
        let mut found = Self::default();
        for (name, value) in arguments.members() {
            match &*name {
                "session_id" => found.plain = Some(value),
                "stayput_session_id" => found.prefixed = Some(value),
                _ => {}
            }
        }
        (found.plain.is_some() || found.prefixed.is_some()).then_some(found)
    }

    pub(crate) fn get(self, name: ArgumentName) -> Option<JsonValue<'a>> {
        match name {
            ArgumentName::Plain => self.plain,
            ArgumentName::Prefixed => self.prefixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        )
    }

    #[test]
    fn argument_is_read_only_at_the_top_level() {
        use ArgumentName::{Plain, Prefixed};
        let read = |arguments: &str, name: ArgumentName| {
            let text = message(arguments);
            let message = Message::parse(text.as_bytes()).unwrap();
            let found = SessionArguments::from_call(&message);
            let text = found.and_then(|found| Some(found.get(name)?.text()?.into_owned()));
            (found.is_some(), text)
        };
        assert_eq!(read(r#"{"session_id":"key:a"}"#, Plain), (true, Some("key:a".into())));
        assert_eq!(read(r#"{"session\u005fid":"a"}"#, Plain), (true, Some("a".into())));
        assert_eq!(read(r#"{"stayput_session_id":"a"}"#, Plain), (true, None));
        assert_eq!(read(r#"{"session_id":7}"#, Plain), (true, None));
        assert_eq!(read(r#"{"x":{"session_id":"a"}}"#, Plain), (false, None));
        assert_eq!(read("null", Plain), (false, None));
        let other = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"arguments":{"session_id":"a"}}}"#;
        assert!(SessionArguments::from_call(&Message::parse(other.as_bytes()).unwrap()).is_none());
        let last = r#"{"session_id":"a","session_id":"b","stayput_session_id":"c"}"#;
        assert_eq!(read(last, Plain), (true, Some("b".into())));
        assert_eq!(read(last, Prefixed), (true, Some("c".into())));
    }

    #[test]
    fn place_contains_the_name_of_the_argument() {
        for name in [ArgumentName::Plain, ArgumentName::Prefixed] {
            assert_eq!(name.place(), format!("the argument `{name}`"));
        }
    }
}
