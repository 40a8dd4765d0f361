//! Stream of messages that a legacy server sends outside any call.

use std::time::Duration;

use serde_json::json;
use stayput_testkit::{
    Relay,
    mcp::{TestServer, send},
};
use stayput_upstream::{
    Call, CallOptions, ClientCapabilities, ClientInfo, Incoming, Link, LinkOpenOptions, Links,
    Listener, LossReason, PooledLink, Server,
};

use crate::support::{
    LONG, call, close, links, open, params, place,
    remote::{all_of, count, hear, legacy_at, listen, once, over, status, until_counted},
    until,
};

const CHANGED: &str = "notifications/tools/list_changed";

/// R120, §8: the stream is open exactly while there is a listener.
#[tokio::test]
async fn stream_is_open_only_while_there_is_a_listener() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let relay = Relay::to(http.port()).await;
    let link = open(&links, &legacy_at(&relay.url("mcp")), &place()).await;
    count(&link).await;
    assert_eq!((http.counted("gets").await, relay.open()), (0, 1));
    let (mut one, mut two) = (listen(&link).await, listen(&link).await);
    until_counted(&http, "gets", 1).await;
    call(&link, "notify", "{}").await;
    for listener in [&mut one, &mut two] {
        hear(listener, CHANGED).await;
    }
    drop(one);
    call(&link, "notify", "{}").await;
    hear(&mut two, CHANGED).await;
    assert_eq!((http.counted("gets").await, relay.open()), (1, 2));
    drop(two);
    until("the stream is closed", || relay.open() == 1).await;
    assert_eq!(http.counted("gets").await, 1);
    close(&links).await;
}

/// A listener that leaves while another comes does not close the stream.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_listeners_all_get_messages() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = std::sync::Arc::new(open(&links, &legacy_at(http.url()), &place()).await);
    for _ in 0..20 {
        let old = listen(&link).await;
        let other = link.clone();
        let coming = tokio::runtime::Handle::current().spawn(async move { listen(&other).await });
        drop(old);
        let mut new = coming.await.unwrap();
        let told = async {
            loop {
                call(&link, "notify", "{}").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            _ = hear(&mut new, CHANGED) => {}
            () = told => {}
        }
    }
    close(&links).await;
}

/// Makes the server send a notification to the listeners of this session.
async fn tell_directly(http: &TestServer, session: &str) {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "notify" },
    });
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session),
    ];
    let answer = send(http::Method::POST, http.url(), &headers, call.to_string()).await.unwrap();
    assert_eq!(answer.status, 200);
    answer.bytes().await.unwrap();
}

/// R120: after a cut no message is missing, and none comes twice.
#[tokio::test]
async fn cut_stream_is_resumed_after_the_last_event() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let relay = Relay::to(http.port()).await;
    let link = open(&links, &legacy_at(&relay.url("mcp")), &place()).await;
    let mut listener = listen(&link).await;
    until_counted(&http, "gets", 1).await;
    call(&link, "notify", "{}").await;
    hear(&mut listener, CHANGED).await;
    let session = call(&link, "header", r#"{"name":"mcp-session-id"}"#).await;
    // The server believes that this was received.
    relay.cut_after(0);
    for _ in 0..3 {
        tell_directly(&http, &session).await;
    }
    for _ in 0..3 {
        hear(&mut listener, CHANGED).await;
    }
    // A duplicate would come before this.
    tell_directly(&http, &session).await;
    hear(&mut listener, CHANGED).await;
    assert_eq!(link.lists_changed(), 5);
    assert_eq!((over(&link), http.counted("initialize").await), (None, 1));
    close(&links).await;
}

