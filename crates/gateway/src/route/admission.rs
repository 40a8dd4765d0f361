//! Admission check: refuses messages that a server may parse in another way than the gateway.
//!
//! The method and the name in a request decide whether it is allowed and what the audit log says. So a call must be a
//! request, and its method and name must be strings that every parser compares in the same way.

use http::{Response, StatusCode};
use stayput_wire::{Code, Era, Message, Raw, header as mcp};

use crate::{
    identify::RequestContext,
    messages::notifications::NOTIFICATIONS,
    observe::call_record::CallRecord,
    reply::{self, Reply},
};

/// Limits of `_meta`. Every step that looks for a session name or a host hint reads it again.
const MAX_META_MEMBERS: usize = 1_024;
const MAX_META_BYTES: usize = 256 << 10;

/// Defect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// No id, though the method is not a notification.
    NoId,
    /// Id, though the method is a notification.
    UnexpectedId,
    /// Control characters in the method, or white space around it.
    Method,
    /// Control characters in the name of the tool or prompt, or white space around it.
    Name,
    /// Name that parsers can read differently.
    AmbiguousName,
    /// Too many members or bytes in `_meta`.
    LargeMeta,
}

impl Defect {
    fn code(self) -> Code {
        match self {
            Self::NoId | Self::UnexpectedId | Self::Method => Code::INVALID_REQUEST,
            Self::Name | Self::AmbiguousName | Self::LargeMeta => Code::INVALID_PARAMS,
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::NoId => {
                "a message without an id has a method that begins with `notifications/`; requests need an id"
            }
            Self::UnexpectedId => {
                "a method that begins with `notifications/` is a notification; send it without an id"
            }
            Self::Method => "the method has control characters, or white space around it",
            Self::Name => "`name` is no text, or has control characters or white space around it",
            Self::AmbiguousName => "`name` stands there twice, or in another letter case",
            Self::LargeMeta => {
                "`_meta` has more than 1024 members or 262144 bytes, which is the limit; put large data into the \
                 arguments"
            }
        }
    }
}

/// Refusal of a message, which is already counted and recorded.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: Code,
    /// JSON-RPC error for the client.
    pub(crate) text: String,
}

impl Refusal {
    /// Converts the refusal to the response to a POST.
    pub(crate) fn response(self) -> Response<Reply> {
        let status = self.code.http_status(Era::Legacy);
        let mut response = reply::message(self.text);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        response
    }
}

/// Refuses a message that must not reach a server: counts it, and writes it to the audit log.
///
/// # Errors
/// If the message has a defect.
pub(crate) fn admit(context: &RequestContext<'_>) -> Result<(), Refusal> {
    let Some(defect) = find_defect(context.message) else { return Ok(()) };
    context.app.count_refused("invalid_message");
    CallRecord::denied(context.app.observers.as_ref(), context.call_start());
    let code = defect.code();
    Err(Refusal { code, text: reply::error(context.request_ref().id, code, defect.sentence()) })
}

fn find_defect(message: &Message<'_>) -> Option<Defect> {
    if message.meta().is_some_and(is_large) {
        return Some(Defect::LargeMeta);
    }
    let method = message.method()?;
    if !is_printable_and_trimmed(method) {
        return Some(Defect::Method);
    }
    let has_id = message.id().is_some();
    if has_id == method.starts_with(NOTIFICATIONS) {
        return Some(if has_id { Defect::UnexpectedId } else { Defect::NoId });
    }
    if mcp::name_member(method) != Some("name") {
        return None;
    }
    if message.has_ambiguous_name() {
        return Some(Defect::AmbiguousName);
    }
    // A name that is not a string names no tool: the server or the tool filter refuses it.
    let name = message.name().filter(|name| name.as_str().starts_with('"'))?;
    (!name.text().is_some_and(|name| is_printable_and_trimmed(&name))).then_some(Defect::Name)
}

/// Returns whether `_meta` is over its limits. Counts no further than the limit.
fn is_large(meta: Raw<'_>) -> bool {
    let length = meta.as_str().len();
    // A member has four characters or more, so most need not be counted.
    length > MAX_META_BYTES
        || (length > 4 * MAX_META_MEMBERS && meta.members().nth(MAX_META_MEMBERS).is_some())
}

/// Returns whether a string stays the same for parsers that cut at control characters or trim white space.
pub(crate) fn is_printable_and_trimmed(text: &str) -> bool {
    // JavaScript trims the byte order mark.
    let is_blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    text.bytes().all(|byte| byte.is_ascii_graphic())
        || !(text.contains(char::is_control)
            || text.starts_with(is_blank)
            || text.ends_with(is_blank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect(rest: &str) -> Option<Defect> {
        let text = format!(r#"{{"jsonrpc":"2.0",{rest}}}"#);
        find_defect(&Message::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn unambiguous_message_has_no_defect() {
        for rest in [
            r#""method":"notifications/progress""#,
            r#""id":1,"method":"tools/call","params":{"name":"a tool é-\ud83d\ude00"}"#,
            r#""id":1,"method":"t\u006fols\/call","params":{"n\u0061me":"a"}"#,
            r#""id":1,"method":"tools/call","params":{"name":["a"]}"#,
            r#""id":1,"method":"x/y","params":{"name":"a\u0000","Name":1}"#,
            r#""id":1,"result":{}"#,
            r#""error":{}"#,
        ] {
            assert_eq!(defect(rest), None, "{rest}");
        }
    }

    #[test]
    fn ambiguous_message_has_a_defect() {
        for method in [
            "tools/call",
            "t\\u006fols\\/call",
            "ping",
            "initialize",
            "notifications",
            "Notifications/x",
            "",
        ] {
            assert_eq!(defect(&format!(r#""method":"{method}""#)), Some(Defect::NoId), "{method}");
        }
        for method in ["notifications/initialized", "notifications\\/x"] {
            let rest = format!(r#""id":1,"method":"{method}""#);
            assert_eq!(defect(&rest), Some(Defect::UnexpectedId), "{rest}");
        }
        let ends = ["\\u0000", "\\n", "\\u007f", "\\u0085", " ", "\\u00a0", "\\u2003", "\\ufeff"];
        let dirty = ends.iter().flat_map(|end| [format!("x{end}"), format!("{end}x")]);
        for name in dirty.chain(["x\\u0000y".to_owned(), "x\\ty".to_owned()]) {
            assert_eq!(defect(&format!(r#""method":"{name}""#)), Some(Defect::Method), "{name}");
            for method in ["tools/call", "prompts/get"] {
                let rest = format!(r#""id":1,"method":"{method}","params":{{"name":"{name}"}}"#);
                assert_eq!(defect(&rest), Some(Defect::Name), "{rest}");
            }
        }
        let lone = r#""id":1,"method":"tools/call","params":{"name":"x\ud800"}"#;
        assert_eq!(defect(lone), Some(Defect::Name));
        let twice = r#""id":1,"method":"tools/call","params":{"name":"x","Name":"y"}"#;
        assert_eq!(defect(twice), Some(Defect::AmbiguousName));
    }
}
