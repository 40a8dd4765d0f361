//! Parser of requests, as bytes (HTTP) and as rmcp types (other transports).

use std::sync::Arc;

use bytes::Bytes;
use rmcp::model::{ClientRequest, GetMeta as _};
use stayput_core::Owner;
use stayput_identify::{ExplicitNames, JsonValue, MetaMembers, SessionArguments, may_name_session};
use stayput_wire::{Era, Message, Raw, meta};

use super::RequestInfo;
use crate::{
    ServerSessions,
    names::{RequestHeaders, RequestNames, SessionRef, connection_hash},
    registry::TransportSession,
};

/// Kind of a request, as far as sessions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `tools/call`.
    ToolCall,
    /// A request that can use state: prompt, resource, completion; or a request that is not JSON-RPC.
    Other,
    /// `initialize`.
    Initialize,
    /// `tools/list`.
    ToolList,
    /// A request without state: other lists, pings, notifications. Also used where the kind does not matter.
    Stateless,
}

impl RequestKind {
    fn from_method(method: Option<&str>) -> Self {
        match method {
            Some("tools/call") => Self::ToolCall,
            Some("prompts/get" | "resources/read" | "completion/complete") => Self::Other,
            Some("initialize") => Self::Initialize,
            Some("tools/list") => Self::ToolList,
            _ => Self::Stateless,
        }
    }
}

/// Returns the info of a request whose body names no session.
pub(crate) fn from_headers(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &RequestHeaders<'_>,
    kind: RequestKind,
) -> RequestInfo {
    let names =
        RequestNames::read(sessions.name_sources(), None, MetaMembers::default(), Some(head));
    info_from_names(sessions, owner, head, (&names, kind, head.is_modern))
}

/// Returns the info of a request with a body, and the body without the session names if it had any. A body that is
/// not JSON-RPC is passed on unchanged: the service refuses it.
pub(crate) fn parse_body(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &RequestHeaders<'_>,
    body: &[u8],
) -> (RequestInfo, Option<Bytes>) {
    let modern = head.is_modern;
    let may_name = may_name_session(body, modern);
    if modern
        && !may_name
        && let Some(method) = head.method
    {
        // The service refuses a modern request whose header and body disagree, so the header suffices.
        return (from_headers(sessions, owner, head, RequestKind::from_method(Some(method))), None);
    }
    if !may_name && !modern {
        // If the connection identifies the session, the kind does not matter. `initialize` does not get here, because
        // its body has a protocol version.
        let info = from_headers(sessions, owner, head, RequestKind::Stateless);
        if matches!(info.session_ref, SessionRef::Connection(_)) {
            return (info, None);
        }
    }
    let Ok(message) = Message::parse_within(body, sessions.body_limit()) else {
        return (from_headers(sessions, owner, head, RequestKind::Stateless), None);
    };
    let kind = RequestKind::from_method(message.method());
    if !may_name {
        return (from_headers(sessions, owner, head, kind), None);
    }
    let arguments = SessionArguments::from_call(&message).map(|arguments| {
        let tool = message.name().and_then(Raw::text).unwrap_or_default();
        (arguments, sessions.argument_rule(&tool))
    });
    let members = MetaMembers::from_message(&message, &[]);
    let mut names = RequestNames::read(sessions.name_sources(), arguments, members, Some(head));
    let edited = names.edit(&message);
    let version = message.meta().and_then(|it| it.find(&[meta::PROTOCOL_VERSION])?.text());
    let modern = modern || version.is_some_and(|it| Era::from_version(&it) == Era::Modern);
    (info_from_names(sessions, owner, head, (&names, kind, modern)), edited)
}

