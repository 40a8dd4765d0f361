//! Headers by callback, for the hub and for one session.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use stayput::{Error, Headers, Http, Hub, Session};
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
