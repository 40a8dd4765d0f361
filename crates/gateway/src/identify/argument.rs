//! The session in an argument of a tool.

use std::borrow::Cow;

use stayput_wire::{Message, Raw};

use crate::handles::{ARGUMENT, OWN_ARGUMENT};

/// What the argument `name` of a call says, if it is a text.
pub(super) fn read<'a>(message: &Message<'a>, name: &str) -> Option<Cow<'a, str>> {
    arguments(message)?.find(&[name])?.text()
}

/// Whether the argument `name` of a call is there and says nothing.
pub(super) fn is_empty(message: &Message<'_>, name: &str) -> bool {
    let said = arguments(message).and_then(|arguments| arguments.find(&[name]));
    said.is_some_and(|said| said.is_null() || said.as_str() == "\"\"")
}

/// Whether a call has an argument that may be ours; which one is, depends on the server.
pub(super) fn is_there(message: &Message<'_>) -> bool {
    let is_one = |(name, _): (Raw<'_>, Raw<'_>)| {
        let name = name.text();
        name.is_some_and(|name| name == ARGUMENT || name == OWN_ARGUMENT)
    };
    arguments(message).is_some_and(|arguments| arguments.members().any(is_one))
}

fn arguments<'a>(message: &Message<'a>) -> Option<Raw<'a>> {
    if message.method() != Some("tools/call") {
        return None;
    }
    message.params()?.find(&["arguments"])
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
    fn an_argument_is_read_where_it_stands() {
        let said = |arguments: &str, name: &str| {
            let text = message(arguments);
            let message = Message::parse(text.as_bytes()).unwrap();
            (is_there(&message), read(&message, name).map(Cow::into_owned))
        };
        assert_eq!(said(r#"{"session_id":"key:a"}"#, ARGUMENT), (true, Some("key:a".into())));
        assert_eq!(said(r#"{"session\u005fid":"a"}"#, ARGUMENT), (true, Some("a".into())));
        assert_eq!(said(r#"{"stayput_session_id":"a"}"#, ARGUMENT), (true, None));
        assert_eq!(said(r#"{"session_id":7}"#, ARGUMENT), (true, None));
        assert_eq!(said(r#"{"x":{"session_id":"a"}}"#, ARGUMENT), (false, None));
        assert_eq!(said("null", ARGUMENT), (false, None));
        let other = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"arguments":{"session_id":"a"}}}"#;
        assert!(!is_there(&Message::parse(other.as_bytes()).unwrap()));
    }
}
