//! Who answers what servers ask: for the hub, and for one session.

use std::time::Duration;

use crate::support::{TEST_TIMEOUT, ProcessMarker, builder, hub};
use serde_json::{Value, json};
use stayput::{Handlers, Http, Hub, Session};
use stayput_testkit::mcp::TestServer;

fn named(name: &'static str) -> Handlers {
    let answer = json!({ "action": "accept", "content": { "name": name } });
    Handlers::default().elicitation(move |_| std::future::ready(Ok(answer.clone())))
}

fn rooted() -> Handlers {
    Handlers::default().roots(async |_| Ok(json!({ "roots": [{ "uri": "file:///ann" }] })))
}

async fn asked(session: &Session, tool: &str) -> String {
    let call = session.call("counter", tool, json!({ "message": "who?", "prompt": "p" }));
    call.timeout(TEST_TIMEOUT).await.unwrap().raw().to_owned()
}

/// Each session has handlers of its own, and those of the hub for the rest.
#[tokio::test]
async fn each_session_is_asked_for_itself() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).handlers(named("hub")).build().unwrap();
    let plain = hub.session("a").await.unwrap();
    let own = hub.session("b").await.unwrap().with_handlers(named("ben"));
    let more = hub.session("c").await.unwrap().with_handlers(rooted());
    let (plain, own) = tokio::join!(asked(&plain, "elicit"), asked(&own, "elicit"));
    assert!(plain.contains("hub") && own.contains("ben"), "{plain} {own}");
    assert!(asked(&more, "elicit").await.contains("hub"));
    assert!(asked(&more, "roots").await.contains("file:///ann"));
    // In a scope of the session they are the same.
    let within = more.run(async { hub.call("counter", "roots", json!({})).await }).await.unwrap();
    assert!(within.raw().contains("file:///ann"));
}

/// A handler that never answers keeps nobody from noticing how the call ends.
#[tokio::test]
async fn a_handler_holds_nothing_up() {
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
        crate::support::wait_until("it is asked", || {
            let status = session.status("counter").unwrap();
            matches!(status, stayput::SessionStatus::Live { in_flight, .. } if in_flight > 0)
        })
        .await;
        marker.kill_processes();
    });
    assert!(lost.unwrap_err().is_state_lost());
}

/// What a server asks on a stream that belongs to no call is answered, too.
#[tokio::test]
async fn a_server_can_ask_outside_calls() {
    let server = TestServer::http(&["--era", "legacy", "--json"]).await;
    let hub = Hub::builder().server("counter", Http::new(server.url())).handlers(rooted());
    let hub = hub.build().unwrap();
    let session = hub.session("a").await.unwrap();
    session.bind("counter").await.unwrap();
    // The stream on which it asks is opened by then, or the server waits for it.
    let mut open = false;
    for _ in 0..600 {
        open = server.counted("gets").await > 0;
        if open {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(open, "nobody listens");
    assert!(asked(&session, "roots").await.contains("file:///ann"));
}

/// 2026-07-28: a result that wants input is not the result; it is answered, and the call made again.
#[tokio::test]
async fn a_modern_server_gets_its_input() {
    let marker = ProcessMarker::new();
    let server =
        stayput::Stdio::new(stayput_testkit::program("stayput-testserver").to_str().unwrap());
    let server = marker.apply(server.args(["stdio", "--era", "modern"]));
    let hub = Hub::builder().server("counter", server).handlers(named("Ann")).build().unwrap();
    let session = hub.session("a").await.unwrap();
    let answer: Value = serde_json::from_str(&asked(&session, "elicit").await).unwrap();
    assert!(answer.to_string().contains("Ann"), "{answer}");
    assert_ne!(answer["resultType"], "input_required");
    let unable = session.call("counter", "sample", json!({ "prompt": "p" })).await.unwrap_err();
    assert_eq!(unable.kind(), "protocol_error", "{unable}");
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// Without handlers a server is told that nobody can be asked.
#[tokio::test]
async fn nobody_is_asked_by_default() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    assert!(asked(&session, "elicit").await.contains("did not declare"));
}
