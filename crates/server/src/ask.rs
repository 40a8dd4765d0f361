//! What a request says, in bytes as over HTTP and in types as over other transports.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use rmcp::model::{ClientRequest, GetMeta as _, JsonObject};
use serde_json::Value;
use stayput_core::Owner;
use stayput_wire::{Era, Message, Raw, Version, header as mcp, meta};

use crate::{
    Keeper,
    carrier::{self, Claim, Said, tells},
    line::Line,
    name::Name,
    visit::Meant,
};

/// How the argument is called that names a session.
pub(crate) const ARGUMENT: &str = "session_id";

/// How it is called in a tool that has one of that name for itself.
pub(crate) const OWN_ARGUMENT: &str = "stayput_session_id";

/// A request over HTTP, understood as far as need be.
pub(crate) struct Ask {
    pub(crate) meant: Meant,
    /// Whether each of its client's requests stands for itself.
    pub(crate) modern: bool,
    /// The body without what only named the session.
    pub(crate) body: Option<Bytes>,
}

/// What kind of request it is, as far as that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call of a tool.
    Tool,
    /// One that can want state: a prompt, a resource, completion; or no JSON-RPC at all.
    Other,
    /// The first of a client that shakes hands.
    Initialize,
    /// One that keeps nothing: lists, pings, notifications.
    Nothing,
}

impl Kind {
    fn of(method: Option<&str>) -> Self {
        match method {
            Some("tools/call") => Self::Tool,
            Some("prompts/get" | "resources/read" | "completion/complete") => Self::Other,
            Some("initialize") => Self::Initialize,
            _ => Self::Nothing,
        }
    }
}

impl Ask {
    /// A request without a body of JSON.
    pub(crate) fn plain(keeper: &Keeper, owner: &Owner, headers: &HeaderMap, kind: Kind) -> Self {
        let modern = modern_header(headers);
        Self { meant: meant(keeper, owner, &said_by(headers, modern), kind), modern, body: None }
    }

    /// A request with one. What is no message is passed on as it is: who serves it knows what to say.
    pub(crate) fn read(keeper: &Keeper, owner: &Owner, headers: &HeaderMap, body: Bytes) -> Self {
        let Ok(message) = Message::parse_within(&body, keeper.body_limit()) else {
            let plain = Self::plain(keeper, owner, headers, Kind::Nothing);
            return Self { body: Some(body), ..plain };
        };
        let mut said = Said::default();
        let (mut edits, mut edited) = (message.edit(), false);
        if let Some(params) = message.params() {
            if message.method() == Some("tools/call")
                && let Some(arguments) = params.find(&["arguments"])
            {
                let tool = params.find(&["name"]).and_then(Raw::text).unwrap_or_default();
                for name in ours(arguments, keeper.has_own(&tool), &mut said) {
                    edits.remove_in(arguments, &[name]);
                    edited = true;
                }
            }
            if let Some(found) = params.find(&[meta::META]) {
                said.meta = members(found);
                if said.meta.iter().any(|(key, _)| key == meta::SESSION) {
                    edits.remove_in(found, &[meta::SESSION]);
                    edited = true;
                }
            }
        }
        let modern = modern_header(headers) || modern_meta(&message);
        let kind = Kind::of(message.method());
        let Said { meta, argument, .. } = said;
        let said = Said { meta, argument, ..said_by(headers, modern) };
        let meant = meant(keeper, owner, &said, kind);
        let text = if edited { edits.apply().ok().map(Cow::into_owned) } else { None };
        Self { meant, modern, body: Some(text.map_or(body.clone(), Bytes::from)) }
    }
}

/// A modern client has no connection, whatever it sends.
fn said_by(headers: &HeaderMap, modern: bool) -> Said<'_> {
    Said { headers: Some(headers), connected: !modern, ..Said::default() }
}

fn meant(keeper: &Keeper, owner: &Owner, said: &Said<'_>, kind: Kind) -> Meant {
    let claim = Claim::read(keeper.carriers(), owner, said);
    let client = said.headers.filter(|_| said.connected).and_then(|it| it.get(mcp::SESSION_ID));
    let client = client.and_then(|id| id.to_str().ok()).map(str::to_owned);
    Meant { claim, via: carrier::connection(owner, said), kind, client }
}

fn modern_header(headers: &HeaderMap) -> bool {
    let version = headers.get(mcp::PROTOCOL_VERSION).and_then(|it| it.to_str().ok());
    version.is_some_and(is_modern)
}

fn modern_meta(message: &Message<'_>) -> bool {
    let version = message.params().and_then(|it| it.find(&[meta::META, meta::PROTOCOL_VERSION]));
    version.and_then(Raw::text).is_some_and(|it| is_modern(&it))
}

fn is_modern(version: &str) -> bool {
    Version::from(version).era() == Era::Modern
}

/// Reads the arguments that name a session, and says which ones are not for the tool.
fn ours<'a>(arguments: Raw<'a>, own: Option<bool>, said: &mut Said<'a>) -> Vec<&'static str> {
    let mut taken = Vec::new();
    for (name, value) in arguments.members() {
        let name = match name.text().as_deref() {
            Some(ARGUMENT) => ARGUMENT,
            Some(OWN_ARGUMENT) => OWN_ARGUMENT,
            _ => continue,
        };
        let text = value.text();
        if is_ours(name, own, text.as_deref(), value.is_null()) {
            said.argument = text.filter(|text| !text.is_empty()).or(said.argument.take());
            taken.push(name);
        }
    }
    taken
}

