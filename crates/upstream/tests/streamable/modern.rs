//! Modern era over HTTP, where every request is complete.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_core::Generation;
use stayput_testkit::{Relay, mcp::TestServer};
use stayput_upstream::{
    Answer, CallOptions, EraChoice, Http, Isolation, Link, Options, Profile, Server, Timeouts,
};
use stayput_wire::Era;

use crate::support::{
    LONG, call, close, links, open, place,
    remote::{begin, count, error, hear, listen, once, over, status, until_counted},
    server_with, try_call,
};

fn modern_at(url: &str) -> Server {
    let (era, isolation) = (EraChoice::Modern, Some(Isolation::PerSession));
    server_with(Http::new(url), Options { era, isolation, ..Options::default() })
}

async fn ask(link: &Link, method: &str, params: &Value) -> Answer {
    let params = params.to_string();
    let call = link.call(method, Some(&params), CallOptions::default()).await.unwrap();
    tokio::time::timeout(LONG, call.answer()).await.unwrap().unwrap()
}

async fn header(link: &Link, name: &str) -> String {
    call(link, "header", &json!({ "name": name }).to_string()).await
}

/// R113, invariant 9: headers repeat values of the body, and there is no session.
#[tokio::test]
async fn every_request_is_complete() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern"]).await);
    let link = open(&links, &modern_at(http.url()), &place()).await;
    http.script(&json!([{ "on": "*", "do": { "session": "not-wanted" } }])).await;
    for _ in 0..2 {
        assert_eq!(header(&link, "mcp-protocol-version").await, "2026-07-28");
        assert_eq!(header(&link, "mcp-method").await, "tools/call");
        assert_eq!(header(&link, "mcp-name").await, "header");
        assert_eq!(header(&link, "mcp-session-id").await, "");
    }
    // A value that is invalid in a header is encoded. Otherwise the server would answer −32020.
    for name in ["größe", " spaced ", "=?base64?x?="] {
        let missing = ask(&link, "prompts/get", &json!({ "name": name })).await;
        assert_eq!(missing.code().unwrap().0, -32602, "{name}: {missing:?}");
        let missing = ask(&link, "resources/read", &json!({ "uri": name })).await;
        assert_eq!(missing.code().unwrap().0, -32602, "{name}: {missing:?}");
    }
    assert_eq!((http.counted("initialize").await, http.counted("deletes").await), (0, 0));
    close(&links).await;
}

const REGION: &str = r#"{"region":"Zürich","priority":3}"#;

/// E16: the header by which a balancer routes a session is on its first request, also on the probe of the era, and
/// stays in both eras. It is no session id.
#[tokio::test]
async fn session_has_its_affinity_header_from_the_first_request_on() {
    for era in ["modern", "legacy"] {
        let (links, http) = (links(), TestServer::http(&["--era", era]).await);
        let relay = Relay::to(http.port()).await;
        let transport = Http::new(relay.url("mcp")).header("x-affinity", "${session.hash}");
        let isolation = Some(Isolation::PerSession);
        let server = server_with(transport, Options { isolation, ..Options::default() });
        let (ann, ben) = (place(), place());
        let hash = async |place| {
            let link = open(&links, &server, place).await;
            header(&link, "x-affinity").await
        };
        let (anns, bens) = (hash(&ann).await, hash(&ben).await);
        assert!(anns != bens && anns.len() >= 8, "{era}: {anns} {bens}");
        assert_eq!(hash(&ann).await, anns);
        let said = relay.said();
        let hashes: Vec<_> =
            said.lines().filter_map(|it| it.strip_prefix("x-affinity: ")).collect();
        let requests = said.lines().filter(|line| line.ends_with(" HTTP/1.1")).count();
        assert_eq!(requests, hashes.len(), "{era}: {said}");
        assert!(hashes.iter().all(|it| [&anns, &bens].contains(&&(*it).to_owned())), "{hashes:?}");
        assert!(era == "legacy" || !said.contains("mcp-session-id"), "{said}");
        close(&links).await;
    }
}

/// R142: arguments are repeated in headers as the tools declare, which are listed with the profile. No call lists them
/// again.
#[tokio::test]
async fn arguments_are_repeated_in_headers() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern", "--page", "4"]).await);
    let link = open(&links, &modern_at(http.url()), &place()).await;
    let lists = http.counted("tools/list").await;
    assert_eq!(call(&link, "region", REGION).await, REGION);
    assert_eq!(call(&link, "region", r#"{"region":null}"#).await, r#"{"region":null}"#);
    assert_eq!(http.counted("tools/list").await, lists);
    close(&links).await;
}

/// If the declarations are unknown, the refusal of the server leads to one listing of all pages of tools, and the call
/// is sent once more.
#[tokio::test]
async fn unknown_header_declarations_are_learned_once() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern", "--page", "4"]).await);
    let (server, ann) = (modern_at(http.url()), place());
    let mut bare: Value =
        serde_json::from_str(&links.profile(&server, &ann).await.unwrap().to_text()).unwrap();
    bare["lists"] = json!([]);
    let bare = Profile::from_text(&bare.to_string()).unwrap();
    links.set_profile(&server, &ann, bare).await;
    let link = open(&links, &server, &ann).await;
    let lists = http.counted("tools/list").await;
    for _ in 0..3 {
        assert_eq!(call(&link, "region", REGION).await, REGION);
    }
    assert_eq!(http.counted("tools/list").await - lists, lists);
    assert_eq!(http.counted("tools/region").await, 3);
    close(&links).await;
}