/// Returns the info of a request with these names. A recently verified connection is looked up by its id.
fn info_from_names(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &RequestHeaders<'_>,
    (names, kind, modern): (&RequestNames<'_>, RequestKind, bool),
) -> RequestInfo {
    let (connection_id, mut connection_verified) = (head.connection_id(modern), false);
    let connection = connection_id.map(|id| {
        let known = sessions.registry().verified_connection(owner, id.as_bytes());
        connection_verified = known.is_some();
        SessionRef::Connection(known.unwrap_or_else(|| connection_hash(owner, id.as_bytes())))
    });
    // The id is needed to verify the connection, and by the event log.
    let connection_id =
        connection_id.filter(|_| !connection_verified || sessions.is_resumable()).cloned();
    let sources = sessions.name_sources();
    RequestInfo {
        session_ref: SessionRef::read(sources, names, Some(head), connection.as_ref()),
        connection,
        kind,
        named_by_argument: names.explicit.is_named_by_argument(),
        connection_id,
        connection_verified,
    }
}

/// Removes the session names from a typed request, and returns its info.
pub(crate) fn parse_typed(
    sessions: &ServerSessions,
    transport: &Arc<TransportSession>,
    request: &mut ClientRequest,
) -> RequestInfo {
    let arguments = match &*request {
        ClientRequest::CallToolRequest(call) => call.params.arguments.as_ref().and_then(|it| {
            let arguments = SessionArguments::from_object(JsonValue::Object(it))?;
            Some((arguments, sessions.argument_rule(&call.params.name)))
        }),
        _ => None,
    };
    let members = MetaMembers::from_object(JsonValue::Object(request.get_meta()), &[]);
    let names = RequestNames::read(sessions.name_sources(), arguments, members, None);
    let connection = Some(SessionRef::Transport(transport.clone()));
    let session_ref = SessionRef::read(sessions.name_sources(), &names, None, connection.as_ref());
    let explicit = names.explicit;
    remove_names(&explicit, request);
    RequestInfo {
        session_ref,
        connection,
        kind: RequestKind::from_method(Some(request.method())),
        named_by_argument: explicit.is_named_by_argument(),
        connection_id: None,
        connection_verified: false,
    }
}

fn remove_names(names: &ExplicitNames, request: &mut ClientRequest) {
    if let ClientRequest::CallToolRequest(call) = request
        && let Some(arguments) = &mut call.params.arguments
    {
        for name in names.taken_arguments() {
            arguments.remove(name.as_str());
        }
    }
    if names.is_in_meta() {
        request.get_meta_mut().remove(meta::SESSION);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use stayput_wire::header as mcp;

    use super::*;

    fn read(
        sessions: &ServerSessions,
        headers: &HeaderMap,
        body: &str,
    ) -> (String, RequestKind, String) {
        let head = RequestHeaders::read(headers);
        let (info, edited) = parse_body(sessions, &Owner::anonymous(), &head, body.as_bytes());
        let session_ref = match info.session_ref {
            SessionRef::Key(key) => key.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        let body = edited.map_or(body.to_owned(), |it| String::from_utf8(it.to_vec()).unwrap());
        (session_ref, info.kind, body)
    }

    fn call(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1, "method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        )
    }

    /// An escaped name is found, too.
    #[test]
    fn escaped_name_is_found() {
        let (sessions, headers) = (ServerSessions::in_memory(), HeaderMap::new());
        let escaped = call(r#"{"se\u0073sion_id":"key:x"}"#);
        assert_eq!(read(&sessions, &headers, &escaped).0, "name:x");
    }

    /// R148, R150: the argument is removed, all other bytes stay.
    #[test]
    fn session_argument_is_removed() {
        let (sessions, headers) = (ServerSessions::in_memory(), HeaderMap::new());
        let (session_ref, kind, body) =
            read(&sessions, &headers, &call(r#"{ "a":1.10,"session_id":"key:x" }"#));
        assert_eq!((session_ref.as_str(), kind), ("name:x", RequestKind::ToolCall));
        assert_eq!(body, call(r#"{ "a":1.10 }"#));
        let (session_ref, _, body) =
            read(&sessions, &headers, &call(r#"{"stayput_session_id":""}"#));
        assert_eq!((session_ref.as_str(), body), ("Missing", call("{}")));
    }

    /// E39: a tool's own argument is left alone.
    #[test]
    fn own_argument_of_a_tool_stays() {
        let (sessions, headers) = (ServerSessions::in_memory(), HeaderMap::new());
        for foreign in [r#"{"session_id":"42"}"#, r#"{"session_id":7}"#, r#"{"session_id":""}"#] {
            let (session_ref, _, body) = read(&sessions, &headers, &call(foreign));
            assert_eq!((session_ref.as_str(), body), ("Missing", call(foreign)));
        }
        sessions.register_tool("t", true);
        let own_argument = call(r#"{"session_id":"key:x"}"#);
        assert_eq!(read(&sessions, &headers, &own_argument).2, own_argument);
        sessions.register_tool("t", false);
        assert_eq!(read(&sessions, &headers, &call(r#"{"session_id":null}"#)).2, call("{}"));
        assert!(
            read(&sessions, &headers, &call(r#"{"session_id":"42"}"#)).0.starts_with("Invalid")
        );
    }

    /// R168: `_meta` is read, and only the member of Stayput is removed.
    #[test]
    fn session_member_of_meta_is_removed() {
        let (sessions, mut headers) = (ServerSessions::in_memory(), HeaderMap::new());
        let body = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{{"_meta":{meta}}}}}"#
            )
        };
        let (session_ref, kind, names) =
            read(&sessions, &headers, &body(r#"{"dev.stayput/session":"key:m","x":1}"#));
        assert_eq!(
            (session_ref.as_str(), kind, names),
            ("name:m", RequestKind::Other, body(r#"{"x":1}"#))
        );
        let hint = body(r#"{"threadId":"c"}"#);
        assert_eq!(read(&sessions, &headers, &hint), ("codex:c".into(), RequestKind::Other, hint));
        headers.insert(mcp::MCP_SESSION_ID, "7".parse().unwrap());
        assert!(read(&sessions, &headers, &body("{}")).0.starts_with("Connection"));
        let modern = body(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#);
        assert_eq!(
            read(&sessions, &headers, &modern).0,
            "Missing",
            "a modern client has no connection"
        );
        assert_eq!(read(&sessions, &headers, "[1]").2, "[1]");
    }
}
