//! Tests of every name source: new, known, foreign, unknown and expired names, and two that disagree.

use futures_util::future::join_all;
use http::HeaderValue;
use stayput_core::Generation;
use stayput_identify::CustomSource;

use super::*;
use crate::config::Hints;

type NamePlacement = (&'static str, fn(&mut Request, &str));

fn header(request: &mut Request, name: &'static str, value: &str) {
    request.headers.insert(name, HeaderValue::from_str(value).unwrap());
}

/// Sources of explicit names.
const NAMES: [NamePlacement; 4] = [
    ("argument", |it, name| it.params["arguments"]["session_id"] = name.into()),
    ("meta", |it, name| it.params["_meta"]["dev.stayput/session"] = name.into()),
    ("header", |it, name| header(it, "stayput-session", name)),
    ("path", |it, name| it.path = Some(name.to_owned())),
];

/// Sources of conversation ids.
const CONVERSATIONS: [NamePlacement; 8] = [
    ("header:x-chat", |it, id| header(it, "x-chat", id)),
    ("meta:chat", |it, id| it.params["_meta"]["chat"] = id.into()),
    ("openai", |it, id| it.params["_meta"]["openai/session"] = id.into()),
    ("vscode", |it, id| it.params["_meta"]["vscode.conversationId"] = id.into()),
    ("codex", |it, id| it.params["_meta"]["threadId"] = id.into()),
    ("opencode", |it, id| it.params["_meta"]["sessionID"] = id.into()),
    ("goose", |it, id| it.params["_meta"]["agent-session-id"] = id.into()),
    ("otel", |it, id| {
        it.params["_meta"]["baggage"] = format!("gen_ai.conversation.id={id}").into();
    }),
];

fn with(source: &NamePlacement, owner: &Owner, name: &str) -> Request {
    let mut request = Request::call(owner);
    (source.1)(&mut request, name);
    request
}

async fn world() -> Fixture {
    let mut identify = Identify::default();
    let chat = CustomSource::Header(http::HeaderName::from_static("x-chat"));
    identify.name_sources.custom =
        vec![chat, CustomSource::Meta("chat".into()), CustomSource::Claim("chat".into())];
    Fixture::with(identify, Handles::Auto).await
}

/// E30: a handle of another owner causes the same store queries as an unknown one, as often and in the same order, so
/// that the timing reveals nothing either.
#[tokio::test]
async fn foreign_handle_causes_the_same_queries_as_an_unknown_one() {
    let world = world().await;
    let (id, handle) = world.handle(&ann()).await;
    let session = world.app.session(&ann(), id).await.unwrap();
    let name: Handle = handle.parse().unwrap();
    world.app.sessions.put_connection(&session, &name, b"{}").await.unwrap();
    let never = Handle::generate();
    for source in &NAMES {
        let mut asked = Vec::new();
        for name in [&*handle, never.expose()] {
            world.store.asked();
            world.ask(&with(source, &eve(), name)).await.refusal();
            asked.push(world.store.asked());
        }
        assert_eq!(asked[0], asked[1], "{}", source.0);
        assert_eq!(asked[0], ["find_by_handle"], "{}", source.0);
    }
    let mut asked = Vec::new();
    for name in [&name, &never] {
        world.store.asked();
        assert!(world.app.connection(&eve(), name).await.unwrap().is_none());
        asked.push(world.store.asked());
        assert!(!world.app.end_connection(&eve(), name).await.unwrap());
        asked.push(world.store.asked());
    }
    assert_eq!(asked[..2], asked[2..]);
    assert_eq!(asked[0], ["load_connection"]);
}

/// R168, E35: a key creates a session for its owner, finds it again, and reports when its state is lost.
#[tokio::test]
async fn key_is_found_or_created_for_its_owner() {
    let world = world().await;
    let names = NAMES.iter().map(|source| (source, format!("key:{}", source.0)));
    let ids = CONVERSATIONS.iter().map(|source| (source, "7".to_owned()));
    let mut seen = BTreeSet::new();
    for (source, name) in names.chain(ids) {
        let (mine, hers) = (with(source, &ann(), &name), with(source, &eve(), &name));
        let new = world.ask(&mine).await;
        assert_eq!(new.origin(), Origin::New, "{source:?}");
        assert!(seen.insert(new.id()), "{source:?} met another one");
        let known = world.ask(&mine).await;
        assert_eq!((known.id(), known.origin()), (new.id(), Origin::Existing), "{source:?}");
        let foreign = world.ask(&hers).await;
        assert_eq!(foreign.origin(), Origin::New, "{source:?}");
        assert!(seen.insert(foreign.id()), "{source:?}");
        world.pass(31).await;
        let expired = world.ask(&mine).await;
        let lost = Origin::Lost(Generation(1));
        assert_eq!((expired.id() != new.id(), expired.origin()), (true, lost), "{source:?}");
    }
}

/// Invariant 1, E30, E31: a handle leads only its owner to its session; unknown and foreign handles get the same
/// answer.
#[tokio::test]
async fn handle_leads_only_its_owner_to_the_session() {
    let world = world().await;
    for source in &NAMES {
        let (id, handle) = world.handle(&ann()).await;
        let known = world.ask(&with(source, &ann(), &handle)).await;
        assert_eq!((known.id(), known.origin()), (id, Origin::Existing), "{source:?}");
        let foreign = world.ask(&with(source, &eve(), &handle)).await.refusal();
        let never_issued = Handle::generate();
        let unknown = world.ask(&with(source, &eve(), never_issued.expose())).await.refusal();
        assert_eq!(foreign, unknown);
        // A URL that names the session has no session tools.
        let remedy = if source.0 == "path" { "Name another session" } else { "session_start" };
        assert!(foreign.contains("no such session") && foreign.contains(remedy), "{foreign}");
        assert!(!foreign.contains(&handle[..12]), "{foreign}");
        world.pass(31).await;
        let expired = world.ask(&with(source, &ann(), &handle)).await.refusal();
        assert!(expired.contains("expired after 30 min idle"), "{expired}");
        assert!(expired.contains(remedy), "{expired}");
        let foreign = world.ask(&with(source, &eve(), &handle)).await.refusal();
        assert_eq!(foreign, unknown, "only its owner hears that it expired");
    }
}

/// E31: a value that the caller made up does not become a session id.
#[tokio::test]
async fn invalid_name_creates_no_session() {
    let world = world().await;
    for source in &NAMES[1..3] {
        let text = world.ask(&with(source, &ann(), "chat-42")).await.refusal();
        assert!(text.contains("must be a session id") && text.contains("`key:`"), "{text}");
    }
    for source in &NAMES {
        let cut = world.ask(&with(source, &ann(), "sp_abc")).await.refusal();
        assert!(cut.contains("is not whole"), "{cut}");
        let long = format!("key:{}", "x".repeat(129));
        let long = world.ask(&with(source, &ann(), &long)).await.refusal();
        assert!(long.contains("1 to 128 printable bytes"), "{long}");
    }
    assert!(world.app.sessions.held_sessions().is_empty());
    let mut other = with(&NAMES[2], &ann(), "chat-42");
    (other.method, other.params) = ("prompts/get", json!({ "name": "p" }));
    let Answer::Refused(error) = world.ask(&other).await else { panic!() };
    assert_eq!(error["error"]["code"], -32602, "{error}");
}

/// R161: two different names are an error; none of them is guessed.
#[tokio::test]
async fn conflicting_names_are_an_error() {
    let world = world().await;
    let both = [&NAMES[..], &CONVERSATIONS[..2]].concat();
    for (at, one) in both.iter().enumerate() {
        for other in &both[at + 1..] {
            let mut request = with(one, &ann(), "key:a");
            (other.1)(&mut request, "key:b");
            let text = world.ask(&request).await.refusal();
            assert!(text.contains("two different sessions"), "{text}");
            (other.1)(&mut request, "key:a");
            world.ask(&request).await.id();
        }
    }
    for (at, one) in CONVERSATIONS[2..].iter().enumerate() {
        for other in &CONVERSATIONS[2..][at + 1..] {
            let mut request = with(one, &ann(), "a");
            (other.1)(&mut request, "b");
            let text = world.ask(&request).await.refusal();
            assert!(text.contains("two different conversations"), "{text}");
            assert!(text.contains(one.0) && text.contains(other.0), "{text}");
            assert!(text.contains("\"hints\""), "the operator can decide: {text}");
        }
    }
}

/// A handle and a key of the same session do not conflict.
#[tokio::test]
async fn handle_and_key_of_one_session_agree() {
    let world = world().await;
    let keyed = with(&NAMES[3], &ann(), "chat");
    let id = world.ask(&keyed).await.id();
    let session = world.app.sessions.find_by_id(&ann(), id).await.unwrap();
    let handle = world.app.sessions.issue_handle(&session).await.unwrap();
    let mut both = keyed.clone();
    (NAMES[0].1)(&mut both, handle.expose());
    assert_eq!(world.ask(&both).await.id(), id);
    let mut foreign = Request { owner: eve(), ..both };
    assert!(world.ask(&foreign).await.refusal().contains("two different sessions"));
    (NAMES[0].1)(&mut foreign, Handle::generate().expose());
    assert!(world.ask(&foreign).await.refusal().contains("two different sessions"));
}

#[tokio::test]
async fn explicit_name_wins_over_a_hint() {
    let world = world().await;
    let hinted = world.ask(&with(&CONVERSATIONS[3], &ann(), "a")).await.id();
    let mut both = with(&CONVERSATIONS[3], &ann(), "a");
    (NAMES[2].1)(&mut both, "key:mine");
    assert_ne!(world.ask(&both).await.id(), hinted);
}

/// R019, invariant 4: parallel first calls of one conversation use one session.
#[tokio::test]
async fn parallel_first_calls_share_one_session() {
    let world = world().await;
    for source in [&NAMES[2], &CONVERSATIONS[0], &CONVERSATIONS[2], &CONVERSATIONS[7]] {
        let request = with(source, &ann(), "key:many");
        let asked = join_all((0..50).map(|_| world.ask(&request))).await;
        let first = asked[0].id();
        assert!(asked.iter().all(|it| it.id() == first), "{source:?}");
    }
}

/// Each name source can be disabled, and is ignored then.
#[tokio::test]
async fn disabled_name_source_is_ignored() {
    let mut identify = Identify { hints: Hints(Vec::new()), ..Identify::default() };
    identify.name_sources.argument = false;
    identify.name_sources.meta = false;
    identify.name_sources.header = false;
    let world = Fixture::with(identify, Handles::Auto).await;
    for source in NAMES[..3].iter().chain(&CONVERSATIONS) {
        let text = world.ask(&with(source, &ann(), "key:a")).await.refusal();
        assert!(text.contains("nothing says which session"), "{source:?}: {text}");
    }
    // The argument is passed on unchanged.
    let never = Fixture::with(Identify::default(), Handles::Never).await;
    let text = never.ask(&with(&NAMES[0], &ann(), "key:a")).await.refusal();
    assert!(text.contains("nothing says which session") && text.contains("in `_meta`"), "{text}");
}

/// E39: the session name is removed, and every other byte stays as it was written.
#[tokio::test]
async fn session_name_is_removed_from_the_request() {
    let world = world().await;
    let rest = async |params: &str| {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":7, "method":"tools/call","params":{params}}}"#);
        let message = Message::parse(text.as_bytes()).unwrap();
        let request = Request::call(&ann());
        match identify_session(&world.context(&request, &message)).await {
            SessionChoice::Session(_, edit) => edit.map(|rest| {
                let again = Message::parse(rest.text().as_bytes()).unwrap();
                let known = rest.message(&message).unwrap();
                assert_eq!(format!("{known:?}"), format!("{again:?}"));
                let rest = rest.text();
                let (start, end) = (rest.find(r#""params":"#).unwrap() + 9, rest.len() - 1);
                rest[start..end].to_owned()
            }),
            SessionChoice::Answer(answer) => panic!("{:?}", answer.text),
        }
    };
    for (params, left) in [
        (
            r#"{"name":"t","arguments":{"a":1.10,"session_id":"key:a","b":1e400},"x":[ ]}"#,
            Some(r#"{"name":"t","arguments":{"a":1.10,"b":1e400},"x":[ ]}"#),
        ),
        (
            r#"{"name":"t","arguments":{ "session\u005fid" : "key:a" },"_meta":{"progressToken":1}}"#,
            Some(r#"{"name":"t","arguments":{  },"_meta":{"progressToken":1}}"#),
        ),
        (
            r#"{"name":"t","_meta":{"dev.stayput/session":"key:a","x":1.0}}"#,
            Some(r#"{"name":"t","_meta":{"x":1.0}}"#),
        ),
        (r#"{"name":"t","_meta":{"dev.stayput/session":"key:a"}}"#, Some(r#"{"name":"t"}"#)),
        // Empty values that a model filled in.
        (
            r#"{"name":"t","arguments":{"a":1.10,"session_id":""},"_meta":{"threadId":"a"}}"#,
            Some(r#"{"name":"t","arguments":{"a":1.10},"_meta":{"threadId":"a"}}"#),
        ),
        (
            r#"{"name":"t","arguments":{"session_id":null},"_meta":{"threadId":"a"}}"#,
            Some(r#"{"name":"t","arguments":{},"_meta":{"threadId":"a"}}"#),
        ),
        // Values of the tool's own argument: they do not have the form of a name.
        (r#"{"name":"t","arguments":{"session_id":"7"},"_meta":{"threadId":"a"}}"#, None),
        (r#"{"name":"t","arguments":{"session_id":7},"_meta":{"threadId":"a"}}"#, None),
        (
            r#"{"name":"t","arguments":{"stayput_session_id":"key:b"},"_meta":{"threadId":"a"}}"#,
            None,
        ),
    ] {
        assert_eq!(rest(params).await.as_deref(), left, "{params}");
    }
}

/// E39: if a tool has its own `session_id`, that argument always belongs to the tool.
#[tokio::test]
async fn tool_keeps_its_own_session_id_argument() {
    let own = json!({ "type": "object", "properties": { "session_id": { "type": "string" } } });
    let tools = json!([{ "name": "count", "inputSchema": own }]);
    let world = Fixture::with_tools(Identify::default(), Handles::Auto, &tools).await;
    let mut request = Request::call(&ann());
    request.params["arguments"] =
        json!({ "session_id": "key:theirs", "stayput_session_id": "key:ours" });
    let Answer::Session { text: Some(text), .. } = world.ask(&request).await else { panic!() };
    assert!(text.contains("key:theirs") && !text.contains("ours"), "{text}");
    request.params["arguments"] = json!({ "session_id": "key:theirs" });
    let refusal = world.ask(&request).await.refusal();
    assert!(refusal.contains("`\"stayput_session_id\": \"sp_"), "{refusal}");
}

/// R044, R045, R047: a cookie names the session of a client without a connection, if cookies are enabled.
#[tokio::test]
async fn cookie_names_the_session_of_a_client_without_connection() {
    let mut identify = Identify::default();
    identify.name_sources.cookie = true;
    let world = Fixture::with(identify, Handles::Auto).await;
    let mut request = Request::call(&ann());
    let id = world.ask(&request).await.id();
    let session = world.app.sessions.find_by_id(&ann(), id).await.unwrap();
    let line = cookie::set_cookie(&world.app, &request.headers, &session).await.unwrap();
    let line = line.to_str().unwrap().to_owned();
    for flag in ["HttpOnly", "Secure", "SameSite=Strict", "Max-Age=1800", "Path=/"] {
        assert!(line.contains(flag), "{line}");
    }
    let pair = line.split(';').next().unwrap().to_owned();
    header(&mut request, "cookie", &pair);
    assert_eq!(world.ask(&request).await.id(), id, "known");
    let again = cookie::set_cookie(&world.app, &request.headers, &session).await.unwrap();
    assert_eq!(again.to_str().unwrap(), line, "set again as it is");
    drop(session);
    let mut foreign = Request { owner: eve(), ..request.clone() };
    let text = world.ask(&foreign).await.refusal();
    header(&mut foreign, "cookie", "mcp_session_id=sp_nobody");
    assert_eq!(world.ask(&foreign).await.refusal(), text, "unknown and foreign are the same");
    let gone = cookie::line(&world.app, None).unwrap();
    assert!(gone.to_str().unwrap().starts_with("mcp_session_id=;"), "{gone:?}");
    world.pass(31).await;
    let expired = world.ask(&request).await;
    assert_eq!((expired.id(), expired.origin()), (id, Origin::Lost(Generation(1))));
}
