//! Transport of 2024-11-05: one stream for all messages of the server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use stayput_core::Generation;
use stayput_testkit::{Relay, mcp::TestServer};
use stayput_upstream::{
    CallError, CallOptions, Delivery, Http, LinkOpenError, LossReason, Options, Server,
    TransportConfig,
};
use support::{
    call, close, links, open, params, place,
    remote::{assert_verdict, begin, count, end, hear, listen, once, over, status, until_counted},
    server_with, try_call, try_open, until,
};

fn sse_with(url: &str, options: Options) -> Server {
    server_with(TransportConfig::Sse(Http::new(url)), options)
}

fn sse_at(url: &str) -> Server {
    sse_with(url, Options::default())
}

async fn old() -> TestServer {
    TestServer::sse(&["--era", "legacy"]).await
}

/// Stream with this body, which then ends.
fn stream(body: &str) -> Value {
    let headers = json!([["content-type", "text/event-stream"]]);
    json!([{ "on": "GET", "do": { "status": { "code": 200, "body": body, "headers": headers } } }])
}

/// Messages and credentials go only to the configured server.
#[tokio::test]
async fn endpoint_at_another_origin_is_refused() {
    let (http, elsewhere) = (old().await, Relay::to_nowhere().await);
    for endpoint in [elsewhere.url("messages"), "//127.0.0.1:1/x".to_owned()] {
        let links = links();
        http.script(&stream(&format!("event: endpoint\ndata: {endpoint}\n\n"))).await;
        let failed = try_open(&links, &sse_at(http.url()), &place()).await.unwrap_err();
        assert!(matches!(&*failed, LinkOpenError::Http { .. }), "{failed:?}");
        close(&links).await;
    }
    assert_eq!((elsewhere.made(), http.counted("posts").await), (0, 0));
}

/// An answer that is no stream, or never names the endpoint, is an error instead of a hang.
#[tokio::test]
async fn stream_without_an_endpoint_is_an_error() {
    let http = old().await;
    let mut options = Options::default();
    options.timeouts.open = Duration::from_millis(300);
    let server = sse_with(http.url(), options);
    for script in [
        stream("event: message\ndata: {}\n\n"),
        stream(""),
        json!([{ "on": "GET", "do": status(500, "") }]),
        json!([{ "on": "GET", "do": "cut" }]),
        json!([{ "on": "GET", "do": "hang" }]),
        json!([{ "on": "GET", "do": "hang-after-head" }]),
    ] {
        http.script(&script).await;
        // A new pool each time, because a server that failed backs off.
        let links = links();
        let failed = try_open(&links, &server, &place()).await.unwrap_err();
        let silent = script.to_string().contains("hang");
        assert_eq!(
            matches!(&*failed, LinkOpenError::Silent { .. }),
            silent,
            "{script}: {failed:?}"
        );
        assert_eq!(links.used().links, 0);
        close(&links).await;
    }
}

