//! The list of tools, as a client without a connection gets it: without what only connections can do.

use bytes::Bytes;
use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::Body;
use http_body_util::BodyExt as _;
use stayput_wire::{Message, Raw, header as mcp};

use crate::{Keeper, answer::Answer, ask::Kind, visit::Visit};

/// How the lines of a stream begin that have a message.
const DATA: &str = "data:";

/// Whether the answer to this request may list what is not for its client. A list is short, and its stream ends.
pub(crate) fn is_too_long(visit: &Visit, head: &HeaderMap) -> bool {
    visit.kind() == Kind::Tools
        && visit.via().is_none()
        && visit.keeper().has_switch()
        && !head.contains_key(CONTENT_ENCODING)
}

/// The answer without them. Every other byte stays.
pub(crate) async fn shortened<R: Body<Data = Bytes>>(
    keeper: &Keeper,
    answer: Response<R>,
) -> Response<Answer<R>> {
    let (mut head, body) = answer.into_parts();
    let Ok(whole) = body.collect().await.map(|it| it.to_bytes()) else {
        let mut broken = Response::new(Answer::ours("the list of tools broke off".into()));
        *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return broken;
    };
    let kind = head.headers.get(CONTENT_TYPE).map_or(&[][..], |it| it.as_bytes());
    let shorter = match str::from_utf8(&whole) {
        Ok(text) if kind.starts_with(mcp::JSON.as_bytes()) => without(keeper, text),
        Ok(text) => Some(text.split_inclusive('\n').map(|line| in_line(keeper, line)).collect()),
        Err(_) => None,
    };
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Answer::ours(shorter.map_or(whole, Bytes::from)))
}

/// The same in a line of a stream of events.
fn in_line(keeper: &Keeper, line: &str) -> String {
    let data = line.strip_prefix(DATA).and_then(|data| without(keeper, data.trim()));
    data.map_or_else(|| line.to_owned(), |data| format!("{DATA} {data}\n"))
}

/// A message without the tools that are only for connections; `None` if it lists none.
fn without(keeper: &Keeper, text: &str) -> Option<String> {
    let message = Message::parse(text.as_bytes()).ok()?;
    let tools = message.result()?.find(&["tools"]).filter(|it| it.is_array())?;
    let is_switch = |tool: &Raw<'_>| {
        let name = tool.find(&["name"]).and_then(Raw::text);
        name.is_some_and(|name| keeper.is_switch(&name))
    };
    let left: Vec<&str> =
        tools.elements().filter(|tool| !is_switch(tool)).map(Raw::as_str).collect();
    let mut edits = message.edit();
    edits.replace(tools, &format!("[{}]", left.join(",")));
    edits.apply().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R154: only the switch goes, from a message and from a stream.
    #[test]
    fn the_switch_goes_and_nothing_else() {
        let keeper = Keeper::memory();
        let list = |tools: &str| {
            format!(r#"{{"id":1,"jsonrpc":"2.0","result":{{"tools":{tools}, "x":1.10}}}}"#)
        };
        let all = list(r#"[{"name":"a"},{"name":"stayput_session_switch"},{"name":"b"}]"#);
        assert_eq!(
            without(&keeper, &all),
            Some(list(r#"[{"name":"a"},{"name":"stayput_session_switch"},{"name":"b"}]"#))
        );
        keeper.note_switch("stayput_session_switch");
        let left = list(r#"[{"name":"a"},{"name":"b"}]"#);
        assert_eq!(without(&keeper, &all).as_ref(), Some(&left));
        assert_eq!(in_line(&keeper, &format!("data: {all}\n")), format!("data: {left}\n"));
        for line in ["event: message\n", ": ping\n", "data:\n", "\n", "data: {}"] {
            assert_eq!(in_line(&keeper, line), line);
        }
    }
}
