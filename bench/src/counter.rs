//! Minimal server, the same for every measured client, so that only the clients differ.

use std::sync::OnceLock;

use stayput_wire::{Message, MessageKind};

/// Size of the answer of `large`.
pub(crate) const LARGE: usize = 100_000;

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#;

const TOOLS: &str = r#"{"tools":[{"name":"count","description":"Adds one and says the number.","inputSchema":{"type":"object"}}]}"#;

/// Returns the answer to a message, if it is a request. `count` increments the counter of its session.
pub(crate) fn answer(message: &Message<'_>, count: impl FnOnce() -> u64) -> Option<String> {
    let MessageKind::Request { id, method, params } = message.kind() else { return None };
    let id = id.as_str();
    let tool = params.and_then(|params| params.find(&["name"])?.text());
    let result = match (&**method, tool.as_deref()) {
        ("initialize", _) => GREETING.to_owned(),
        ("tools/list", _) => TOOLS.to_owned(),
        ("tools/call", Some("count")) => text(&count().to_string()),
        ("tools/call", Some("large")) => large().to_owned(),
        ("tools/call", Some("pid")) => text(&std::process::id().to_string()),
        ("tools/call", _) => text("ok"),
        ("ping", _) => "{}".to_owned(),
        _ => {
            let error = r#"{"code":-32601,"message":"there is no such method"}"#;
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
        }
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn text(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
}

fn large() -> &'static str {
    static RESULT: OnceLock<String> = OnceLock::new();
    RESULT.get_or_init(|| text(&"a line of text as a file has them ".repeat(LARGE / 34)))
}
