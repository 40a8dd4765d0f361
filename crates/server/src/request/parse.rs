//! What a request says, in bytes as over HTTP and in types as over other transports.

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

/// How the argument is called that names a session.
pub(crate) const SESSION_ARGUMENT: &str = "session_id";

/// How it is called in a tool that has one of that name for itself.
pub(crate) const FALLBACK_ARGUMENT: &str = "stayput_session_id";

/// What kind of request it is, as far as that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A call of a tool.
    ToolCall,
    /// One that can want state: a prompt, a resource, completion; or no JSON-RPC at all.
    Other,
    /// The first of a connection_id that shakes hands.
    Initialize,
    /// Asks which tools there are.
    ToolList,
    /// One that keeps nothing: other lists, pings, notifications. Or one of which nobody asks.
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

/// What a request means whose body says nothing.
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

/// What a request with one means, and its body without what only named the session, if that was in it. What is
/// no message is passed on as it is: who serves it knows what to say.
pub(crate) fn parse_body(
    sessions: &ServerSessions,
    owner: &Owner,
    head: &RequestHeaders<'_>,
    body: &[u8],
) -> (RequestInfo, Option<Bytes>) {
    let modern = head.is_modern;
    let tells = prefilter::may_name_session(body, modern);
    if modern
        && !tells
        && let Some(method) = head.method
    {
        // What a modern connection_id says in its header is what stands in its body, or who serves it refuses it.
        return (from_headers(sessions, owner, head, RequestKind::from_method(Some(method))), None);
    }
    if !tells && !modern {
        // Where the connection is what counts, nobody asks what kind of request it is. A handshake tells its
        // version, and does not come here.
        let info = from_headers(sessions, owner, head, RequestKind::Stateless);
        if matches!(info.session_ref, SessionRef::Connection(_)) {
            return (info, None);
        }
    }
    let Ok(message) = Message::parse_within(body, sessions.body_limit()) else {
        return (from_headers(sessions, owner, head, RequestKind::Stateless), None);
    };
    let kind = RequestKind::from_method(message.method());
    if !tells {
        return (from_headers(sessions, owner, head, kind), None);
    }
    let params = Params::find(&message);
    let mut names = RequestNames::default();
    let taken = params.arguments.filter(|_| kind == RequestKind::ToolCall).map(|arguments| {
        let tool = params.name.and_then(Raw::text).unwrap_or_default();
        (arguments, take_arguments(arguments, sessions.has_own_argument(&tool), &mut names))
    });
    let taken = taken.filter(|(_, names)| !names.is_empty());
    let (told, version) = params.meta.map(session_members).unwrap_or_default();
    names.meta = told;
    let named = params.meta.filter(|_| names.meta.iter().any(|(key, _)| key == meta::SESSION));
    let modern = modern || version.is_some_and(|it| Era::of(&it) == Era::Modern);
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

/// The parameters that matter, found in one walk. Of two with one name the last counts.
#[derive(Default)]
struct Params<'a> {
    name: Option<Raw<'a>>,
    arguments: Option<Raw<'a>>,
    meta: Option<Raw<'a>>,
}

impl<'a> Params<'a> {
    fn find(message: &Message<'a>) -> Self {
        let mut found = Self::default();
        for (key, value) in message.params().into_iter().flat_map(Raw::members) {
            match key.text().as_deref() {
                Some("name") => found.name = Some(value),
                Some("arguments") => found.arguments = Some(value),
                Some(meta::META) => found.meta = Some(value),
                _ => {}
            }
        }
        found
    }
}

/// What all of that means.
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

/// Which way a request came. A connection that was there a moment ago is known by its id.
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
    // Whoever does not trust it has to know it, and so has the log of events.
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

/// Reads the arguments that name a session, and says which ones are not for the tool.
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

/// Whether an argument is for us. E39: what a tool calls `session_id` stays its own_argument, and so does what cannot
/// be ours where nobody names that it is. R148: an empty one says nothing.
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
        (_, None) => text.is_some_and(|text| Name::read(text).is_some()),
    }
}

/// The texts of `_meta` that can tell something, and the version of the protocol in it.
fn session_members(found: Raw<'_>) -> (Members<'_>, Option<Cow<'_, str>>) {
    let (mut told, mut version) = (Vec::new(), None);
    for (key, value) in found.members() {
        match key.text() {
            Some(key) if key == meta::PROTOCOL_VERSION => version = value.text(),
            Some(key) if is_session_member(&key) => {
                told.extend(value.text().map(|value| (key, value)))
            }
            _ => {}
        }
    }
    (told, version)
}

/// A typed request on a line: takes out what names the session, and says what it means.
pub(crate) fn parse_typed(
    sessions: &ServerSessions,
    line: &Arc<TransportSession>,
    request: &mut ClientRequest,
) -> RequestInfo {
    let mut names = RequestNames {
        connection: Some(SessionRef::Transport(line.clone())),
        ..RequestNames::default()
    };
    if let ClientRequest::CallToolRequest(call) = request
        && let Some(arguments) = &mut call.params.arguments
    {
        names.argument =
            take_typed_argument(arguments, sessions.has_own_argument(&call.params.name))
                .map(Cow::Owned);
    }
    let told = request.get_meta().iter().filter(|(key, _)| is_session_member(key));
    let told = told
        .filter_map(|(key, value)| Some((key.clone().into(), value.as_str()?.to_owned().into())));
    names.meta = told.collect();
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
        let (info, edited) =
            super::parse_body(sessions, &Owner::anonymous(), &head, body.as_bytes());
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

    /// No name is overlooked, however it is written.
    #[test]
    fn an_escaped_name_is_noticed() {
        let (sessions, headers) = (ServerSessions::in_memory(), HeaderMap::new());
        let escaped = call(r#"{"se\u0073sion_id":"key:x"}"#);
        assert_eq!(read(&sessions, &headers, &escaped).0, "name:x");
    }

    /// R148, R150: the argument is taken out, every other byte stays.
    #[test]
    fn the_argument_is_not_for_the_tool() {
        let (sessions, headers) = (ServerSessions::in_memory(), HeaderMap::new());
        let (session_ref, kind, body) =
            read(&sessions, &headers, &call(r#"{ "a":1.10,"session_id":"key:x" }"#));
        assert_eq!((session_ref.as_str(), kind), ("name:x", RequestKind::ToolCall));
        assert_eq!(body, call(r#"{ "a":1.10 }"#));
        let (session_ref, _, body) =
            read(&sessions, &headers, &call(r#"{"stayput_session_id":""}"#));
        assert_eq!((session_ref.as_str(), body), ("Missing", call("{}")));
    }

    /// E39: an argument of the tool's own_argument is left alone.
    #[test]
    fn what_is_not_ours_stays() {
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

    /// R168: `_meta` is read, and only what is ours is taken out.
    #[test]
    fn meta_is_read() {
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
