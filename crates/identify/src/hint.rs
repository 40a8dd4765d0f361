//! Conversation hints: ids that hosts send in `_meta` unasked.

use std::borrow::Cow;

use stayput_core::{Key, conversation_key};
use stayput_wire::{meta, percent};

use crate::{MetaMembers, NameError};

/// Source of keys from the baggage of a trace.
const OTEL: &str = "otel";

/// Hosts with conversation ids, by the source of their keys.
pub const HINT_SOURCES: [&str; 6] = {
    let [(one, _), (two, _), (three, _), (four, _), (five, _)] = meta::CONVERSATION_HINTS;
    [one, two, three, four, five, OTEL]
};

/// Returns the conversation of a request as a key, from the hints of its host. `enabled` has the hosts whose hints
/// count.
///
/// # Errors
/// If the hints name two different conversations.
pub fn read_hints(enabled: &[&str], members: &MetaMembers<'_>) -> Result<Option<Key>, NameError> {
    if members.is_empty() {
        return Ok(None);
    }
    let mut first: Option<(&'static str, Cow<'_, str>)> = None;
    for (source, id) in hints(enabled, members) {
        match &first {
            None => first = Some((source, id)),
            Some((_, known)) if *known == id => {}
            Some((one, _)) => return Err(NameError::TwoConversations { one, other: source }),
        }
    }
    Ok(first.and_then(|(source, id)| conversation_key(source, &id)))
}

/// Returns every enabled hint, in the order of the table: the same request has the same key, however its members are
/// ordered.
fn hints<'m>(
    enabled: &'m [&str],
    members: &'m MetaMembers<'_>,
) -> impl Iterator<Item = (&'static str, Cow<'m, str>)> {
    let is_enabled = |source: &str| enabled.contains(&source);
    let plain = meta::CONVERSATION_HINTS.into_iter().filter(move |(source, _)| is_enabled(source));
    let plain = plain.flat_map(|(source, key)| {
        members.values(key).filter_map(move |value| Some((source, value.text()?)))
    });
    let traced = is_enabled(OTEL).then(|| members.values(meta::BAGGAGE)).into_iter().flatten();
    let traced = traced.filter_map(|value| Some((OTEL, baggage(&value.text()?)?.into())));
    plain.chain(traced).filter(|(_, id)| !id.is_empty())
}

/// Reads the conversation id from W3C Baggage (`key=value;property,key=value`).
fn baggage(text: &str) -> Option<String> {
    let mut members = text.split(',').filter_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        (key.trim() == meta::BAGGAGE_CONVERSATION).then(|| value.trim())
    });
    String::from_utf8(percent::decode(members.next_back()?).into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use stayput_wire::Message;

    use super::*;

    fn read(enabled: &[&str], meta: &str) -> Result<Option<String>, String> {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{meta}}}}}"#);
        let message = Message::parse(text.as_bytes()).unwrap();
        let key = read_hints(enabled, &MetaMembers::from_message(&message, &[]));
        key.map(|key| key.map(|key| key.as_str().to_owned())).map_err(|error| error.to_string())
    }

    /// R168: the table of conversation ids that hosts send.
    #[test]
    fn hint_of_every_known_host_is_read() {
        for (meta, key) in [
            (r#"{"openai/session":"v1/a","openai/subject":"s"}"#, "openai:v1/a"),
            (r#"{"vscode.conversationId":"b","vscode.requestId":"r"}"#, "vscode:b"),
            (r#"{"threadId":"c","callId":"1"}"#, "codex:c"),
            (r#"{"sessionID":"d"}"#, "opencode:d"),
            (r#"{"agent-session-id":"e","agent-working-dir":"/"}"#, "goose:e"),
            (r#"{"baggage":"x=1, gen_ai.conversation.id = f%20g ;p=1,y=2"}"#, "otel:f g"),
        ] {
            assert_eq!(read(&HINT_SOURCES, meta), Ok(Some(key.to_owned())));
            assert_eq!(read(&[], meta), Ok(None), "switched off");
        }
        for nothing in
            ["{}", "null", r#"{"threadId":7}"#, r#"{"threadId":""}"#, r#"{"baggage":"a=b"}"#]
        {
            assert_eq!(read(&HINT_SOURCES, nothing), Ok(None), "{nothing}");
        }
    }

    /// R161: two hints that disagree are an error; none of them is guessed.
    #[test]
    fn conflicting_hints_are_an_error() {
        let both = r#"{"threadId":"c","sessionID":"d"}"#;
        let error = read(&HINT_SOURCES, both).unwrap_err();
        assert!(error.contains("as `codex` and as `opencode`"), "{error}");
        assert_eq!(read(&["codex"], both), Ok(Some("codex:c".into())));
        let same = r#"{"baggage":"gen_ai.conversation.id=c","threadId":"c"}"#;
        assert_eq!(read(&HINT_SOURCES, same), Ok(Some("codex:c".into())));
        assert!(read(&HINT_SOURCES, r#"{"threadId":"c","threadId":"d"}"#).is_err());
    }

    #[test]
    fn percent_decoding_requires_utf8() {
        for (text, plain) in
            [("a%20b", Some("a b")), ("%c3%bc", Some("ü")), ("%zz%", Some("%zz%")), ("%ff", None)]
        {
            let read = baggage(&format!("gen_ai.conversation.id={text}"));
            assert_eq!(read.as_deref(), plain, "{text}");
        }
    }
}
