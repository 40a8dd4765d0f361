//! Every carrier: new, known, foreign, unknown, expired, and two that disagree.

use futures_util::future::join_all;
use http::HeaderValue;
use stayput_core::Generation;

use super::*;
use crate::config::{CustomSource, Hints};

type Carrier = (&'static str, fn(&mut Request, &str));

fn header(request: &mut Request, name: &'static str, value: &str) {
    request.headers.insert(name, HeaderValue::from_str(value).unwrap());
}

/// The carriers of explicit names.
const NAMES: [Carrier; 4] = [
    ("argument", |it, name| it.params["arguments"]["session_id"] = name.into()),
    ("meta", |it, name| it.params["_meta"]["dev.stayput/session"] = name.into()),
    ("header", |it, name| header(it, "stayput-session", name)),
    ("path", |it, name| it.path = Some(name.to_owned())),
];

/// The carriers of conversation ids.
const CONVERSATIONS: [Carrier; 8] = [
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

fn with(carrier: &Carrier, owner: &Owner, name: &str) -> Request {
    let mut request = Request::call(owner);
    (carrier.1)(&mut request, name);
    request
}

async fn world() -> World {
    let mut identify = Identify::default();
    let chat = CustomSource::Header(http::HeaderName::from_static("x-chat"));
    identify.carriers.also =
        vec![chat, CustomSource::Meta("chat".into()), CustomSource::RequestContext("chat".into())];
    World::with(identify, Handles::Auto).await
}

/// E30: what is Ann's is looked for as what never was: the store is asked for the same, as often and in the same order, so
/// that time tells nothing either.
#[tokio::test]
async fn foreign_is_looked_for_as_unknown_is() {
    let world = world().await;
    let (id, handle) = world.handle(&ann()).await;
    let session = world.app.session(&ann(), id).await.unwrap();
    let name: Handle = handle.parse().unwrap();
    world.app.sessions.connect(&session, &name, b"{}").await.unwrap();
    let never = Handle::generate();
    for carrier in &NAMES {
        let mut asked = Vec::new();
        for name in [&*handle, never.expose()] {
            world.store.asked();
            world.ask(&with(carrier, &eve(), name)).await.refusal();
            asked.push(world.store.asked());
        }
        assert_eq!(asked[0], asked[1], "{}", carrier.0);
        assert_eq!(asked[0], ["find_handle"], "{}", carrier.0);
    }
    let mut asked = Vec::new();
    for name in [&name, &never] {
        world.store.asked();
        assert!(world.app.connection(&eve(), name).await.unwrap().is_none());
        asked.push(world.store.asked());
        assert!(!world.app.disconnect(&eve(), name).await.unwrap());
        asked.push(world.store.asked());
    }
    assert_eq!(asked[..2], asked[2..]);
    assert_eq!(asked[0], ["connection"]);
}

/// R168, E35: a key makes a session of its owner, finds it again, and says when its state is gone.
#[tokio::test]
async fn a_key_is_found_or_made_for_its_owner() {
    let world = world().await;
    let names = NAMES.iter().map(|carrier| (carrier, format!("key:{}", carrier.0)));
    let ids = CONVERSATIONS.iter().map(|carrier| (carrier, "7".to_owned()));
    let mut seen = BTreeSet::new();
    for (carrier, name) in names.chain(ids) {
        let (mine, hers) = (with(carrier, &ann(), &name), with(carrier, &eve(), &name));
        let new = world.ask(&mine).await;
        assert_eq!(new.origin(), Origin::New, "{carrier:?}");
        assert!(seen.insert(new.id()), "{carrier:?} met another one");
        let known = world.ask(&mine).await;
        assert_eq!((known.id(), known.origin()), (new.id(), Origin::Existing), "{carrier:?}");
        let foreign = world.ask(&hers).await;
        assert_eq!(foreign.origin(), Origin::New, "{carrier:?}");
        assert!(seen.insert(foreign.id()), "{carrier:?}");
        world.pass(31).await;
        let expired = world.ask(&mine).await;
        let lost = Origin::Lost(Generation(1));
        assert_eq!((expired.id() != new.id(), expired.origin()), (true, lost), "{carrier:?}");
    }
}

/// Invariant 1, E30, E31: a handle leads its owner to its session; unknown and foreign are answered alike.
#[tokio::test]
async fn a_handle_leads_its_owner_and_nobody_else() {
    let world = world().await;
    for carrier in &NAMES {
        let (id, handle) = world.handle(&ann()).await;
        let known = world.ask(&with(carrier, &ann(), &handle)).await;
        assert_eq!((known.id(), known.origin()), (id, Origin::Existing), "{carrier:?}");
        let foreign = world.ask(&with(carrier, &eve(), &handle)).await.refusal();
        let nobodys = Handle::generate();
        let unknown = world.ask(&with(carrier, &eve(), nobodys.expose())).await.refusal();
        assert_eq!(foreign, unknown);
        assert!(foreign.contains("no such session") && foreign.contains("session_start"));
        assert!(!foreign.contains(&handle[..12]), "{foreign}");
        world.pass(31).await;
        let expired = world.ask(&with(carrier, &ann(), &handle)).await.refusal();
        assert!(expired.contains("expired after 30 min idle"), "{expired}");
        assert!(expired.contains("session_start"), "{expired}");
        let foreign = world.ask(&with(carrier, &eve(), &handle)).await.refusal();
        assert_eq!(foreign, unknown, "only its owner hears that it expired");
    }
}

/// E31: nothing is taken over from the caller as it is.
#[tokio::test]
async fn what_is_no_name_makes_no_session() {
    let world = world().await;
    for carrier in &NAMES[1..3] {
        let told = world.ask(&with(carrier, &ann(), "chat-42")).await.refusal();
        assert!(told.contains("must be a session id") && told.contains("`key:`"), "{told}");
    }
    for carrier in &NAMES {
        let cut = world.ask(&with(carrier, &ann(), "sp_abc")).await.refusal();
        assert!(cut.contains("is not whole"), "{cut}");
        let long = format!("key:{}", "x".repeat(129));
        let long = world.ask(&with(carrier, &ann(), &long)).await.refusal();
        assert!(long.contains("1 to 128 printable bytes"), "{long}");
    }
    assert!(world.app.sessions.held_sessions().is_empty());
    let mut other = with(&NAMES[2], &ann(), "chat-42");
    (other.method, other.params) = ("prompts/get", json!({ "name": "p" }));
    let Answer::Refused(error) = world.ask(&other).await else { panic!() };
    assert_eq!(error["error"]["code"], -32602, "{error}");
}

/// R161: never a guess.
#[tokio::test]
async fn two_names_that_disagree_are_an_error() {
    let world = world().await;
    let both = [&NAMES[..], &CONVERSATIONS[..2]].concat();
    for (at, one) in both.iter().enumerate() {
        for other in &both[at + 1..] {
            let mut request = with(one, &ann(), "key:a");
            (other.1)(&mut request, "key:b");
            let told = world.ask(&request).await.refusal();
            assert!(told.contains("two different sessions"), "{told}");
            (other.1)(&mut request, "key:a");
            world.ask(&request).await.id();
        }
    }
    for (at, one) in CONVERSATIONS[2..].iter().enumerate() {
        for other in &CONVERSATIONS[2..][at + 1..] {
            let mut request = with(one, &ann(), "a");
            (other.1)(&mut request, "b");
            let told = world.ask(&request).await.refusal();
            assert!(told.contains("two different conversations"), "{told}");
            assert!(told.contains(one.0) && told.contains(other.0), "{told}");
        }
    }
}

/// A handle and a key of one session are no contradiction.
#[tokio::test]
async fn two_names_of_one_session_agree() {
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
async fn a_name_goes_before_a_hint() {
    let world = world().await;
    let hinted = world.ask(&with(&CONVERSATIONS[3], &ann(), "a")).await.id();
    let mut both = with(&CONVERSATIONS[3], &ann(), "a");
    (NAMES[2].1)(&mut both, "key:mine");
    assert_ne!(world.ask(&both).await.id(), hinted);
}

/// R019, invariant 4: parallel first calls of one conversation meet in one session.
#[tokio::test]
async fn parallel_first_calls_of_a_conversation_are_one_session() {
    let world = world().await;
    for carrier in [&NAMES[2], &CONVERSATIONS[0], &CONVERSATIONS[2], &CONVERSATIONS[7]] {
        let request = with(carrier, &ann(), "key:many");
        let asked = join_all((0..50).map(|_| world.ask(&request))).await;
        let first = asked[0].id();
        assert!(asked.iter().all(|it| it.id() == first), "{carrier:?}");
    }
}

/// Each carrier can be switched off, and then says nothing.
#[tokio::test]
async fn a_carrier_that_is_off_is_not_looked_at() {
    let mut identify = Identify { hints: Hints(Vec::new()), ..Identify::default() };
    identify.carriers.argument = false;
    identify.carriers.meta = false;
    identify.carriers.header = false;
    let world = World::with(identify, Handles::Auto).await;
    for carrier in NAMES[..3].iter().chain(&CONVERSATIONS) {
        let told = world.ask(&with(carrier, &ann(), "key:a")).await.refusal();
        assert!(told.contains("nothing says which session"), "{carrier:?}: {told}");
    }
    // As what it is passed on.
    let never = World::with(Identify::default(), Handles::Never).await;
    let told = never.ask(&with(&NAMES[0], &ann(), "key:a")).await.refusal();
    assert!(told.contains("nothing says which session") && told.contains("in `_meta`"), "{told}");
}

/// E39: what named the session goes, and every other byte stays as it was written.
#[tokio::test]
async fn what_only_named_the_session_is_taken_out() {
    let world = world().await;
    let rest = async |params: &str| {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":7, "method":"tools/call","params":{params}}}"#);
        let message = Message::parse(text.as_bytes()).unwrap();
        let request = Request::call(&ann());
        match which(&world.app, world.claim(&request, &message)).await {
            SessionChoice::Session { text: rest, .. } => rest.map(|rest| {
                let again = Message::parse(rest.text().as_bytes()).unwrap();
                let known = rest.message(&message).unwrap();
                assert_eq!(format!("{known:?}"), format!("{again:?}"));
                let rest = rest.text();
                let (start, end) = (rest.find(r#""params":"#).unwrap() + 9, rest.len() - 1);
                rest[start..end].to_owned()
            }),
            SessionChoice::Answer(answer) => panic!("{answer}"),
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
        // What a model had nothing for.
        (
            r#"{"name":"t","arguments":{"a":1.10,"session_id":""},"_meta":{"threadId":"a"}}"#,
            Some(r#"{"name":"t","arguments":{"a":1.10},"_meta":{"threadId":"a"}}"#),
        ),
        (
            r#"{"name":"t","arguments":{"session_id":null},"_meta":{"threadId":"a"}}"#,
            Some(r#"{"name":"t","arguments":{},"_meta":{"threadId":"a"}}"#),
        ),
        // The tool's own: not of the form of a name.
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

/// E39: where a tool has its own `session_id`, that one is never ours, whatever it says.
#[tokio::test]
async fn a_tool_with_its_own_argument_keeps_it() {
    let own = json!({ "type": "object", "properties": { "session_id": { "type": "string" } } });
    let tools = json!([{ "name": "count", "inputSchema": own }]);
    let world = World::of(Identify::default(), Handles::Auto, &tools).await;
    let mut request = Request::call(&ann());
    request.params["arguments"] =
        json!({ "session_id": "key:theirs", "stayput_session_id": "key:ours" });
    let Answer::Session { text: Some(text), .. } = world.ask(&request).await else { panic!() };
    assert!(text.contains("key:theirs") && !text.contains("ours"), "{text}");
    request.params["arguments"] = json!({ "session_id": "key:theirs" });
    let told = world.ask(&request).await.refusal();
    assert!(told.contains("`\"stayput_session_id\": \"sp_"), "{told}");
}

/// R044, R045, R047: a cookie names the session of a client without a connection, where that is on.
#[tokio::test]
async fn a_cookie_names_a_session_that_no_model_sees() {
    let mut identify = Identify::default();
    identify.carriers.cookie = true;
    let world = World::with(identify, Handles::Auto).await;
    let mut request = Request::call(&ann());
    let id = world.ask(&request).await.id();
    let session = world.app.sessions.find_by_id(&ann(), id).await.unwrap();
    let line = cookie::given(&world.app, &request.headers, Some(&session)).await.unwrap();
    let line = line.to_str().unwrap().to_owned();
    for flag in ["HttpOnly", "Secure", "SameSite=Strict", "Max-Age=1800", "Path=/"] {
        assert!(line.contains(flag), "{line}");
    }
    let pair = line.split(';').next().unwrap().to_owned();
    header(&mut request, "cookie", &pair);
    assert_eq!(world.ask(&request).await.id(), id, "known");
    let again = cookie::given(&world.app, &request.headers, Some(&session)).await.unwrap();
    assert_eq!(again.to_str().unwrap(), line, "set again as it is");
    drop(session);
    let mut foreign = Request { owner: eve(), ..request.clone() };
    let told = world.ask(&foreign).await.refusal();
    header(&mut foreign, "cookie", "mcp_session_id=sp_nobody");
    assert_eq!(world.ask(&foreign).await.refusal(), told, "unknown and foreign are the same");
    let gone = cookie::given(&world.app, &foreign.headers, None).await.unwrap();
    assert!(gone.to_str().unwrap().starts_with("mcp_session_id=;"), "{gone:?}");
    world.pass(31).await;
    let expired = world.ask(&request).await;
    assert_eq!((expired.id(), expired.origin()), (id, Origin::Lost(Generation(1))));
}
