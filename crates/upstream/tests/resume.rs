//! Resumption of HTTP sessions: from memory, from an attachment, and not at all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::json;
use stayput_core::Generation;
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    Delivery, EraChoice, Http, Limits, LinkOpenError, LossReason, Options, Server, ServerProtocol,
    TransportConfig,
};
use support::{
    attachment_sinks::{Shelf, open_kept},
    call, close, links, links_with, open, place,
    remote::{assert_verdict, count, count_once, legacy_at, once, over, unknown_at},
    server_with, try_call, until,
};

/// Server without a configured era or isolation.
fn plain_at(url: &str) -> Server {
    server_with(Http::new(url), Options::default())
}

/// E07, R110–R119, R123: in another process the counter continues, and only the call is sent.
#[tokio::test]
async fn next_process_resumes_with_one_request() {
    for kind in [legacy_at as fn(&str) -> Server, unknown_at, plain_at] {
        let http = TestServer::http(&["--revision", "2025-06-18"]).await;
        let (server, ann, shelf) = (kind(http.url()), place(), Shelf::new());
        let first = links();
        let link = open_kept(&first, &server, &ann, &shelf).await.unwrap();
        assert_eq!(count(&link).await, 1);
        let (initialize_result, asked) =
            (link.initialize_result().clone(), r#"{"name":"mcp-protocol-version"}"#);
        assert_eq!(call(&link, "header", asked).await, "2025-06-18");
        drop(link);
        close(&first).await;
        let before = http.stats().await;

        let second = links();
        let link = open_kept(&second, &server, &ann, &shelf).await.unwrap();
        assert_eq!(http.stats().await, before, "something was sent before it was needed");
        assert_eq!((link.generation(), link.loss()), (Generation::default(), None));
        assert_eq!(link.initialize_result(), &initialize_result);
        assert_eq!(count(&link).await, 2);
        let posts = before["posts"].as_u64().unwrap() + 1;
        assert_eq!(http.counted("posts").await, posts);
        assert_eq!(call(&link, "header", asked).await, "2025-06-18");
        assert_eq!(http.counted("initialize").await, before["initialize"].as_u64().unwrap());
        close(&second).await;
    }
}

/// R118: the attachment is loaded when a link is opened, not on every call.
#[tokio::test]
async fn attachment_is_loaded_once() {
    let http = TestServer::http(&[]).await;
    let (links, server, ann, shelf) = (links(), plain_at(http.url()), place(), Shelf::new());
    for n in 1..=5 {
        let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!(count(&link).await, n);
    }
    assert!(shelf.loads.load(Ordering::SeqCst) <= 2);
    assert_eq!(shelf.saved(), 1);
    close(&links).await;
}

/// E07: a server that refuses a second `initialize` does not get one.
#[tokio::test]
async fn resumption_needs_no_initialize() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let (server, ann, shelf) = (legacy_at(http.url()), place(), Shelf::new());
    for n in 1..=3 {
        let links = links();
        let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!(count(&link).await, n);
        http.script(&json!([{ "on": "initialize", "do": "refuse" }])).await;
        drop(link);
        close(&links).await;
    }
    assert_eq!((http.counted("initialize").await, shelf.saved()), (1, 3));
}

/// E15: a session that may be resumed is not deleted. An ended session is, if configured.
#[tokio::test]
async fn only_the_end_of_a_session_deletes_it_on_the_server() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let (links, ann) = (links(), place());
    let server = legacy_at(http.url());
    let kept = Options { era: EraChoice::Legacy, delete_on_end: false, ..Options::default() };
    let kept = Server::with("kept", Http::new(http.url()), kept).unwrap();
    for server in [&server, &kept] {
        count_once(&links, server, &ann).await;
    }
    assert_eq!(links.close_idle(Duration::ZERO), 2);
    assert_eq!(count_once(&links, &server, &ann).await, 2);
    assert_eq!(http.counted("deletes").await, 0);
    let _ = links.end(ann.session).await;
    assert_eq!((http.counted("deletes").await, http.counted("sessions").await), (1, 1));
    // A session whose link was released before its end is deleted, too.
    let bob = place();
    count_once(&links, &server, &bob).await;
    assert_eq!(links.close_idle(Duration::ZERO), 1);
    let _ = links.end(bob.session).await;
    assert_eq!((http.counted("deletes").await, http.counted("sessions").await), (2, 1));
    count_once(&links, &server, &place()).await;
    close(&links).await;
    drop(links);
    assert_eq!((http.counted("deletes").await, http.counted("sessions").await), (2, 2));
}

