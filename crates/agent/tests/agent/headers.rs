//! Headers by callback, for the hub, an agent and one session; proxy and timeouts of a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::TEST_TIMEOUT;
use serde_json::json;
use stayput::{Error, Headers, Http, Hub, Options, Proxy, Session, Target, Timeouts};
use stayput_testkit::mcp::TestServer;

async fn count_on(session: &Session) -> Result<u64, Error> {
    Ok(session.call("remote", "count", json!({})).await?.text().parse().unwrap())
}

/// R113: new headers are no new server.
#[tokio::test]
async fn headers_are_asked_for_each_request_and_keep_the_session() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let headers = Headers::new(move |request| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!(request.server, "remote");
            Ok(vec![("authorization".to_owned(), format!("Bearer {number}"))])
        }
    });
    let remote = Http::new(server.url());
    let hub = Hub::builder().server("remote", remote.clone()).headers(headers).build().unwrap();
    let session = hub.session("ann").await.unwrap();
    assert_eq!(count_on(&session).await.unwrap(), 1);
    let before = asked.load(Ordering::SeqCst);
    assert_eq!(count_on(&session).await.unwrap(), 2);
    assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    let none = Headers::new(async |request| {
        assert_eq!(request.session_name.as_deref(), Some("ann"));
        Err("Ann is not logged in".to_owned())
    });
    session.set_headers(none).unwrap();
    let refused = count_on(&session).await.unwrap_err();
    assert!(refused.to_string().contains("Ann is not logged in"), "{refused}");
    assert!(!refused.may_have_run());
    session.set_headers(Headers::new(async |_| Ok(Vec::new()))).unwrap();
    assert_eq!(count_on(&session).await.unwrap(), 3, "the session went on");

    let plain = Hub::builder().server("remote", remote).build().unwrap();
    let session = plain.session("ann").await.unwrap();
    let unprepared = session.set_headers(Headers::new(async |_| Ok(Vec::new()))).unwrap_err();
    assert!(unprepared.to_string().contains("built without `headers`"), "{unprepared}");
}

/// R113: lists are requested with the headers of the session that asks, and never taken from another session.
#[tokio::test]
async fn lists_are_requested_with_the_headers_of_their_session() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let headers = Headers::new(async |_| Ok(Vec::new()));
    let remote = Http::new(server.url());
    let hub = Hub::builder().server("remote", remote).headers(headers).build().unwrap();
    let (ann, bob) = (hub.session("ann").await.unwrap(), hub.session("bob").await.unwrap());
    assert!(!ann.tools("remote").await.unwrap().is_empty());
    bob.set_headers(Headers::new(async |_| Err("Bob is not logged in".to_owned()))).unwrap();
    let refused = bob.tools("remote").await.unwrap_err();
    assert!(refused.to_string().contains("Bob is not logged in"), "{refused}");
}

/// R113: headers of a session override those of its agent, and these those of the hub.
#[tokio::test]
async fn headers_of_an_agent_override_those_of_the_hub() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let named = |name: &'static str| {
        Headers::new(async move |_| Ok(vec![("x-who".to_owned(), name.to_owned())]))
    };
    let builder = Hub::builder().server("remote", Http::new(server.url())).headers(named("hub"));
    let hub = builder.build().unwrap();
    let ann = hub.agent("ann").unwrap();
    ann.set_headers(named("ann")).unwrap();
    let who = async |session: &Session| {
        let call = session.call("remote", "header", json!({ "name": "x-who" }));
        call.await.unwrap().text()
    };
    assert_eq!(who(&hub.session("chat").await.unwrap()).await, "hub");
    let chat = ann.session("chat").await.unwrap();
    assert_eq!(who(&chat).await, "ann");
    chat.set_headers(named("chat")).unwrap();
    assert_eq!(who(&chat).await, "chat");
}

/// The test server is the proxy: it gets the requests to a host that does not exist.
#[tokio::test]
async fn requests_go_through_the_proxy_of_their_server() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let remote = Http::new(server.url().replace("127.0.0.1", "remote.invalid"));
    let proxy = Proxy::Url { url: Target::parse(server.url()).unwrap(), except: String::new() };
    let hub = Hub::builder().server("remote", remote.proxy(proxy)).build().unwrap();
    assert_eq!(count_on(&hub.session("chat").await.unwrap()).await.unwrap(), 1);
    let wrong = Error::from(Target::parse("ftp://proxy").unwrap_err());
    assert_eq!(wrong.kind(), "invalid_input", "{wrong}");
}

/// A call ends at the timeout of its server, or at its own.
#[tokio::test]
async fn calls_end_at_the_timeout_of_their_server() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let timeouts = Timeouts { call: Duration::from_millis(200), ..Timeouts::default() };
    let options = Options { timeouts, ..Options::default() };
    let hub = Hub::builder().server_with("remote", Http::new(server.url()), options);
    let chat = hub.build().unwrap().session("chat").await.unwrap();
    let slow = async || chat.call("remote", "slow", json!({ "ms": 3_600_000 })).await;
    let ended = tokio::time::timeout(TEST_TIMEOUT, slow()).await.unwrap().unwrap_err();
    assert_eq!(ended.kind(), "timed_out", "{ended}");
    assert!(ended.may_have_run());
}
