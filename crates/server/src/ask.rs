//! What a request says, in bytes as over HTTP and in types as over other transports.

mod telling;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use rmcp::model::{ClientRequest, GetMeta as _, JsonObject};
use serde_json::Value;
use stayput_core::Owner;
use stayput_wire::{Era, Message, Raw, meta};

use crate::{
    Keeper,
    carrier::{Claim, Members, Said, connection_name, tells},
    head::Head,
    line::Line,
    name::Name,
    visit::Meant,
};

/// How the argument is called that names a session.
pub(crate) const ARGUMENT: &str = "session_id";

/// How it is called in a tool that has one of that name for itself.
pub(crate) const OWN_ARGUMENT: &str = "stayput_session_id";

/// What kind of request it is, as far as that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call of a tool.
    Tool,
    /// One that can want state: a prompt, a resource, completion; or no JSON-RPC at all.
    Other,
    /// The first of a client that shakes hands.
    Initialize,
    /// Asks which tools there are.
    Tools,
    /// One that keeps nothing: other lists, pings, notifications. Or one of which nobody asks.
    Nothing,
}

impl Kind {
    fn of(method: Option<&str>) -> Self {
        match method {
            Some("tools/call") => Self::Tool,
            Some("prompts/get" | "resources/read" | "completion/complete") => Self::Other,
            Some("initialize") => Self::Initialize,
            Some("tools/list") => Self::Tools,
            _ => Self::Nothing,
        }
    }
}

/// What a request means whose body says nothing.
pub(crate) fn plain(keeper: &Keeper, owner: &Owner, head: &Head<'_>, kind: Kind) -> Meant {
    if head.named {
        return meant(keeper, owner, head, (Said::default(), kind, head.modern));
    }
    let mut meant = came(keeper, owner, head, (kind, head.modern));
    meant.claim = Claim::quiet(keeper.carriers(), head, meant.via.as_ref());
    meant
}

/// What a request with one means, and its body without what only named the session, if that was in it. What is
/// no message is passed on as it is: who serves it knows what to say.
pub(crate) fn read(
    keeper: &Keeper,
    owner: &Owner,
    head: &Head<'_>,
    body: &[u8],
) -> (Meant, Option<Bytes>) {
    let modern = head.modern;
    let tells = telling::can_tell(body, modern);
    if modern
        && !tells
        && let Some(method) = head.method
    {
        // What a modern client says in its header is what stands in its body, or who serves it refuses it.
        return (plain(keeper, owner, head, Kind::of(Some(method))), None);
    }
    if !tells && !modern {
        // Where the connection is what counts, nobody asks what kind of request it is. A handshake tells its
        // version, and does not come here.
        let meant = plain(keeper, owner, head, Kind::Nothing);
        if matches!(meant.claim, Claim::Connection(_)) {
            return (meant, None);
        }
    }
    let Ok(message) = Message::parse_within(body, keeper.body_limit()) else {
        return (plain(keeper, owner, head, Kind::Nothing), None);
    };
    let kind = Kind::of(message.method());
    if !tells {
        return (plain(keeper, owner, head, kind), None);
    }
    let params = Params::of(&message);
    let mut said = Said::default();
    let taken = params.arguments.filter(|_| kind == Kind::Tool).map(|arguments| {
        let tool = params.name.and_then(Raw::text).unwrap_or_default();
        (arguments, ours(arguments, keeper.has_own(&tool), &mut said))
    });
    let taken = taken.filter(|(_, names)| !names.is_empty());
    let (told, version) = params.meta.map(members).unwrap_or_default();
    said.meta = told;
    let named = params.meta.filter(|_| said.meta.iter().any(|(key, _)| key == meta::SESSION));
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
    (meant(keeper, owner, head, (said, kind, modern)), edited.flatten())
}

/// The parameters that matter, found in one walk. Of two with one name the last counts.
#[derive(Default)]
struct Params<'a> {
    name: Option<Raw<'a>>,
    arguments: Option<Raw<'a>>,
    meta: Option<Raw<'a>>,
}

impl<'a> Params<'a> {
    fn of(message: &Message<'a>) -> Self {
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
fn meant<'a>(
    keeper: &Keeper,
    owner: &Owner,
    head: &'a Head<'a>,
    (mut said, kind, modern): (Said<'a>, Kind, bool),
) -> Meant {
    let mut meant = came(keeper, owner, head, (kind, modern));
    (said.via, said.head) = (meant.via.take(), Some(head));
    meant.claim = Claim::read(keeper.carriers(), &said);
    Meant { via: said.via, ..meant }
}

/// Which way a request came. A connection that was there a moment ago is known by its id.
fn came(keeper: &Keeper, owner: &Owner, head: &Head<'_>, (kind, modern): (Kind, bool)) -> Meant {
    let (client, mut trusted) = (head.connection(modern), false);
    let via = client.map(|id| {
        let known = keeper.shared().trusted(owner, id.as_bytes());
        trusted = known.is_some();
        Claim::Connection(known.unwrap_or_else(|| connection_name(owner, id.as_bytes())))
    });
    // Whoever does not trust it has to know it, and so has the log of events.
    let client = client.filter(|_| !trusted || keeper.is_resumable()).cloned();
    Meant { claim: Claim::Nothing, via, kind, client, trusted }
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

/// The texts of `_meta` that can tell something, and the version of the protocol in it.
fn members(found: Raw<'_>) -> (Members<'_>, Option<Cow<'_, str>>) {
    let (mut told, mut version) = (Vec::new(), None);
    for (key, value) in found.members() {
        match key.text() {
            Some(key) if key == meta::PROTOCOL_VERSION => version = value.text(),
            Some(key) if tells(&key) => told.extend(value.text().map(|value| (key, value))),
            _ => {}
        }
    }
    (told, version)
}

/// A typed request on a line: takes out what names the session, and says what it means.
pub(crate) fn typed(keeper: &Keeper, line: &Arc<Line>, request: &mut ClientRequest) -> Meant {
    let mut said = Said { via: Some(Claim::Line(line.clone())), ..Said::default() };
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
    let claim = Claim::read(keeper.carriers(), &said);
    Meant {
        claim,
        via: said.via,
        kind: Kind::of(Some(request.method())),
        client: None,
        trusted: false,
    }
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
    use http::HeaderMap;
    use stayput_wire::header as mcp;

    use super::*;

    fn read(keeper: &Keeper, headers: &HeaderMap, body: &str) -> (String, Kind, String) {
        let head = Head::read(headers);
        let (meant, edited) = super::read(keeper, &Owner::anonymous(), &head, body.as_bytes());
        let claim = match meant.claim {
            Claim::Key(key) => key.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        let body = edited.map_or(body.to_owned(), |it| String::from_utf8(it.to_vec()).unwrap());
        (claim, meant.kind, body)
    }

    fn call(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1, "method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        )
    }

    /// No name is overlooked, however it is written.
    #[test]
    fn an_escaped_name_is_noticed() {
        let (keeper, headers) = (Keeper::memory(), HeaderMap::new());
        let escaped = call(r#"{"se\u0073sion_id":"key:x"}"#);
        assert_eq!(read(&keeper, &headers, &escaped).0, "name:x");
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