/// A server without such a stream is asked for it once.
#[tokio::test]
async fn server_without_a_stream_is_asked_once() {
    let (links, http) =
        (links(), TestServer::http(&["--era", "legacy", "--quirk", "no-get"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let listener = listen(&link).await;
    until_counted(&http, "gets", 1).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!((http.counted("gets").await, count(&link).await), (1, 1));
    assert_eq!(over(&link), None);
    drop(listener);
    close(&links).await;
}

/// E11: the stream can report an unknown session, too, and listeners get the loss.
#[tokio::test]
async fn unknown_session_on_the_stream_is_a_loss() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&once("GET", &status(404, ""))).await;
    let mut listener = listen(&link).await;
    let loss = tokio::time::timeout(LONG, link.over()).await.unwrap();
    assert_eq!(loss.reason(), LossReason::SessionUnknown);
    let end = tokio::time::timeout(LONG, listener.next()).await.unwrap();
    let Some(Incoming::Answer(Err(error))) = end else { panic!("{end:?}") };
    assert_eq!(error.loss().unwrap().reason(), LossReason::SessionUnknown);
    close(&links).await;
}

/// A server that still counts the previous stream, or is busy, is asked again later.
#[tokio::test]
async fn stream_that_is_refused_for_now_is_requested_again() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&json!([
        { "on": "GET", "nth": 1, "do": { "status": { "code": 409 } } },
        { "on": "GET", "nth": 2, "do": { "status": { "code": 429 } } },
    ]))
    .await;
    let mut listener = listen(&link).await;
    until_counted(&http, "gets", 3).await;
    call(&link, "notify", "{}").await;
    hear(&mut listener, CHANGED).await;
    close(&links).await;
}

async fn open_asked(links: &Links, server: &Server) -> PooledLink {
    let client_info =
        ClientInfo::new(r#"{"name":"t","version":"1"}"#, r#"{"elicitation":{}}"#).unwrap();
    let asking = LinkOpenOptions { client_info, ..LinkOpenOptions::default() };
    links.open(server, &place(), &asking).await.unwrap()
}

const ABLE: ClientCapabilities =
    ClientCapabilities { roots: false, sampling: false, elicitation: true };

async fn elicit(link: &Link, capabilities: ClientCapabilities) -> Call {
    let options = CallOptions { capabilities, ..CallOptions::default() };
    link.call("tools/call", Some(&params("elicit", "{}")), options).await.unwrap()
}

/// Answers the next server request with `who`.
async fn reply(next: impl Future<Output = Option<Incoming>>, who: &str) {
    let Some(Incoming::Request(asked)) = tokio::time::timeout(LONG, next).await.unwrap() else {
        panic!("{who} is not asked")
    };
    assert_eq!(asked.method(), "elicitation/create");
    asked.reply(&json!({ "action": "accept", "content": { "name": who } }).to_string());
}

async fn able_listener(link: &Link) -> Listener {
    link.listen("{}", ABLE).await.unwrap()
}

/// E32: a server request on the stream of a call goes to that call. One outside of all calls goes to the call that can
/// answer it, or else to a listener.
#[tokio::test]
async fn server_request_reaches_its_receiver() {
    let links = links();
    // On the stream of the call itself.
    let http = TestServer::http(&["--era", "legacy", "--sse"]).await;
    let link = open_asked(&links, &legacy_at(http.url())).await;
    let mut listener = able_listener(&link).await;
    let mut asking = elicit(&link, ABLE).await;
    reply(asking.next(), "the call").await;
    assert!(all_of(asking).await.1.unwrap().contains("the call"));
    drop(listener);
    // On the stream of the link.
    let http = TestServer::http(&["--era", "legacy", "--json"]).await;
    let link = open_asked(&links, &legacy_at(http.url())).await;
    listener = able_listener(&link).await;
    until_counted(&http, "gets", 1).await;
    let mut asking = elicit(&link, ABLE).await;
    reply(asking.next(), "the call").await;
    assert!(all_of(asking).await.1.unwrap().contains("the call"));
    let asking = elicit(&link, ClientCapabilities::default()).await;
    reply(listener.next(), "the listener").await;
    assert!(all_of(asking).await.1.unwrap().contains("the listener"));
    drop(listener);
    close(&links).await;
}