/// A server that refuses every attempt is not asked forever.
#[tokio::test]
async fn repeated_header_mismatch_is_an_answer() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern"]).await);
    let link = open(&links, &modern_at(http.url()), &place()).await;
    let before = http.counted("posts").await;
    http.script(&json!([{ "on": "*", "do": status(400, error(-32020, "HeaderMismatch")) }])).await;
    for method in ["tools/call", "tools/list"] {
        let refused = ask(&link, method, &json!({ "name": "count", "arguments": {} })).await;
        assert_eq!(refused.code().unwrap().0, -32020, "{method}");
    }
    assert!(http.counted("posts").await - before <= 4);
    close(&links).await;
}

/// The client info of the caller stays; the version is that of the link.
#[tokio::test]
async fn capabilities_of_the_caller_are_not_overwritten() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern"]).await);
    let link = open(&links, &modern_at(http.url()), &place()).await;
    let mut params = json!({ "name": "elicit", "arguments": {} });
    assert_eq!(ask(&link, "tools/call", &params).await.code().unwrap().0, -32021);
    params["_meta"] = json!({
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
    });
    let asked = ask(&link, "tools/call", &params).await;
    assert!(asked.result().unwrap().contains("input_required"), "{:?}", asked.error());
    close(&links).await;
}

/// A call is cancelled by closing its stream, without a message.
#[tokio::test]
async fn dropped_call_closes_its_stream() {
    for option in ["--sse", "--json"] {
        let (links, http) = (links(), TestServer::http(&["--era", "modern", option]).await);
        let link = open(&links, &modern_at(http.url()), &place()).await;
        let slow = begin(&link, "slow", r#"{"ms":3600000}"#).await;
        until_counted(&http, "tools/slow", 1).await;
        drop(slow);
        until_counted(&http, "cancels", 1).await;
        assert_eq!(http.counted("notifications/cancelled").await, 0, "{option}");
        close(&links).await;
    }
}

/// E12: an unknown session is a plain error here, because there was no session.
#[tokio::test]
async fn modern_server_has_no_session_to_lose() {
    let (links, http) = (links(), TestServer::http(&["--era", "modern"]).await);
    let (server, ann) = (modern_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    for (code, body) in [
        (404, String::new()),
        (404, error(-32001, "Session not found")),
        (200, error(-32600, "Session terminated")),
    ] {
        http.script(&once("tools/call", &status(code, body))).await;
        match try_call(&link, "count", "{}").await {
            Ok(answer) => assert!(answer.error().is_some()),
            Err(error) => assert!(error.loss().is_none(), "{error:?}"),
        }
        assert_eq!(over(&link), None);
    }
    assert_eq!(count(&link).await, 1);
    drop(link);
    links.close_idle(Duration::ZERO);
    let again = open(&links, &server, &ann).await;
    assert_eq!((again.generation(), again.loss()), (Generation::default(), None));
    close(&links).await;
}

/// Listening to a modern server is a call, which ends with the last listener, however long it was silent.
#[tokio::test]
async fn listener_is_a_call_that_may_be_silent() {
    let http = TestServer::http(&["--era", "modern"]).await;
    let (era, isolation) = (EraChoice::Modern, Some(Isolation::PerSession));
    let mut options = Options { era, isolation, ..Options::default() };
    options.timeouts.idle = Duration::from_millis(100);
    let (links, server) = (links(), server_with(Http::new(http.url()), options));
    let link = open(&links, &server, &place()).await;
    let mut listener = listen(&link).await;
    hear(&mut listener, "notifications/subscriptions/acknowledged").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    call(&link, "notify", "{}").await;
    hear(&mut listener, "notifications/tools/list_changed").await;
    drop(listener);
    until_counted(&http, "cancels", 1).await;
    assert_eq!(http.counted("subscriptions/listen").await, 1);
    close(&links).await;
}

/// Server for modern clients with an hour for each answer to the handshake.
fn patient_at(url: &str) -> Server {
    let hour = Duration::from_secs(3_600);
    let timeouts = Timeouts { probe: hour, open: hour, ..Timeouts::default() };
    server_with(Http::new(url), Options { timeouts, ..Options::default() })
}

/// A URL that does not answer `server/discover` is asked in the legacy era beside that, without a timeout. No session is
/// left there.
#[tokio::test]
async fn silent_url_is_asked_in_both_eras() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    http.script(&json!([{ "on": "server/discover", "do": "hang" }])).await;
    let server = patient_at(http.url());
    let learning = links.profile(server.for_client(Era::Modern), &place()).await;
    assert_eq!(learning.unwrap().era(), Era::Legacy);
    until_counted(&http, "sessions", 0).await;
    close(&links).await;
}

/// A slow URL of both eras counts as modern for modern clients, and no session is left there.
#[tokio::test]
async fn slow_dual_url_is_modern() {
    let (links, http) = (links(), TestServer::http(&[]).await);
    http.script(&json!([{ "on": "server/discover", "do": { "delay": 1_500 } }])).await;
    let server = patient_at(http.url());
    let learning = links.profile(server.for_client(Era::Modern), &place()).await;
    assert_eq!(learning.unwrap().era(), Era::Modern);
    until_counted(&http, "sessions", 0).await;
    close(&links).await;
}
