//! Session name in an argument of a tool call.

use stayput_wire::{Message, Raw};

use crate::catalog::tool_argument::{ARGUMENT, OWN_ARGUMENT};

/// Arguments of a call that may hold a session name. The server decides which of them does.
#[derive(Clone, Copy, Default)]
pub(super) struct Ours<'a> {
    usual: Option<Raw<'a>>,
    own: Option<Raw<'a>>,
}

impl<'a> Ours<'a> {
    /// Reads the arguments of a call; `None` if it has neither. If a name occurs twice, the last value counts.
    pub(super) fn of(message: &Message<'a>) -> Option<Self> {
        if message.method() != Some("tools/call") {
            return None;
        }
        let mut found = Self::default();
        for (name, value) in message.arguments()?.members() {
            match name.text().as_deref() {
                Some(ARGUMENT) => found.usual = Some(value),
                Some(OWN_ARGUMENT) => found.own = Some(value),
                _ => {}
            }
        }
        (found.usual.is_some() || found.own.is_some()).then_some(found)
    }

    /// Returns the value of the argument with this name.
    pub(super) fn named(self, name: &str) -> Option<Raw<'a>> {
        if name == ARGUMENT { self.usual } else { self.own }
    }
}

/// Whether an argument is `null` or an empty string.
pub(super) fn is_empty(said: Raw<'_>) -> bool {
    said.is_null() || said.as_str() == "\"\""
}

/// Name of the argument for error messages.
pub(super) fn place(name: &str) -> &'static str {
    if name == ARGUMENT { "the argument `session_id`" } else { "the argument `stayput_session_id`" }
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
        let said = |arguments: &str, name: &str| {
            let text = message(arguments);
            let message = Message::parse(text.as_bytes()).unwrap();
            let ours = Ours::of(&message);
            let read = ours.and_then(|ours| Some(ours.named(name)?.text()?.into_owned()));
            (ours.is_some(), read)
        };
        assert_eq!(said(r#"{"session_id":"key:a"}"#, ARGUMENT), (true, Some("key:a".into())));
        assert_eq!(said(r#"{"session\u005fid":"a"}"#, ARGUMENT), (true, Some("a".into())));
        assert_eq!(said(r#"{"stayput_session_id":"a"}"#, ARGUMENT), (true, None));
        assert_eq!(said(r#"{"session_id":7}"#, ARGUMENT), (true, None));
        assert_eq!(said(r#"{"x":{"session_id":"a"}}"#, ARGUMENT), (false, None));
        assert_eq!(said("null", ARGUMENT), (false, None));
        let other = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"arguments":{"session_id":"a"}}}"#;
        assert!(Ours::of(&Message::parse(other.as_bytes()).unwrap()).is_none());
        let last = r#"{"session_id":"a","session_id":"b","stayput_session_id":"c"}"#;
        assert_eq!(said(last, ARGUMENT), (true, Some("b".into())));
        assert_eq!(said(last, OWN_ARGUMENT), (true, Some("c".into())));
    }

    #[test]
    fn place_contains_the_name_of_the_argument() {
        for name in [ARGUMENT, OWN_ARGUMENT] {
            assert_eq!(place(name), format!("the argument `{name}`"));
        }
    }
}
