//! Loss of an HTTP session, and errors that only look like one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{sync::atomic::AtomicUsize, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use stayput_core::Generation;
use stayput_testkit::{Relay, mcp::TestServer};
use stayput_upstream::{CallError, Delivery, LinkOpenError, LossReason};
use support::{
    call, close, links, open, place,
    remote::{
        assert_verdict, begin, count, end, error, legacy_at, once, over, status, unknown_at,
        until_counted,
    },
    try_call, try_open,
};

/// Answers of servers to an unknown session.
fn faces() -> Vec<(u16, String)> {
    vec![
        (404, String::new()),
        (404, error(-32001, "Session not found")),
        (404, error(32600, "Session terminated")),
        (400, error(-32000, "Bad Request: No valid session ID provided")),
        (400, error(-32000, "Bad Request: Server not initialized")),
        (401, "Invalid session".to_owned()),
        (410, "Gone".to_owned()),
        (500, error(-32603, "Session expired")),
        (503, "unknown session".to_owned()),
        (200, error(-32001, "Session not found")),
        (200, error(-32603, "session_not_found")),
        (200, error(-32600, "Session terminated")),
        (200, error(32600, "Session terminated")),
    ]
}

/// E10, E11, R124, R126, R127, R140, R141: each such answer costs one failed call and two requests, on the existing
/// connection.
#[tokio::test]
async fn every_form_of_an_unknown_session_is_a_loss() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let server = legacy_at(http.url());
    for (code, body) in faces() {
        let (what, ann) = (format!("{code} {body}"), place());
        let link = open(&links, &server, &ann).await;
        assert_eq!(count(&link).await, 1, "{what}");
        http.script(&once("tools/call", &status(code, body))).await;
        let before = http.stats().await;
        let error = try_call(&link, "count", "{}").await.unwrap_err();
        assert_verdict(&error, Delivery::Refused, &what);
        assert_eq!(over(&link), Some(LossReason::SessionUnknown), "{what}");
        let late = try_call(&link, "count", "{}").await.unwrap_err();
        assert_verdict(&late, Delivery::NotSent, &what);
        let next = open(&links, &server, &ann).await;
        assert_eq!(next.generation(), link.generation().next(), "{what}");
        assert_eq!(next.loss().unwrap().reason(), LossReason::SessionUnknown, "{what}");
        let after = http.stats().await;
        let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
        assert_eq!((grown("posts"), grown("initialize"), grown("initialized")), (3, 1, 1));
        assert_eq!(count(&next).await, 1, "{what}: nothing of the old state is there");
    }
    // A connection whose answer has another id than the request is closed: all the messages with status 200.
    let closed = faces().iter().filter(|(code, _)| *code == 200).count() as u64;
    assert_eq!(http.counted("connections").await, 1 + closed);
    assert_eq!(http.counted("deletes").await, 0);
    close(&links).await;
}

/// Answers that are no loss, and their certainty of delivery.
fn look_alikes() -> Vec<(u16, String, Option<Delivery>)> {
    let (refused, unknown) = (Some(Delivery::Refused), Some(Delivery::Unknown));
    vec![
        (401, String::new(), refused),
        (403, "not for you".to_owned(), refused),
        (409, "Conflict: a session has one stream".to_owned(), refused),
        (429, "slow down".to_owned(), refused),
        (500, "Internal Server Error".to_owned(), unknown),
        (502, String::new(), unknown),
        (503, "no healthy upstream".to_owned(), unknown),
        (200, error(-32602, "session not found"), None),
        (400, error(-32602, "unknown session"), None),
        (400, error(-32000, "Connection closed"), None),
        (404, error(-32601, "Method not found"), None),
        (200, error(-32603, "the browser is not initialized"), None),
        (200, error(-32603, "Language server not initialized"), None),
        (500, error(-32603, "database not initialized"), None),
    ]
}

/// E08, E09, E10, E19: such an answer leaves the link alive and the state unchanged.
#[tokio::test]
async fn error_that_looks_like_a_loss_keeps_the_session() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for (n, (code, body, delivery)) in look_alikes().into_iter().enumerate() {
        let what = format!("{code} {body}");
        http.script(&once("tools/call", &status(code, body))).await;
        let answer = try_call(&link, "count", "{}").await;
        match delivery {
            Some(delivery) => {
                let error = answer.expect_err(&what);
                assert!(error.loss().is_none(), "{what}: {error:?}");
                assert_eq!(error.delivery(), delivery, "{what}");
            }
            None => {
                let answer = answer.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert!(answer.error().is_some(), "{what}");
            }
        }
        assert_eq!(over(&link), None, "{what}");
        assert_eq!(count(&link).await, n as u64 + 1, "{what}");
    }
    assert_eq!(http.counted("initialize").await, 1);
    close(&links).await;
}