/// Without the stream there is no session: that is a loss, and waiting callers get it.
#[tokio::test]
async fn broken_stream_is_a_loss() {
    let (links, http) = (links(), old().await);
    let relay = Relay::to(http.port()).await;
    let (server, ann) = (sse_at(&relay.url("sse")), place());
    let link = open(&links, &server, &ann).await;
    assert_eq!(count(&link).await, 1);
    let waiting = begin(&link, "slow", r#"{"ms":3600000}"#).await;
    until_counted(&http, "tools/slow", 1).await;
    relay.cut();
    let failed = end(waiting).await.unwrap_err();
    assert_eq!(failed.loss().unwrap().reason(), LossReason::Disconnected, "{failed:?}");
    assert_eq!(failed.delivery(), Delivery::Unknown);
    let next = open(&links, &server, &ann).await;
    assert_eq!(next.generation(), Generation::default().next());
    assert_eq!(next.loss().unwrap().reason(), LossReason::Disconnected);
    assert_eq!(count(&next).await, 1);
    assert_eq!(http.counted("tools/slow").await, 1);
    close(&links).await;
}

/// E11, E22: the answer to a POST can report an unknown session. Calls that wait on the stream then fail, too.
#[tokio::test]
async fn post_refused_for_an_unknown_session_is_a_loss() {
    let (links, http) = (links(), old().await);
    let (server, ann) = (sse_at(http.url()), place());
    let link = open(&links, &server, &ann).await;
    let waiting = begin(&link, "slow", r#"{"ms":3600000}"#).await;
    until_counted(&http, "tools/slow", 1).await;
    http.script(&json!([{ "on": "tools/call", "do": status(404, "") }])).await;
    let refused = join_all((0..5).map(|_| try_call(&link, "count", "{}"))).await;
    for error in refused {
        let error = error.unwrap_err();
        let sent = error.delivery();
        assert!(matches!(sent, Delivery::Refused | Delivery::NotSent), "{error:?}");
        assert_verdict(&error, sent, "POST");
    }
    assert_verdict(&end(waiting).await.unwrap_err(), Delivery::Unknown, "waiting");
    http.script(&json!([])).await;
    let next = open(&links, &server, &ann).await;
    assert_eq!((next.generation(), count(&next).await), (link.generation().next(), 1));
    until("nothing of the old link is left", || link.is_gone()).await;
    assert_eq!(links.used().links, 1);
    close(&links).await;
}

/// E19: a POST that is refused for another reason fails one call.
#[tokio::test]
async fn failed_post_fails_one_call() {
    let (links, http) = (links(), old().await);
    let link = open(&links, &sse_at(http.url()), &place()).await;
    for (deed, delivery) in [
        (status(400, "no"), Delivery::Refused),
        (status(401, ""), Delivery::Refused),
        (status(500, ""), Delivery::Unknown),
        (json!("cut"), Delivery::Unknown),
    ] {
        http.script(&once("tools/call", &deed)).await;
        let failed = try_call(&link, "count", "{}").await.unwrap_err();
        assert_eq!(failed.delivery(), delivery, "{deed}: {failed:?}");
        assert!(failed.loss().is_none(), "{deed}");
    }
    assert_eq!((count(&link).await, over(&link)), (1, None));
    close(&links).await;
}

/// The timeout holds, whether the POST hangs or the stream is silent.
#[tokio::test]
async fn call_that_takes_too_long_fails() {
    let (links, http) = (links(), old().await);
    let link = open(&links, &sse_at(http.url()), &place()).await;
    let limit = Some(Duration::from_millis(200));
    for (script, tool) in [(json!("hang"), "count"), (json!("pass"), "slow")] {
        http.script(&once("tools/call", &script)).await;
        let params = params(tool, r#"{"ms":3600000}"#);
        let options = CallOptions { limit, ..CallOptions::default() };
        let call = link.call("tools/call", Some(&params), options).await.unwrap();
        let failed = end(call).await.unwrap_err();
        assert!(matches!(failed, CallError::TimedOut { .. }), "{tool}: {failed:?}");
    }
    until_counted(&http, "cancels", 1).await;
    assert_eq!((count(&link).await, link.in_flight()), (1, 0));
    close(&links).await;
}

/// Invariant 7: a silent stream is not a broken one.
#[tokio::test]
async fn silent_stream_is_kept() {
    let (links, http) = (links(), old().await);
    let mut options = Options::default();
    options.timeouts.idle = Duration::from_millis(100);
    let (server, ann) = (sse_with(http.url(), options), place());
    let link = open(&links, &server, &ann).await;
    assert_eq!(count(&link).await, 1);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((over(&link), count(&link).await), (None, 2));
    close(&links).await;
}

/// Many calls share the stream, and a listener gets the other messages.
#[tokio::test]
async fn answers_on_one_stream_reach_their_calls() {
    let (links, http) = (links(), old().await);
    let link = open(&links, &sse_at(http.url()), &place()).await;
    let mut listener = listen(&link).await;
    let calls = (0..30).map(|n| {
        let link = &link;
        async move {
            let said = format!(r#"{{"n":{n}}}"#);
            assert_eq!(call(link, "echo", &said).await, said);
        }
    });
    join_all(calls).await;
    call(&link, "notify", "{}").await;
    hear(&mut listener, "notifications/tools/list_changed").await;
    assert_eq!(http.counted("gets").await, 2, "one to ask, and one for the session");
    drop(listener);
    close(&links).await;
}
