//! Filter of `tools/list` results for clients without a connection: hides the switch tool.

use bytes::Bytes;
use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::Body;
use http_body_util::BodyExt as _;
use stayput_wire::{Message, Raw, header as mcp};

use super::ResponseBody;
use crate::{
    ServerSessions,
    request::{RequestKind, RequestSession},
};

/// Prefix of SSE lines with data.
const DATA_PREFIX: &str = "data:";

/// Returns whether the response may list tools that are not for this client. The whole response is buffered: a list
/// is short, and its stream ends.
pub(crate) fn needs_filter(request_session: &RequestSession, head: &HeaderMap) -> bool {
    request_session.kind() == RequestKind::ToolList
        && request_session.connection().is_none()
        && request_session.sessions().has_switch()
        && !head.contains_key(CONTENT_ENCODING)
}

/// Removes these tools from the response. All other bytes stay the same.
pub(crate) async fn filter_response<R: Body<Data = Bytes>>(
    sessions: &ServerSessions,
    response: Response<R>,
) -> Response<ResponseBody<R>> {
    let (mut head, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(|it| it.to_bytes()) else {
        let mut broken = Response::new(ResponseBody::text("the tool list ended early".into()));
        *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return broken;
    };
    let content_type = head.headers.get(CONTENT_TYPE).map_or(&[][..], |it| it.as_bytes());
    let filtered = match str::from_utf8(&body) {
        Ok(text) if content_type.starts_with(mcp::JSON.as_bytes()) => remove_switch(sessions, text),
        Ok(text) => {
            Some(text.split_inclusive('\n').map(|line| filter_line(sessions, line)).collect())
        }
        Err(_) => None,
    };
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, ResponseBody::text(filtered.map_or(body, Bytes::from)))
}

/// Does the same in one line of an SSE stream.
fn filter_line(sessions: &ServerSessions, line: &str) -> String {
    let data = line.strip_prefix(DATA_PREFIX).and_then(|data| remove_switch(sessions, data.trim()));
    data.map_or_else(|| line.to_owned(), |data| format!("{DATA_PREFIX} {data}\n"))
}

/// Removes the switch tool from a message; `None` if the message is no tool list.
fn remove_switch(sessions: &ServerSessions, text: &str) -> Option<String> {
    let message = Message::parse(text.as_bytes()).ok()?;
    let tools = message.result()?.find(&["tools"]).filter(|it| it.is_array())?;
    let is_switch = |tool: &Raw<'_>| {
        let name = tool.find(&["name"]).and_then(Raw::text);
        name.is_some_and(|name| sessions.is_switch(&name))
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

    /// R154: only the switch tool is removed, from JSON and from SSE.
    #[test]
    fn only_the_switch_tool_is_removed() {
        let sessions = ServerSessions::in_memory();
        let list = |tools: &str| {
            format!(r#"{{"id":1,"jsonrpc":"2.0","result":{{"tools":{tools}, "x":1.10}}}}"#)
        };
        let all = list(r#"[{"name":"a"},{"name":"stayput_session_switch"},{"name":"b"}]"#);
        assert_eq!(
            remove_switch(&sessions, &all),
            Some(list(r#"[{"name":"a"},{"name":"stayput_session_switch"},{"name":"b"}]"#))
        );
        sessions.register_switch("stayput_session_switch");
        let left = list(r#"[{"name":"a"},{"name":"b"}]"#);
        assert_eq!(remove_switch(&sessions, &all).as_ref(), Some(&left));
        assert_eq!(filter_line(&sessions, &format!("data: {all}\n")), format!("data: {left}\n"));
        for line in ["event: message\n", ": ping\n", "data:\n", "\n", "data: {}"] {
            assert_eq!(filter_line(&sessions, line), line);
        }
    }
}
