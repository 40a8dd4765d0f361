//! Conversation hints: ids that hosts send in `_meta` unasked.

use std::borrow::Cow;

use stayput_core::Key;
use stayput_wire::{Raw, meta as keys, percent};

use super::{
    meta::{self, Member},
    refusal::Refusal,
};
use crate::config::Hints;

/// Source of keys from the baggage of a trace.
const OTEL: &str = "otel";

/// Returns the conversation of a request as a key, from the hints of its host.
///
/// # Errors
/// If the hints name two different conversations.
pub(super) fn read(hints: &Hints, members: &[Member<'_>]) -> Result<Option<Key>, Refusal> {
    if members.is_empty() {
        return Ok(None);
    }
    let mut first: Option<(&str, Cow<'_, str>)> = None;
    for (source, id) in all(hints, members) {
        match &first {
            None => first = Some((source, id)),
            Some((_, known)) if *known == id => {}
            Some((other, _)) => return Err(two(other, source)),
        }
    }
    Ok(first.and_then(|(source, id)| stayput_core::conversation_key(source, &id)))
}

/// Returns every enabled hint, in the order of the table.
fn all<'m>(
    hints: &'m Hints,
    members: &'m [Member<'_>],
) -> impl Iterator<Item = (&'static str, Cow<'m, str>)> {
    let counts = |source: &str| hints.0.contains(&source);
    let plain = keys::CONVERSATION_HINTS.into_iter().filter(move |(source, _)| counts(source));
    let plain = plain.flat_map(|(source, key)| {
        let ids = meta::values(members, key).filter_map(Raw::text);
        ids.filter(|id| !id.is_empty()).map(move |id| (source, id))
    });
    let traced = counts(OTEL).then(|| meta::values(members, keys::BAGGAGE).filter_map(Raw::text));
    let traced =
        traced.into_iter().flatten().filter_map(|text| Some((OTEL, conversation(&text)?.into())));
    plain.chain(traced)
}

/// Conversation id in the baggage of a trace (W3C Baggage: `key=value;property,key=value`).
fn conversation(baggage: &str) -> Option<String> {
    let mut members = baggage.split(',').filter_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        (key.trim() == keys::BAGGAGE_CONVERSATION).then(|| value.trim())
    });
    let id = members.next_back().and_then(percent::decode_text);
    id.filter(|id| !id.is_empty()).map(Cow::into_owned)
}

fn two(one: &str, other: &str) -> Refusal {
    let more = if one == other {
        format!("`{one}` stands there twice")
    } else {
        format!("the operator of the gateway can switch `{one}` or `{other}` off with \"hints\"")
    };
    Refusal::caller(format!(
        "`_meta` tells two different conversations, as `{one}` and as `{other}`. Nothing was run: {more}."
    ))
}

#[cfg(test)]
mod tests {
    use stayput_wire::Message;

    use super::*;

    fn said(hints: &Hints, meta: &str) -> Result<Option<String>, String> {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{meta}}}}}"#);
        let message = Message::parse(text.as_bytes()).unwrap();
        let key = read(hints, &meta::members(&message));
        key.map(|key| key.map(|key| key.as_str().to_owned()))
            .map_err(|refusal| refusal.sentence().to_owned())
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
            assert_eq!(said(&Hints::default(), meta), Ok(Some(key.to_owned())));
            assert_eq!(said(&Hints(Vec::new()), meta), Ok(None), "switched off");
        }
        for nothing in
            ["{}", "null", r#"{"threadId":7}"#, r#"{"threadId":""}"#, r#"{"baggage":"a=b"}"#]
        {
            assert_eq!(said(&Hints::default(), nothing), Ok(None), "{nothing}");
        }
    }

    /// R161: two hints that disagree are an error; none of them is guessed.
    #[test]
    fn conflicting_hints_are_an_error() {
        let both = r#"{"threadId":"c","sessionID":"d"}"#;
        let error = said(&Hints::default(), both).unwrap_err();
        assert!(
            error.contains("`codex`") && error.contains("`opencode`") && error.contains("hints"),
            "{error}"
        );
        assert_eq!(said(&Hints(vec!["codex"]), both), Ok(Some("codex:c".into())));
        let same = r#"{"threadId":"c","baggage":"gen_ai.conversation.id=c"}"#;
        assert_eq!(said(&Hints::default(), same), Ok(Some("codex:c".into())));
        assert!(said(&Hints::default(), r#"{"threadId":"c","threadId":"d"}"#).is_err());
    }
}
