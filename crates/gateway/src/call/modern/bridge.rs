//! Between a modern client and a legacy server.

use std::borrow::Cow;

use stayput_upstream::Hello;
use stayput_wire::{Code, Message, Raw, json, meta};

/// What the keys of `_meta` begin with that only the modern era has.
const PREFIX: &str = "io.modelcontextprotocol/";

/// How loud log messages are, the quietest first.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A request as a legacy server knows it: without what the modern era says of the hop.
pub(crate) fn outward<'a>(message: &Message<'a>) -> Cow<'a, str> {
    let unchanged = Cow::Borrowed(message.text());
    let Some(params) = message.params() else { return unchanged };
    let Some(said) = params.find(&[meta::META]).filter(|meta| meta.is_object()) else {
        return unchanged;
    };
    let modern = |key: &Raw<'_>| key.text().is_some_and(|key| key.starts_with(PREFIX));
    let (gone, stay): (Vec<_>, Vec<_>) = said.members().map(|(key, _)| key).partition(modern);
    let mut edits = message.edit();
    if stay.is_empty() {
        edits.remove_in(params, &[meta::META]);
    } else {
        for key in gone.iter().filter_map(|key| key.text()) {
            edits.remove_in(said, &[&key]);
        }
    }
    // The validation has seen that nothing stands there twice, so there is nothing to fail.
    edits.apply().unwrap_or(unchanged)
}

/// What a legacy server is told of a modern client. It declares nothing: there is no way yet to ask it.
pub(crate) fn hello(message: &Message<'_>) -> Hello {
    let info = message.params().and_then(|it| it.find(&[meta::META, meta::CLIENT_INFO]));
    info.and_then(|info| Hello::new(info.as_str(), "{}").ok()).unwrap_or_default()
}

/// The code that a modern client knows for an error of a legacy server; nothing if it stays.
pub(crate) fn code(code: Code) -> Option<Code> {
    match code {
        Code::RESOURCE_NOT_FOUND => Some(Code::INVALID_PARAMS),
        // It would be read as what only this era means by it.
        code if Code::SPECIFIED.contains(&code.0) => Some(Code::INTERNAL_ERROR),
        _ => None,
    }
}

/// What a model is told when the user has to visit a page first, which nobody can be asked for yet.
pub(crate) fn visit_first(error: &str) -> String {
    let error = Raw::parse(error).ok();
    let find = |path: &[&str]| error.and_then(|error| error.find(path));
    let said = find(&["message"]).and_then(Raw::text).unwrap_or_default();
    let pages = find(&["data", "elicitations"]).into_iter().flat_map(Raw::elements);
    let pages = pages.filter_map(|page| page.find(&["url"])?.text());
    let pages: Vec<_> = pages.map(|page| format!(" {page}")).collect();
    format!(
        "The server wants the user to visit a page first ({said}).{} Tell the user, and call again \
         when that is done.",
        pages.concat()
    )
}

/// A tool error as a result.
pub(crate) fn tool_error(sentence: &str) -> String {
    let text = json::quote(sentence);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

/// Whether a log message is loud enough for who wants to hear from `wanted` on.
pub(crate) fn is_heard(message: &Message<'_>, wanted: &str) -> bool {
    let loudness = |level: &str| LEVELS.iter().position(|known| *known == level);
    let level = message.params().and_then(|params| params.find(&["level"])?.text());
    let level = level.and_then(|level| loudness(&level));
    level.zip(loudness(wanted)).is_some_and(|(level, wanted)| level >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(text: &str) -> String {
        outward(&Message::parse(text.as_bytes()).unwrap()).into_owned()
    }

    /// Invariant 10: every other byte stays.
    #[test]
    fn what_only_the_modern_era_says_is_taken_out() {
        assert_eq!(
            sent(
                r#"{"jsonrpc":"2.0", "id":"a","method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v",
 "progressToken":7.0e0,"io.modelcontextprotocol/x":{}, "traceparent":"t"},"n":1.10}}"#
            ),
            r#"{"jsonrpc":"2.0", "id":"a","method":"m","params":{"_meta":{"progressToken":7.0e0,"traceparent":"t"},"n":1.10}}"#
        );
        assert_eq!(
            sent(
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":1.10,"_meta":{"io.modelcontextprotocol/protocolVersion":"v"}}}"#
            ),
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":1.10}}"#
        );
        for same in [
            r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":1}}}"#,
        ] {
            assert_eq!(sent(same), same);
        }
    }

    /// Invariant 9: no code of the legacy era, and none of the modern one by chance.
    #[test]
    fn codes_are_those_of_the_modern_era() {
        assert_eq!(code(Code(-32002)), Some(Code(-32602)));
        assert_eq!(code(Code(-32020)), Some(Code(-32603)));
        assert_eq!(code(Code(-32042)), Some(Code(-32603)));
        for stays in [-32000, -32019, -32601, -32602, -32603, 1, -31001] {
            assert_eq!(code(Code(stays)), None);
        }
    }

    #[test]
    fn a_page_to_visit_is_named() {
        let said = visit_first(
            r#"{"code":-32042,"message":"log in","data":{"elicitations":[{"mode":"url","url":"https://a.example/x"}]}}"#,
        );
        assert!(said.contains("log in") && said.contains("https://a.example/x"), "{said}");
    }

    #[test]
    fn only_what_is_loud_enough_is_heard() {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":1}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        for (wanted, heard) in [("debug", true), ("warning", true), ("error", false), ("?", false)]
        {
            assert_eq!(is_heard(&message, wanted), heard, "{wanted}");
        }
    }
}
