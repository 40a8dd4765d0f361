//! Answers that come as streams, complete and in pieces.

use serde_json::{Value, json};
use stayput_process::Processes;
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    CallError, CallOptions, Delivery, LinkSettings, Links, PooledLink, SessionDirs,
};
use tokio::runtime::Handle;

use crate::support::{
    call, close, links, open, place,
    remote::{all_of, assert_verdict, count, error, legacy_at, once, over, status},
    try_call,
};

/// Makes a call with progress.
async fn with_progress(
    link: &PooledLink,
    steps: u64,
    ms: u64,
) -> (Vec<u64>, Result<String, CallError>) {
    let params = json!({
        "name": "slow",
        "arguments": { "ms": ms, "steps": steps },
        "_meta": { "progressToken": "mine" },
    });
    let params = params.to_string();
    let call = link.call("tools/call", Some(&params), CallOptions::default()).await.unwrap();
    let (told, answer) = all_of(call).await;
    let progress = |told: &Value| told["params"]["progress"].as_u64().unwrap();
    assert!(told.iter().all(|told| told["params"]["progressToken"] == "mine"));
    (told.iter().map(progress).collect(), answer)
}

/// R120: a stream that the server closes is resumed by one GET. Nothing is lost or duplicated.
#[tokio::test]
async fn closed_stream_is_resumed_after_the_last_event() {
    let args = ["--era", "legacy", "--quirk", "close-stream", "--retry-ms", "30"];
    let (links, http) = (links(), TestServer::http(&args).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for n in 1..=3 {
        let (progress, answer) = with_progress(&link, 5, 100).await;
        assert_eq!((progress, answer.unwrap()), ((0..=5).collect(), "done".to_owned()));
        assert_eq!(http.counted("gets").await, n);
    }
    assert_eq!(http.counted("tools/slow").await, 3);
    close(&links).await;
}

/// R120: half an event before a cut does not corrupt the rest.
#[tokio::test]
async fn stream_that_breaks_within_an_event_is_resumed() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&json!([{ "on": "tools/call", "run": true, "do": "cut-mid-stream" }])).await;
    let (progress, answer) = with_progress(&link, 4, 40).await;
    assert_eq!((progress, answer.unwrap()), ((0..=4).collect(), "done".to_owned()));
    assert_eq!((http.counted("gets").await, http.counted("tools/slow").await), (1, 1));
    assert_eq!(link.counts().invalid_lines, 0);
    close(&links).await;
}

/// Long enough that the stream is closed before the answer is ready.
const SHORT: &str = r#"{"ms":50}"#;

/// E08: the resumption is repeated while the server is unreachable, but not after a refusal.
#[tokio::test]
async fn stream_is_resumed_through_failures() {
    let args = ["--era", "legacy", "--quirk", "close-stream", "--retry-ms", "30"];
    let (links, http) = (links(), TestServer::http(&args).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&json!([
        { "on": "GET", "nth": 1, "do": "cut" },
        { "on": "GET", "nth": 2, "do": { "status": { "code": 503 } } },
    ]))
    .await;
    assert_eq!(call(&link, "slow", SHORT).await, "done");
    assert_eq!(http.counted("gets").await, 3);
    http.script(&once("GET", &status(400, "no"))).await;
    let failed = try_call(&link, "slow", SHORT).await.unwrap_err();
    assert_eq!((failed.delivery(), over(&link)), (Delivery::Unknown, None), "{failed:?}");
    // An unknown session at this point says nothing about the call that was accepted before.
    http.script(&once("GET", &status(404, error(-32001, "Session not found")))).await;
    assert_verdict(&try_call(&link, "slow", SHORT).await.unwrap_err(), Delivery::Unknown, "GET");
    assert_eq!(http.counted("tools/slow").await, 3);
    close(&links).await;
}