/// Whether an argument is for us. E39: what a tool calls `session_id` stays its own, and so does what cannot
/// be ours where nobody said that it is. R148: an empty one says nothing.
fn is_ours(name: &str, own: Option<bool>, text: Option<&str>, null: bool) -> bool {
    let empty = null || text == Some("");
    match (name, own) {
        (OWN_ARGUMENT, _) | (_, Some(false)) => empty || text.is_some(),
        (_, Some(true)) => false,
        (_, None) => text.is_some_and(|text| Name::read(text).is_some()),
    }
}

/// The texts of `_meta` that can tell something.
fn members<'a>(found: Raw<'a>) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let members = found.members().filter_map(|(key, value)| {
        let key = key.text().filter(|key| tells(key))?;
        Some((key, value.text()?))
    });
    members.collect()
}

/// A typed request on a line: takes out what names the session, and says what it means.
pub(crate) fn typed(
    keeper: &Keeper,
    line: &Arc<Line>,
    request: &mut ClientRequest,
) -> (Claim, Kind) {
    let mut said = Said { line: Some(line), ..Said::default() };
    if let ClientRequest::CallToolRequest(call) = request
        && let Some(arguments) = &mut call.params.arguments
    {
        said.argument =
            typed_argument(arguments, keeper.has_own(&call.params.name)).map(Cow::Owned);
    }
    let told = request.get_meta().iter().filter(|(key, _)| tells(key));
    let told = told
        .filter_map(|(key, value)| Some((key.clone().into(), value.as_str()?.to_owned().into())));
    said.meta = told.collect();
    if !said.meta.is_empty() {
        request.get_meta_mut().remove(meta::SESSION);
    }
    let claim = Claim::read(keeper.carriers(), line.owner(), &said);
    (claim, Kind::of(Some(request.method())))
}

fn typed_argument(arguments: &mut JsonObject, own: Option<bool>) -> Option<String> {
    let mut found = None;
    for name in [ARGUMENT, OWN_ARGUMENT] {
        let Some(value) = arguments.get(name) else { continue };
        if is_ours(name, own, value.as_str(), value.is_null()) {
            let taken = arguments.remove(name);
            let text = taken.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty());
            found = text.map(str::to_owned).or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keeper: &Keeper, headers: &HeaderMap, body: &str) -> (String, Kind, String) {
        let ask = Ask::read(keeper, &Owner::anonymous(), headers, body.to_owned().into());
        let claim = match ask.meant.claim {
            Claim::Key(key) => key.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        (claim, ask.meant.kind, String::from_utf8(ask.body.unwrap().to_vec()).unwrap())
    }

    fn call(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1, "method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        )
    }

    /// R148, R150: the argument is taken out, every other byte stays.
    #[test]
    fn the_argument_is_not_for_the_tool() {
        let (keeper, headers) = (Keeper::memory(), HeaderMap::new());
        let (claim, kind, body) =
            read(&keeper, &headers, &call(r#"{ "a":1.10,"session_id":"key:x" }"#));
        assert_eq!((claim.as_str(), kind), ("name:x", Kind::Tool));
        assert_eq!(body, call(r#"{ "a":1.10 }"#));
        let (claim, _, body) = read(&keeper, &headers, &call(r#"{"stayput_session_id":""}"#));
        assert_eq!((claim.as_str(), body), ("Nothing", call("{}")));
    }

    /// E39: an argument of the tool's own is left alone.
    #[test]
    fn what_is_not_ours_stays() {
        let (keeper, headers) = (Keeper::memory(), HeaderMap::new());
        for foreign in [r#"{"session_id":"42"}"#, r#"{"session_id":7}"#, r#"{"session_id":""}"#] {
            let (claim, _, body) = read(&keeper, &headers, &call(foreign));
            assert_eq!((claim.as_str(), body), ("Nothing", call(foreign)));
        }
        keeper.note_tool("t", true);
        let own = call(r#"{"session_id":"key:x"}"#);
        assert_eq!(read(&keeper, &headers, &own).2, own);
        keeper.note_tool("t", false);
        assert_eq!(read(&keeper, &headers, &call(r#"{"session_id":null}"#)).2, call("{}"));
        assert!(read(&keeper, &headers, &call(r#"{"session_id":"42"}"#)).0.starts_with("Wrong"));
    }

    /// R168: `_meta` is read, and only what is ours is taken out.
    #[test]
    fn meta_is_read() {
        let (keeper, mut headers) = (Keeper::memory(), HeaderMap::new());
        let body = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{{"_meta":{meta}}}}}"#
            )
        };
        let (claim, kind, said) =
            read(&keeper, &headers, &body(r#"{"dev.stayput/session":"key:m","x":1}"#));
        assert_eq!((claim.as_str(), kind, said), ("name:m", Kind::Other, body(r#"{"x":1}"#)));
        let hint = body(r#"{"threadId":"c"}"#);
        assert_eq!(read(&keeper, &headers, &hint), ("codex:c".into(), Kind::Other, hint));
        headers.insert(mcp::SESSION_ID, "7".parse().unwrap());
        assert!(read(&keeper, &headers, &body("{}")).0.starts_with("Connection"));
        let modern = body(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#);
        assert_eq!(
            read(&keeper, &headers, &modern).0,
            "Nothing",
            "a modern client has no connection"
        );
        assert_eq!(read(&keeper, &headers, "[1]").2, "[1]");
    }
}