/// E15: a server that refuses `DELETE` or hangs in it does not block the end.
#[tokio::test]
async fn delete_at_the_end_has_a_timeout() {
    let http = TestServer::http(&["--era", "legacy", "--quirk", "no-delete"]).await;
    let mut options = Options { era: EraChoice::Legacy, ..Options::default() };
    options.timeouts.close = Duration::from_millis(100);
    let (links, server) = (links(), server_with(Http::new(http.url()), options));
    for deed in [json!("pass"), json!("hang")] {
        let ann = place();
        http.script(&once("DELETE", &deed)).await;
        count_once(&links, &server, &ann).await;
        let end = tokio::time::timeout(Duration::from_secs(4), links.end(ann.session)).await;
        assert!(end.is_ok(), "it waits for the server");
        assert_eq!(links.used().links, 0);
    }
    close(&links).await;
}

/// R123, R132, R133: an evicted link returns without a loss and without `initialize`.
#[tokio::test]
async fn evicted_link_returns_with_its_state() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let links = links_with(Limits { links: 1, ..Limits::default() });
    let (server, ann, bob) = (legacy_at(http.url()), place(), place());
    for n in 1..=3 {
        for who in [&ann, &bob] {
            let link = open(&links, &server, who).await;
            assert_eq!(count(&link).await, n);
            assert_eq!((link.generation(), link.loss()), (Generation::default(), None));
            drop(link);
            assert_eq!(links.used().links, 1);
        }
    }
    assert_eq!(http.counted("initialize").await, 2);
    close(&links).await;
}

