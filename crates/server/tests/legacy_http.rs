//! What rmcp lacks for clients that shook hands: streams that can be taken up again by whoever they belong to, and an
//! end that spares who is there.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{sync::Arc, time::Duration};

use axum::Router;
use http::Method;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use stayput_core::{MemoryEvents, MemoryStore, SystemClock};
use stayput_server::{HttpSessionManager, ServerSessions};
use support::{Caller, Counter, LONG, builder, listen, until};
use tokio::time::timeout;

/// A replica on a store that others use, too.
struct Replica {
    url: String,
    counter: Counter,
    manager: Arc<HttpSessionManager>,
}

impl Replica {
    async fn start(sessions: &ServerSessions, linger: Duration) -> Self {
        let (counter, manager) = (Counter::new(sessions), sessions.session_manager_with(linger));
        let mut config = StreamableHttpServerConfig::default();
        config.session_store = Some(sessions.session_store());
        let serves = counter.clone();
        let service =
            StreamableHttpService::new(move || Ok(serves.clone()), manager.clone(), config);
        let app = Router::new().route_service("/mcp", service).layer(sessions.layer());
        Self { url: listen(app).await, counter, manager }
    }
}

fn two() -> [ServerSessions; 2] {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let events = Arc::new(MemoryEvents::new());
    [(); 2].map(|()| builder().resumable().with_store(store.clone(), events.clone()))
}

const LINGER: Duration = Duration::from_secs(600);

/// A call that waits, and the id of the last event that came of it.
async fn cut_off(client: &mut Caller) -> String {
    let mut params = json!({ "name": "slow", "arguments": {} });
    params["_meta"]["progressToken"] = 7.into();
    let mut events = client.ask("tools/call", params).await.events();
    while timeout(LONG, events.next()).await.unwrap().unwrap().data().is_empty() {}
    events.last_id().unwrap().to_owned()
}

async fn resume(client: &Caller, url: &str, last: &str) -> stayput_testkit::mcp::Answer {
    let mut other =
        Caller { urls: vec![url.to_owned()], ..client.clone() }.with("last-event-id", last);
    other.send(Method::GET, &Value::Null).await
}

/// R049, E07: a client that was cut off reads on, on the same replica and on another one.
#[tokio::test]
async fn a_stream_is_taken_up_again_on_another_replica() {
    let replicas = two();
    let (one, two) =
        (Replica::start(&replicas[0], LINGER).await, Replica::start(&replicas[1], LINGER).await);
    for url in [&one.url, &two.url] {
        let mut client = Caller::modern(&one.url).with("x-user", "ann").shakes_hands().await;
        let last = cut_off(&mut client).await;
        let mut events = resume(&client, url, &last).await.events();
        one.counter.go.notify_one();
        let answer = timeout(LONG, events.message()).await.unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
        // And once more, when it is over: nothing of it is lost on the way.
        let again = resume(&client, url, &last).await.message().await;
        assert_eq!(again, answer);
    }
}

/// E30, invariant 1: an event of one client is nothing to another one, and nothing to another owner.
#[tokio::test]
async fn events_belong_to_their_client() {
    let replicas = two();
    let one = Replica::start(&replicas[0], LINGER).await;
    let mut ann = Caller::modern(&one.url).with("x-user", "ann").shakes_hands().await;
    let last = cut_off(&mut ann).await;
    one.counter.go.notify_one();
    let other = Caller::modern(&one.url).with("x-user", "ann").shakes_hands().await;
    let bob = Caller::modern(&one.url).with("x-user", "bob").shakes_hands().await;
    for client in [&other, &bob] {
        let answer = resume(client, &one.url, &last).await;
        assert_eq!(
            answer.bytes().await.unwrap(),
            "",
            "an empty stream, as for an id that never was"
        );
    }
    let stolen = Caller { headers: vec![("x-user".into(), "bob".into())], ..ann.clone() };
    assert_eq!(resume(&stolen, &one.url, &last).await.status, 404);
    let answer = resume(&ann, &one.url, &last).await.message().await;
    assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
}

/// Invariant 7: rmcp forgets a client that is silent, not one that waits for an answer or listens; and who comes again is
/// found.
#[tokio::test]
async fn who_is_there_is_not_forgotten() {
    let replicas = two();
    let replica = Replica::start(&replicas[0], Duration::from_millis(200)).await;
    let mut waits = Caller::modern(&replica.url).shakes_hands().await;
    let mut listens = Caller::modern(&replica.url).shakes_hands().await;
    let last = cut_off(&mut waits).await;
    let stream = listens.send(Method::GET, &Value::Null).await;
    assert_eq!(stream.status, 200);
    let mut silent = Caller::modern(&replica.url).shakes_hands().await;
    assert_eq!(silent.text("count", json!({ "by": 1 })).await, "1");
    until("the silent one is forgotten", async || replica.manager.live_sessions() == 2).await;
    assert_eq!(silent.text("count", json!({ "by": 1 })).await, "2");
    until("again", async || replica.manager.live_sessions() == 2).await;
    // Nobody reads it, and it runs on.
    replica.counter.go.notify_one();
    let answer = resume(&waits, &replica.url, &last).await.message().await;
    assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
    drop(stream);
    until("all are gone", async || replica.manager.live_sessions() == 0).await;
}