/// A `retry` of zero does not mean requests without a pause.
#[tokio::test]
async fn retry_of_zero_does_not_cause_a_busy_loop() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let stream = json!([["content-type", "text/event-stream"]]);
    let body = "id: 1-0\nretry: 0\ndata:\n\n";
    let deed = json!({ "status": { "code": 200, "body": body, "headers": stream } });
    http.script(&json!([{ "on": "tools/call", "do": deed }, { "on": "GET", "do": deed }])).await;
    let limit = Some(std::time::Duration::from_millis(500));
    let options = CallOptions { limit, ..CallOptions::default() };
    let params = crate::support::params("count", "{}");
    let call = link.call("tools/call", Some(&params), options).await.unwrap();
    let failed = crate::support::remote::end(call).await.unwrap_err();
    assert!(matches!(failed, CallError::TimedOut { .. }), "{failed:?}");
    assert!(http.counted("gets").await <= 30, "{} GETs", http.counted("gets").await);
    close(&links).await;
}

/// Invariant 2: a stream without event ids cannot be resumed.
#[tokio::test]
async fn stream_that_ends_without_ids_is_unknown() {
    let (links, http) =
        (links(), TestServer::http(&["--era", "legacy", "--quirk", "no-event-ids"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    http.script(&once("tools/call", &json!({ "close": { "retry": 10 } }))).await;
    let failed = try_call(&link, "slow", SHORT).await.unwrap_err();
    assert!(matches!(failed, CallError::Failed { .. }), "{failed:?}");
    assert_eq!((failed.delivery(), http.counted("gets").await), (Delivery::Unknown, 0));
    assert_eq!((count(&link).await, over(&link)), (1, None));
    assert_eq!(http.counted("tools/slow").await, 1);
    close(&links).await;
}

/// An answer over the limit fails only its own call.
#[tokio::test]
async fn answer_over_the_limit_fails_one_call() {
    for option in ["--json", "--sse"] {
        let http = TestServer::http(&["--era", "legacy", option]).await;
        let processes = Processes::local(Handle::current());
        let settings = LinkSettings::new(processes, SessionDirs::temporary().unwrap());
        let settings = LinkSettings { message_limit: 64 << 10, ..settings };
        let links = Links::new(settings, Handle::current());
        let link = open(&links, &legacy_at(http.url()), &place()).await;
        let failed = try_call(&link, "big", r#"{"bytes":200000}"#).await.unwrap_err();
        assert!(matches!(failed, CallError::TooLarge { limit: 65_536 }), "{option}: {failed:?}");
        assert_eq!(call(&link, "big", r#"{"bytes":60000}"#).await.len(), 60_000, "{option}");
        assert_eq!(over(&link), None);
        close(&links).await;
    }
}

/// A message that does not answer this request is no answer, and a duplicate is ignored.
#[tokio::test]
async fn invalid_answer_fails_its_call() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for deed in [
        json!({ "foreign-id": 4711 }),
        json!({ "content-type": "text/html" }),
        json!("invalid-json"),
        status(202, ""),
        status(200, ""),
    ] {
        http.script(&once("tools/call", &deed)).await;
        let failed = try_call(&link, "echo", "{}").await.unwrap_err();
        assert_eq!(failed.delivery(), Delivery::Unknown, "{deed}: {failed:?}");
        assert!(failed.loss().is_none(), "{deed}");
    }
    http.script(&once("tools/call", &json!("twice"))).await;
    assert_eq!(count(&link).await, 1);
    assert_eq!(count(&link).await, 2);
    close(&links).await;
}

/// R124, R141: a stream is read to its end, so that its connection can be reused.
#[tokio::test]
async fn connections_are_reused() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--sse"]).await);
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    for n in 1..=30 {
        assert_eq!(count(&link).await, n);
    }
    let connections = http.counted("connections").await;
    assert!(connections <= 5, "{connections} connections");
    close(&links).await;
}

/// §8: an idle link costs neither a socket nor a task.
#[tokio::test]
async fn idle_link_has_no_socket_and_no_task() {
    let (links, http) = (links(), TestServer::http(&["--era", "legacy", "--json"]).await);
    let (server, first) = (legacy_at(http.url()), place());
    let mut held = vec![open(&links, &server, &first).await];
    count(&held[0]).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (before, sockets) = (tasks(), http.counted("connections").await);
    for _ in 0..50 {
        let link = open(&links, &server, &place()).await;
        count(&link).await;
        held.push(link);
    }
    crate::support::until("the tasks of the calls are done", || tasks() <= before).await;
    assert_eq!(http.counted("connections").await, sockets);
    assert_eq!(links.used().links, 51);
    close(&links).await;
}
