//! Access rules of sub-agents hold wherever they are set, and however a call names its session.

use std::pin::Pin;

use serde_json::json;
use stayput::{DefaultSessionOptions, Error, Hub, SubAgent as _, ToolCall};

use crate::support::{ProcessMarker, count, hub};

/// Scope in which a sub-agent is started.
#[derive(Clone, Copy, Debug)]
enum Place {
    Run,
    Session,
    Outside,
}

/// Way in which a sub-agent calls.
#[derive(Clone, Copy, Debug)]
enum Way {
    HubCall,
    SessionCall,
    SessionByName,
    SubAgent,
    NewRun,
}

const PLACES: [Place; 3] = [Place::Run, Place::Session, Place::Outside];
const WAYS: [Way; 5] =
    [Way::HubCall, Way::SessionCall, Way::SessionByName, Way::SubAgent, Way::NewRun];

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

async fn inside<T: Send>(hub: &Hub, place: Place, work: BoxFuture<'_, T>) -> T {
    match place {
        Place::Run => hub.run(work).await,
        Place::Session => hub.session("around").await.unwrap().run(work).await,
        Place::Outside => work.await,
    }
}

fn call_count(call: impl FnOnce(&'static str, &'static str) -> ToolCall) -> ToolCall {
    call("counter", "count")
}

async fn call(hub: &Hub, way: Way) -> Result<u64, Error> {
    let number = |result: stayput::ToolResult| result.text().parse().unwrap();
    let result = match way {
        Way::HubCall => call_count(|server, tool| hub.call(server, tool, json!({}))).await,
        Way::SessionCall => {
            let session = hub.ephemeral();
            call_count(|server, tool| session.call(server, tool, json!({}))).await
        }
        Way::SessionByName => {
            let session = hub.session("thread-7").await?;
            call_count(|server, tool| session.call(server, tool, json!({}))).await
        }
        Way::SubAgent => {
            let hub = hub.clone();
            let nested = async move { hub.call("counter", "count", json!({})).await };
            stayput::spawn(nested.inherited("counter")).await.unwrap()
        }
        Way::NewRun => hub.run(async { hub.call("counter", "count", json!({})).await }).await,
    };
    result.map(number)
}

/// R009: {run, session, outside} × {hub.call, session.call, session by name, sub-agent, run} × {right name, typo}.
#[tokio::test]
async fn denied_server_is_never_reached() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap();
    for (place, way) in PLACES.iter().flat_map(|place| WAYS.map(|way| (*place, way))) {
        let work = call(&hub, way).denied("counter");
        let denied = inside(&hub, place, Box::pin(work)).await.unwrap_err();
        assert!(
            matches!(&denied, Error::ServerDenied { server } if server == "counter"),
            "{place:?} {way:?}: {denied}"
        );
        let work = call(&hub, way).denied("conter");
        let unknown = inside(&hub, place, Box::pin(work)).await.unwrap_err();
        assert!(
            matches!(&unknown, Error::UnknownServer { server, .. } if server == "conter"),
            "{place:?} {way:?}: {unknown}"
        );
    }
    assert!(marker.processes().is_empty(), "no call reached the server");
}

/// R009: an isolated sub-agent has its own server in every session, and leaves those of the sessions alone.
#[tokio::test]
async fn isolated_sub_agent_never_uses_the_server_of_a_session() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap();
    let named = hub.session("thread-7").await.unwrap();
    // Each counter that a sub-agent could reach is ahead of a new one.
    for session in [&named, &hub.session("around").await.unwrap()] {
        session.run(async { (count(&hub).await, count(&hub).await) }).await;
    }
    assert_eq!((count(&hub).await, count(&hub).await), (1, 2));
    for (place, way) in PLACES.iter().flat_map(|place| WAYS.map(|way| (*place, way))) {
        let work = call(&hub, way).isolated("counter");
        let found = inside(&hub, place, Box::pin(work)).await.unwrap();
        assert_eq!(found, 1, "{place:?} {way:?}");
        let work = call(&hub, way).isolated("conter");
        let unknown = inside(&hub, place, Box::pin(work)).await.unwrap_err();
        assert_eq!(unknown.kind(), "unknown_server", "{place:?} {way:?}: {unknown}");
    }
    assert_eq!(named.run(count(&hub)).await, 3, "its own counter went on");
    assert_eq!(count(&hub).await, 3);
    crate::support::until("the servers of the sub-agents end with them", || {
        marker.processes().len() == 3
    })
    .await;
}

/// R009: whatever is not a call respects the rules, too.
#[tokio::test]
async fn rules_hold_for_restarts_lists_and_profiles() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let chat = hub.session("chat").await.unwrap();
    assert_eq!(chat.run(count(&hub)).await, 1);
    let is_denied = |result: Result<(), Error>| matches!(result, Err(Error::ServerDenied { .. }));
    async {
        assert!(is_denied(chat.restart("counter").await));
        assert!(is_denied(chat.bind("counter").await.map(drop)));
        assert!(is_denied(chat.status("counter").map(drop)));
        assert!(is_denied(hub.tools("counter").await.map(drop)));
        assert!(is_denied(hub.profile("counter").await.map(drop)));
        assert!(is_denied(hub.wait_ready("counter", crate::support::TEST_TIMEOUT).await));
        assert!(is_denied(chat.read("counter", "notes://1").await.map(drop)));
    }
    .denied("counter")
    .await;
    async {
        assert_eq!(chat.run(count(&hub)).await, 1);
        chat.restart("counter").await.unwrap();
        let lost = chat.call("counter", "count", json!({})).await.unwrap_err();
        assert!(lost.is_state_lost(), "its own server was restarted: {lost}");
    }
    .isolated("counter")
    .await;
    assert_eq!(chat.run(count(&hub)).await, 2, "the server of the session was not");
}

/// R009: a rule of one hub does not end where a scope of another hub begins.
#[tokio::test]
async fn rules_hold_inside_scopes_of_other_hubs() {
    let marker = ProcessMarker::new();
    let (first, second) = (hub(&marker), hub(&marker));
    let chat = first.session("chat").await.unwrap();
    let work = second.run(async { chat.call("counter", "count", json!({})).await });
    let denied = first.run(work.denied("counter")).await.unwrap_err();
    assert_eq!(denied.kind(), "denied", "{denied}");
}
