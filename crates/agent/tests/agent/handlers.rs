//! Handlers of server requests, of the hub and of one session.

use std::time::Duration;

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, hub};
use serde_json::{Value, json};
use stayput::{Handlers, Http, Hub, Session};
use stayput_testkit::mcp::TestServer;

fn elicitation_handler(name: &'static str) -> Handlers {
    let answer = json!({ "action": "accept", "content": { "name": name } });
    Handlers::default().elicitation(move |_| std::future::ready(Ok(answer.clone())))
}

fn roots_handler() -> Handlers {
    Handlers::default().roots(async |_| Ok(json!({ "roots": [{ "uri": "file:///ann" }] })))
}

async fn call_tool(session: &Session, tool: &str) -> String {
    let call = session.call("counter", tool, json!({ "message": "who?", "prompt": "p" }));
    call.timeout(TEST_TIMEOUT).await.unwrap().raw().to_owned()
}

#[tokio::test]
async fn session_handlers_override_those_of_the_hub() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).handlers(elicitation_handler("hub")).build().unwrap();
    let plain = hub.session("a").await.unwrap();
    let own = hub.session("b").await.unwrap().with_handlers(elicitation_handler("ben"));
    let more = hub.session("c").await.unwrap().with_handlers(roots_handler());
    let (plain, own) = tokio::join!(call_tool(&plain, "elicit"), call_tool(&own, "elicit"));
    assert!(plain.contains("hub") && own.contains("ben"), "{plain} {own}");
    assert!(call_tool(&more, "elicit").await.contains("hub"));
    assert!(call_tool(&more, "roots").await.contains("file:///ann"));
    // They also apply in a scope of the session.
    let within = more.run(async { hub.call("counter", "roots", json!({})).await }).await.unwrap();
    assert!(within.raw().contains("file:///ann"));
}

#[tokio::test]
async fn pending_handler_does_not_delay_the_end_of_a_call() {
    let marker = ProcessMarker::new();
    let handlers = Handlers::default().elicitation(async |_| std::future::pending().await);
    let hub = builder(&marker).handlers(handlers).build().unwrap();
    let session = hub.session("a").await.unwrap();
    session.bind("counter").await.unwrap();
    let call = session.call("counter", "elicit", json!({ "message": "who?" }));
    let late = call.timeout(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(late.kind(), "timed_out", "{late}");
    let call = session.call("counter", "elicit", json!({ "message": "who?" }));
    let (lost, ()) = tokio::join!(call.into_future(), async {
        crate::support::until("the call is in flight", || {
            let status = session.status("counter").unwrap();
            matches!(status, stayput::SessionStatus::Live { in_flight, .. } if in_flight > 0)
        })
        .await;
        marker.kill_processes();
    });
    assert!(lost.unwrap_err().is_state_lost());
}

#[tokio::test]
async fn request_outside_of_calls_is_answered() {
    let server = TestServer::http(&["--era", "legacy", "--json"]).await;
    let hub = Hub::builder().server("counter", Http::new(server.url())).handlers(roots_handler());
    let hub = hub.build().unwrap();
    let session = hub.session("a").await.unwrap();
    session.bind("counter").await.unwrap();
    // The server sends requests outside of calls on the GET stream.
    let opened = async || (server.counted("gets").await > 0).then_some(());
    stayput_testkit::until_some("the GET stream is open", opened).await;
    assert!(call_tool(&session, "roots").await.contains("file:///ann"));
}

/// 2026-07-28.
#[tokio::test]
async fn input_required_result_is_answered_and_repeated() {
    let marker = ProcessMarker::new();
    let server =
        stayput::Stdio::new(stayput_testkit::program("stayput-testserver").to_str().unwrap());
    let server = marker.apply(server.args(["stdio", "--era", "modern"]));
    let hub = Hub::builder()
        .server("counter", server)
        .handlers(elicitation_handler("Ann"))
        .build()
        .unwrap();
    let session = hub.session("a").await.unwrap();
    let answer: Value = serde_json::from_str(&call_tool(&session, "elicit").await).unwrap();
    assert!(answer.to_string().contains("Ann"), "{answer}");
    assert_ne!(answer["resultType"], "input_required");
    let unable = session.call("counter", "sample", json!({ "prompt": "p" })).await.unwrap_err();
    assert_eq!(unable.kind(), "protocol_error", "{unable}");
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

#[tokio::test]
async fn server_without_handlers_gets_no_capabilities() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    assert!(call_tool(&session, "elicit").await.contains("did not declare"));
}