/// E08, E12: a restarted server reports an unknown session, and an unreachable one reports nothing.
#[tokio::test]
async fn restarted_server_is_a_loss_and_an_unreachable_one_is_not() {
    let (links, mut http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (legacy_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    assert_eq!(count(&link).await, 1);
    http.kill();
    // The first call can still use the broken connection.
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::NotSent, "{error:?}");
    assert_eq!(over(&link), None);
    http.restart().await;
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert_verdict(&error, Delivery::Refused, "restarted");
    let next = open(&links, &server, &ann).await;
    assert_eq!(next.generation(), link.generation().next());
    assert_eq!(count(&next).await, 1);
    close(&links).await;
}

/// E08, R112: the session id is kept while the server hangs, and nothing is sent twice.
#[tokio::test]
async fn server_that_hangs_and_resumes_keeps_the_state() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    assert_eq!(count(&link).await, 1);
    http.freeze();
    let waiting = begin(&link, "count", "{}").await;
    let dropped = begin(&link, "note_add", r#"{"text":"once"}"#).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(link.in_flight(), 2);
    http.wake();
    assert_eq!(support::text(&end(waiting).await.unwrap()), "2");
    end(dropped).await.unwrap();
    assert_eq!(call(&link, "note_list", "{}").await, "once");
    assert_eq!(link.generation(), Generation::default());
    assert_eq!(http.counted("tools/count").await, 2);
    assert_eq!(http.counted("initialize").await, 1);
    close(&links).await;
}

/// Invariant 2, E08: after a broken connection it is unknown what ran, and nothing runs twice.
#[tokio::test]
async fn broken_connection_is_unknown_and_never_retried() {
    let cut = |run: bool| json!([{ "on": "tools/call", "nth": 1, "run": run, "do": "cut" }]);
    let mid =
        |run: bool| json!([{ "on": "tools/call", "nth": 1, "run": run, "do": "cut-mid-stream" }]);
    let args = ["--era", "legacy", "--quirk", "no-event-ids"];
    let (links, http) = (links(), TestServer::http(&args).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let mut ran = 0;
    for (script, run) in [(cut(false), 0), (cut(true), 1), (mid(false), 0), (mid(true), 1)] {
        http.script(&script).await;
        let posts = http.counted("posts").await;
        let error = try_call(&link, "count", "{}").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unknown, "{script}: {error:?}");
        assert!(error.loss().is_none(), "{script}: {error:?}");
        assert_eq!(http.counted("posts").await, posts + 1, "{script}");
        ran += run + 1;
        assert_eq!(count(&link).await, ran, "{script}");
    }
    assert_eq!(http.counted("initialize").await, 1);
    close(&links).await;
}

/// Invariant 2: the same holds in the middle of a JSON answer.
#[tokio::test]
async fn truncated_answer_is_unknown() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let relay = Relay::to(http.port()).await;
    let link = open(&links, &legacy_at(&relay.url("mcp")), &place()).await;
    for (n, bytes) in [0, 20, 200].into_iter().enumerate() {
        relay.cut_after(bytes);
        let error = try_call(&link, "count", "{}").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unknown, "{bytes}: {error:?}");
        assert_eq!(count(&link).await, 2 * n as u64 + 2, "{bytes}");
    }
    assert_eq!(http.counted("tools/count").await, 6);
    close(&links).await;
}

/// E13: a late failure on an old link does not affect the next one.
#[tokio::test]
async fn late_failure_of_an_old_generation_has_no_effect() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (legacy_at(http.url()), place());
    let old = open(&links, &server, &ann).await;
    http.script(&json!([
        { "on": "tools/call", "tool": "slow", "do": "hang" },
        { "on": "tools/call", "tool": "count", "nth": 1, "do": { "status": { "code": 404 } } },
    ]))
    .await;
    let late = begin(&old, "slow", "{}").await;
    assert_verdict(&try_call(&old, "count", "{}").await.unwrap_err(), Delivery::Refused, "first");
    let new = open(&links, &server, &ann).await;
    assert_eq!(count(&new).await, 1);
    assert_verdict(&end(late).await.unwrap_err(), Delivery::Unknown, "late");
    drop(old);
    assert_eq!(count(&new).await, 2);
    assert_eq!(over(&new), None);
    let same = open(&links, &server, &ann).await;
    assert_eq!(same.generation(), new.generation());
    assert_eq!(count(&same).await, 3);
    close(&links).await;
}

/// E14, R114: only the answer to `initialize` sets the session id.
#[tokio::test]
async fn foreign_session_id_is_ignored() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let named = r#"{"name":"mcp-session-id"}"#;
    let own = call(&link, "header", named).await;
    http.script(&json!([{ "on": "*", "do": { "session": "an-echo" } }])).await;
    for n in 1..=3 {
        assert_eq!(count(&link).await, n);
        assert_eq!(call(&link, "header", named).await, own);
    }
    assert_ne!(own, "an-echo");
    // An echoed id does not create a session where there is none.
    let http = TestServer::http(&["--era", "legacy", "--stateless"]).await;
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&json!([{ "on": "tools/call", "do": { "session": "an-echo" } }])).await;
    for _ in 0..2 {
        assert_eq!(call(&link, "header", named).await, "");
    }
    close(&links).await;
}

