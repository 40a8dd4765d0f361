//! Translation between modern clients and legacy servers.

use std::borrow::Cow;

use stayput_upstream::{ClientInfo, InitializeResult};
use stayput_wire::{Code, Era, Message, Raw, json, meta};

/// Prefix of `_meta` keys that exist in the modern era only.
const PREFIX: &str = "io.modelcontextprotocol/";

/// Log levels, the least severe first.
pub(crate) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Returns a request for a legacy server, without the `_meta` keys of the modern era.
pub(crate) fn to_legacy_request<'a>(message: &Message<'a>) -> Cow<'a, str> {
    let unchanged = Cow::Borrowed(message.text());
    let Some(params) = message.params() else { return unchanged };
    let Some(fields) = params.find(&[meta::META]).filter(|meta| meta.is_object()) else {
        return unchanged;
    };
    let modern = |key: &Raw<'_>| key.text().is_some_and(|key| key.starts_with(PREFIX));
    let (remove, keep): (Vec<_>, Vec<_>) = fields.members().map(|(key, _)| key).partition(modern);
    let mut edits = message.edit();
    if keep.is_empty() {
        edits.remove_in(params, &[meta::META]);
    } else {
        for key in remove.iter().filter_map(|key| key.text()) {
            edits.remove_in(fields, &[&key]);
        }
    }
    // Validation has refused duplicate keys, so this does not fail.
    edits.apply().unwrap_or(unchanged)
}

/// Returns the sentence that refuses a method of a modern client, if the server is of the legacy era and does not offer
/// the method.
pub(crate) fn missing_method_error(server: &InitializeResult, method: &str) -> Option<String> {
    let capability = match method {
        "server/discover" => return None,
        "tools/list" | "tools/call" => Some("tools"),
        "prompts/list" | "prompts/get" => Some("prompts"),
        "resources/list" | "resources/templates/list" | "resources/read" => Some("resources"),
        "completion/complete" => Some("completions"),
        _ => None,
    };
    let is_offered = capability.is_some_and(|it| server.has(it)) || server.era() == Era::Modern;
    (!is_offered).then(|| format!("the server has no `{method}`"))
}

/// Builds the client information for a legacy server. It has no capabilities: the gateway cannot yet pass server
/// requests to a modern client.
pub(crate) fn client_info(message: &Message<'_>) -> ClientInfo {
    let info = message.params().and_then(|it| it.find(&[meta::META, meta::CLIENT_INFO]));
    info.and_then(|info| ClientInfo::new(info.as_str(), "{}").ok()).unwrap_or_default()
}

/// Returns the modern code for an error of a legacy server, or `None` if the code stays.
pub(crate) fn code(code: Code) -> Option<Code> {
    match code {
        Code::RESOURCE_NOT_FOUND => Some(Code::INVALID_PARAMS),
        // A modern client would read the code with its modern meaning.
        code if Code::SPECIFIED.contains(&code.0) => Some(Code::INTERNAL_ERROR),
        _ => None,
    }
}

/// Builds the text for a model when the user has to open a URL first. URL elicitation cannot be passed on yet.
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

/// Builds a tool error as a result.
pub(crate) fn tool_error(sentence: &str) -> String {
    let text = json::quote(sentence);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

/// Returns whether a log message has at least the level `wanted`.
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
        to_legacy_request(&Message::parse(text.as_bytes()).unwrap()).into_owned()
    }

    /// Invariant 10: every other byte stays.
    #[test]
    fn modern_meta_keys_are_removed() {
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

    /// Invariant 9: no code of the legacy era reaches the client, and no legacy code is read as a modern one.
    #[test]
    fn legacy_error_codes_become_modern_codes() {
        assert_eq!(code(Code(-32002)), Some(Code(-32602)));
        assert_eq!(code(Code(-32020)), Some(Code(-32603)));
        assert_eq!(code(Code(-32042)), Some(Code(-32603)));
        for stays in [-32000, -32019, -32601, -32602, -32603, 1, -31001] {
            assert_eq!(code(Code(stays)), None);
        }
    }

    #[test]
    fn url_elicitation_error_names_the_page() {
        let said = visit_first(
            r#"{"code":-32042,"message":"log in","data":{"elicitations":[{"mode":"url","url":"https://a.example/x"}]}}"#,
        );
        assert!(said.contains("log in") && said.contains("https://a.example/x"), "{said}");
    }

    #[test]
    fn log_message_below_the_wanted_level_is_dropped() {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":1}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        for (wanted, heard) in [("debug", true), ("warning", true), ("error", false), ("?", false)]
        {
            assert_eq!(is_heard(&message, wanted), heard, "{wanted}");
        }
    }
}