/// Invariant 12: a link whose attachment cannot be saved is not used.
#[tokio::test]
async fn link_that_cannot_be_saved_is_not_used() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let (links, server, ann, shelf) = (links(), legacy_at(http.url()), place(), Shelf::new());
    shelf.cannot_save.store(true, Ordering::SeqCst);
    let error = open_kept(&links, &server, &ann, &shelf).await.unwrap_err();
    assert!(matches!(&*error, LinkOpenError::Keep(_)), "{error:?}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    until("its place is free", || links.used().links == 0).await;
    shelf.cannot_save.store(false, Ordering::SeqCst);
    let link = loop {
        match open_kept(&links, &server, &ann, &shelf).await {
            Ok(link) => break link,
            Err(error) => assert!(matches!(&*error, LinkOpenError::BackingOff { .. }), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((count(&link).await, shelf.saved()), (1, 1));
    close(&links).await;
}

/// Invariant 3: an attachment that cannot be loaded could be a session, so no new one is started.
#[tokio::test]
async fn link_without_a_readable_attachment_is_not_opened() {
    let http = TestServer::http(&[]).await;
    for kind in [legacy_at as fn(&str) -> Server, unknown_at, plain_at] {
        let (links, server, shelf) = (links(), kind(http.url()), Shelf::new());
        shelf.cannot_load.store(true, Ordering::SeqCst);
        let error = open_kept(&links, &server, &place(), &shelf).await.unwrap_err();
        assert!(matches!(&*error, LinkOpenError::Keep(_)), "{error:?}");
        assert_eq!(http.counted("posts").await, 0);
        close(&links).await;
    }
}

/// Invariant 8: access to the database alone gives no session.
#[tokio::test]
async fn attachment_does_not_reveal_the_session() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let (links, server, ann, shelf) = (links(), legacy_at(http.url()), place(), Shelf::new());
    let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
    let id = call(&link, "header", r#"{"name":"mcp-session-id"}"#).await;
    let kept = shelf.kept().unwrap();
    assert!(id.len() > 8 && kept.session.as_deref() == Some(&*id));
    assert!(kept.can_resume() && kept.protocol == ServerProtocol::Legacy && !kept.is_stateless());
    for text in [shelf.text(), format!("{kept:?} {link:?} {:?} {links:?}", shelf.kept())] {
        assert!(!text.contains(&id), "{text}");
    }
    close(&links).await;
}

/// E07, invariant 3: if the server forgot a saved session, the first call reports a loss.
#[tokio::test]
async fn saved_session_that_the_server_forgot_is_a_loss() {
    let mut http = TestServer::http(&["--era", "legacy"]).await;
    let (server, ann, shelf) = (legacy_at(http.url()), place(), Shelf::new());
    let first = links();
    let link = open_kept(&first, &server, &ann, &shelf).await.unwrap();
    count(&link).await;
    drop(link);
    close(&first).await;
    http.restart().await;
    let (second, old) = (links(), shelf.kept().unwrap());
    let link = open_kept(&second, &server, &ann, &shelf).await.unwrap();
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert_verdict(&error, Delivery::Refused, "kept");
    let link = open_kept(&second, &server, &ann, &shelf).await.unwrap();
    assert_eq!(count(&link).await, 1);
    let new = shelf.kept().unwrap();
    assert_eq!(new.generation, old.generation.next());
    assert_ne!(new.session, old.session);
    close(&second).await;
}

/// A session belongs to the configuration and the credentials with which it was opened.
#[tokio::test]
async fn changed_configuration_does_not_resume_the_session() {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let (ann, shelf) = (place(), Shelf::new());
    let mut generation = Generation::default();
    for token in ["one", "two"] {
        let links = links();
        let server = support::server(Http::new(http.url()).bearer(token), EraChoice::Legacy);
        let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!((count(&link).await, link.generation()), (1, generation));
        let reason = link.loss().map(|loss| loss.reason());
        assert_eq!(reason, (token == "two").then_some(LossReason::Reconfigured));
        generation = generation.next();
        close(&links).await;
    }
}

/// Without a session on the server there is nothing to lose and nothing to delete.
#[tokio::test]
async fn server_without_sessions_loses_nothing() {
    let http = TestServer::http(&["--era", "legacy", "--stateless"]).await;
    let (links, server, ann) = (links(), legacy_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    count(&link).await;
    http.script(&once("tools/call", &support::remote::status(404, "Session not found"))).await;
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert!(error.loss().is_none(), "{error:?}");
    assert_eq!(over(&link), None);
    drop(link);
    assert_eq!(links.close_idle(Duration::ZERO), 1);
    assert_eq!(open(&links, &server, &ann).await.generation(), Generation::default());
    let _ = links.end(ann.session).await;
    assert_eq!(http.counted("deletes").await, 0);
    close(&links).await;
}

/// A session of the 2024-11-05 transport cannot be resumed: an eviction is a loss, and is reported.
#[tokio::test]
async fn evicted_stream_is_a_loss() {
    let http = TestServer::sse(&["--era", "legacy"]).await;
    let server = server_with(TransportConfig::Sse(Http::new(http.url())), Options::default());
    let (links, ann) = (links(), place());
    count_once(&links, &server, &ann).await;
    assert_eq!(links.close_idle(Duration::ZERO), 1);
    let link = open(&links, &server, &ann).await;
    assert_eq!(link.generation(), Generation::default().next());
    assert_eq!(link.loss().unwrap().reason(), LossReason::Evicted);
    assert_eq!(count(&link).await, 1);
    close(&links).await;
}