/// E17, E18, R128: each call that sees the same expiry fails on its own, and one `initialize` follows.
#[tokio::test]
async fn twenty_calls_that_see_one_expiry_fail_separately() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (legacy_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    http.script(&json!([
        { "on": "tools/call", "tool": "slow", "do": "hang" },
        { "on": "tools/call", "tool": "count", "nth": 1, "do": "restart" },
    ]))
    .await;
    let hung = join_all((0..5).map(|_| begin(&link, "slow", "{}"))).await;
    until_counted(&http, "posts", 7).await;
    let calls = join_all((0..20).map(|_| begin(&link, "count", "{}"))).await;
    for error in join_all(calls.into_iter().map(end)).await {
        assert_verdict(&error.unwrap_err(), Delivery::Refused, "count");
    }
    for error in join_all(hung.into_iter().map(end)).await {
        assert_verdict(&error.unwrap_err(), Delivery::Unknown, "hung");
    }
    assert_eq!(link.in_flight(), 0);
    let again = join_all((0..20).map(|_| open(&links, &server, &ann))).await;
    assert!(again.iter().all(|held| held.generation() == link.generation().next()));
    assert_eq!(http.counted("initialize").await, 2);
    assert_eq!(http.counted("tools/count").await, 0);
    close(&links).await;
}

/// E22: a waiting caller gets an error at once.
#[tokio::test]
async fn calls_in_flight_fail_when_the_link_is_closed() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let (server, ann) = (legacy_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    http.script(&json!([
        { "on": "tools/call", "tool": "slow", "do": "hang" },
        { "on": "tools/call", "tool": "big", "do": "hang-after-head" },
    ]))
    .await;
    let calls = [begin(&link, "slow", "{}").await, begin(&link, "big", "{}").await];
    until_counted(&http, "posts", 4).await;
    links.restart(&server, &ann, LossReason::Restarted).await;
    for call in calls {
        let error = end(call).await.unwrap_err();
        assert_eq!(error.loss().unwrap().reason(), LossReason::Restarted);
        assert_eq!(error.delivery(), Delivery::Unknown);
    }
    let next = open(&links, &server, &ann).await;
    assert_eq!(next.generation(), link.generation().next());
    assert_eq!(next.loss().unwrap().reason(), LossReason::Restarted);
    close(&links).await;
}

/// E28: a server that does not answer is not tried by all callers at once, nor repeatedly.
#[tokio::test]
async fn dead_server_is_not_hammered() {
    for kind in [legacy_at as fn(&str) -> _, unknown_at, |url| {
        support::server_with(stayput_upstream::Http::new(url), Default::default())
    }] {
        let (links, dead) = (links(), Relay::to_nowhere().await);
        let (server, ann) = (kind(&dead.url("mcp")), place());
        let rested = AtomicUsize::new(0);
        for _ in 0..10 {
            let all = join_all((0..20).map(|_| try_open(&links, &server, &ann))).await;
            for error in all.into_iter().map(Result::unwrap_err) {
                if matches!(&*error, LinkOpenError::BackingOff { .. }) {
                    rested.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        assert!(rested.into_inner() >= 100, "it was asked again and again");
        assert!(dead.made() < 20, "{} connections", dead.made());
        close(&links).await;
    }
}

/// E28: nor is a server that accepts sessions and forgets them at once.
#[tokio::test]
async fn server_that_forgets_at_once_backs_off() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    http.script(&json!([{ "on": "tools/call", "do": status(404, "") }])).await;
    let (server, ann, mut rested) = (legacy_at(http.url()), place(), 0);
    for _ in 0..50 {
        match try_open(&links, &server, &ann).await {
            Ok(link) => {
                try_call(&link, "count", "{}").await.unwrap_err();
            }
            Err(error) => {
                assert!(matches!(&*error, LinkOpenError::BackingOff { .. }), "{error:?}");
                rested += 1;
            }
        }
    }
    assert!(rested >= 25, "{rested}");
    assert!(http.counted("initialize").await <= 25);
    close(&links).await;
}

/// Invariant 2: a server that forgot the session during a call may have run the call.
#[tokio::test]
async fn loss_after_progress_may_have_run() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let progress = r#"data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at work"}}"#;
    let stream = format!("{progress}\n\ndata: {}\n\n", error(-32600, "Session terminated"));
    let headers: Value = json!([["content-type", "text/event-stream"]]);
    let deed = json!({ "status": { "code": 200, "body": stream, "headers": headers } });
    http.script(&once("tools/call", &deed)).await;
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert_verdict(&error, Delivery::Unknown, "after progress");
    close(&links).await;
}
