//! Parser of requests, as bytes (HTTP) and as rmcp types (other transports).

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use rmcp::model::{ClientRequest, GetMeta as _, JsonObject};
use serde_json::Value;
use stayput_core::{Name, Owner};
use stayput_wire::{Era, Message, Raw, meta};

use super::{RequestInfo, prefilter};
use crate::{
    ServerSessions,
    names::{
        Members, RequestHeaders, RequestNames, SessionRef, connection_hash, is_session_member,
    },
    registry::TransportSession,
};

/// Argument that names a session.
pub(crate) const SESSION_ARGUMENT: &str = "session_id";

/// Argument that names a session if the tool has its own `session_id`.
pub(crate) const FALLBACK_ARGUMENT: &str = "stayput_session_id";

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
    if head.has_session_header {
        return info_from_names(
            sessions,
            owner,
            head,
            (RequestNames::default(), kind, head.is_modern),
        );
    }
    let mut info = info_from_connection(sessions, owner, head, (kind, head.is_modern));
    info.session_ref =
        SessionRef::from_implicit(sessions.name_sources(), head, info.connection.as_ref());
    info
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
    let may_name = prefilter::may_name_session(body, modern);
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
    let mut names = RequestNames::default();
    let taken = message.arguments().filter(|_| kind == RequestKind::ToolCall).map(|arguments| {
        let tool = message.name().and_then(Raw::text).unwrap_or_default();
        (arguments, take_arguments(arguments, sessions.has_own_argument(&tool), &mut names))
    });
    let taken = taken.filter(|(_, names)| !names.is_empty());
    let (members, version) = message.meta().map(session_members).unwrap_or_default();
    names.meta = members;
    let named = message.meta().filter(|_| names.meta.iter().any(|(key, _)| key == meta::SESSION));
    let modern = modern || version.is_some_and(|it| Era::from_version(&it) == Era::Modern);
    let edited = (taken.is_some() || named.is_some()).then(|| {
        let mut edits = message.edit();
        if let Some((arguments, names)) = &taken {
            for name in names {
                edits.remove_in(*arguments, &[name]);
            }
        }
        if let Some(meta) = named {
            edits.remove_in(meta, &[meta::SESSION]);
        }
        edits.apply().ok().map(|text| Bytes::from(text.into_owned()))
    });
    (info_from_names(sessions, owner, head, (names, kind, modern)), edited.flatten())
}

/// Completes the info with the session that the names refer to.
fn info_from_names<'a>(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &'a RequestHeaders<'a>,
    (mut names, kind, modern): (RequestNames<'a>, RequestKind, bool),
) -> RequestInfo {
    let mut info = info_from_connection(sessions, owner, head, (kind, modern));
    (names.connection, names.head) = (info.connection.take(), Some(head));
    info.session_ref = SessionRef::read(sessions.name_sources(), &names);
    RequestInfo { connection: names.connection, ..info }
}

/// Returns the info about the connection. A recently verified connection is looked up by its id.
fn info_from_connection(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &RequestHeaders<'_>,
    (kind, modern): (RequestKind, bool),
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
    RequestInfo {
        session_ref: SessionRef::Missing,
        connection,
        kind,
        connection_id,
        connection_verified,
    }
}

/// Reads the session arguments, and returns the names of those that are not for the tool.
fn take_arguments<'a>(
    arguments: Raw<'a>,
    own_argument: Option<bool>,
    names: &mut RequestNames<'a>,
) -> Vec<&'static str> {
    let mut taken = Vec::new();
    for (name, value) in arguments.members() {
        let name = match name.text().as_deref() {
            Some(SESSION_ARGUMENT) => SESSION_ARGUMENT,
            Some(FALLBACK_ARGUMENT) => FALLBACK_ARGUMENT,
            _ => continue,
        };
        let text = value.text();
        if is_session_argument(name, own_argument, text.as_deref(), value.is_null()) {
            names.argument = text.filter(|text| !text.is_empty()).or(names.argument.take());
            taken.push(name);
        }
    }
    taken
}

/// Returns whether an argument names a session. E39: a tool's own `session_id` is left alone, and so is a value that
/// is no session name if the tool was not mounted. R148: an empty value names nothing.
fn is_session_argument(
    name: &str,
    own_argument: Option<bool>,
    text: Option<&str>,
    null: bool,
) -> bool {
    let empty = null || text == Some("");
    match (name, own_argument) {
        (FALLBACK_ARGUMENT, _) | (_, Some(false)) => empty || text.is_some(),
        (_, Some(true)) => false,
        (_, None) => text.is_some_and(|text| Name::parse(text).is_some()),
    }
}

/// Returns the members of `_meta` that can name a session, and its protocol version.
fn session_members(found: Raw<'_>) -> (Members<'_>, Option<Cow<'_, str>>) {
    let (mut members, mut version) = (Vec::new(), None);
    for (key, value) in found.members() {
        match key.text() {
            Some(key) if key == meta::PROTOCOL_VERSION => version = value.text(),
            Some(key) if is_session_member(&key) => {
                members.extend(value.text().map(|value| (key, value)));
            }
            _ => {}
        }
    }
    (members, version)
}

/// Removes the session names from a typed request, and returns its info.
pub(crate) fn parse_typed(
    sessions: &ServerSessions,
    transport: &Arc<TransportSession>,
    request: &mut ClientRequest,
) -> RequestInfo {
    let mut names = RequestNames {
        connection: Some(SessionRef::Transport(transport.clone())),
        ..RequestNames::default()
    };
    if let ClientRequest::CallToolRequest(call) = request
        && let Some(arguments) = &mut call.params.arguments
    {
        names.argument =
            take_typed_argument(arguments, sessions.has_own_argument(&call.params.name))
                .map(Cow::Owned);
    }
    let members = request.get_meta().iter().filter(|(key, _)| is_session_member(key));
    let members = members
        .filter_map(|(key, value)| Some((key.clone().into(), value.as_str()?.to_owned().into())));
    names.meta = members.collect();
    if !names.meta.is_empty() {
        request.get_meta_mut().remove(meta::SESSION);
    }
    let session_ref = SessionRef::read(sessions.name_sources(), &names);
    RequestInfo {
        session_ref,
        connection: names.connection,
        kind: RequestKind::from_method(Some(request.method())),
        connection_id: None,
        connection_verified: false,
    }
}

fn take_typed_argument(arguments: &mut JsonObject, own_argument: Option<bool>) -> Option<String> {
    let mut found = None;
    for name in [SESSION_ARGUMENT, FALLBACK_ARGUMENT] {
        let Some(value) = arguments.get(name) else { continue };
        if is_session_argument(name, own_argument, value.as_str(), value.is_null()) {
            let taken = arguments.remove(name);
            let text = taken.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty());
            found = text.map(str::to_owned).or(found);
        }
    }
    found
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
        headers.insert(mcp::SESSION_ID, "7".parse().unwrap());
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
