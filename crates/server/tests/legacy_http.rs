//! Legacy clients over HTTP: resumable streams, and clients dropped from memory.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{sync::Arc, time::Duration};

use axum::Router;
use http::Method;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use stayput_core::{MemoryEventLog, MemoryStore, SystemClock};
use stayput_server::{HttpSessionManager, ServerSessions};
use support::{Client, Counter, TEST_TIMEOUT, builder, listen, wait_until};
use tokio::time::timeout;

/// A replica on a shared store.
struct Replica {
    url: String,
    counter: Counter,
    manager: Arc<HttpSessionManager>,
}

impl Replica {
    async fn start(sessions: &ServerSessions, idle_timeout: Duration) -> Self {
        let (counter, manager) =
            (Counter::new(sessions), sessions.session_manager_with(idle_timeout));
        let mut config = StreamableHttpServerConfig::default();
        config.session_store = Some(sessions.session_store());
        let handler = counter.clone();
        let service =
            StreamableHttpService::new(move || Ok(handler.clone()), manager.clone(), config);
        let app = Router::new().route_service("/mcp", service).layer(sessions.layer());
        Self { url: listen(app).await, counter, manager }
    }
}

fn two_replicas() -> [ServerSessions; 2] {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let events = Arc::new(MemoryEventLog::new());
    [(); 2].map(|()| builder().resumable().with_store(store.clone(), events.clone()))
}

const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Starts a call that waits. Returns the id of its last event.
async fn start_slow_call(client: &mut Client) -> String {
    let mut params = json!({ "name": "slow", "arguments": {} });
    params["_meta"]["progressToken"] = 7.into();
    let mut events = client.ask("tools/call", params).await.events();
    while timeout(TEST_TIMEOUT, events.next()).await.unwrap().unwrap().data().is_empty() {}
    events.last_id().unwrap().to_owned()
}

async fn resume(client: &Client, url: &str, last: &str) -> stayput_testkit::mcp::Answer {
    let mut other =
        Client { urls: vec![url.to_owned()], ..client.clone() }.with("last-event-id", last);
    other.send(Method::GET, &Value::Null).await
}

/// R049, E07: a disconnected client resumes its stream, on the same replica and on another one.
#[tokio::test]
async fn stream_resumes_on_another_replica() {
    let replicas = two_replicas();
    let (one, two) = (
        Replica::start(&replicas[0], IDLE_TIMEOUT).await,
        Replica::start(&replicas[1], IDLE_TIMEOUT).await,
    );
    for url in [&one.url, &two.url] {
        let mut client = Client::modern(&one.url).with("x-user", "ann").initialize().await;
        let last = start_slow_call(&mut client).await;
        let mut events = resume(&client, url, &last).await.events();
        one.counter.go.notify_one();
        let answer = timeout(TEST_TIMEOUT, events.message()).await.unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
        // The stream can be replayed after the call has finished, too.
        let again = resume(&client, url, &last).await.message().await;
        assert_eq!(again, answer);
    }
}

/// E30, invariant 1: events are not replayed to another client, nor to another owner.
#[tokio::test]
async fn events_of_another_client_are_not_replayed() {
    let replicas = two_replicas();
    let one = Replica::start(&replicas[0], IDLE_TIMEOUT).await;
    let mut ann = Client::modern(&one.url).with("x-user", "ann").initialize().await;
    let last = start_slow_call(&mut ann).await;
    one.counter.go.notify_one();
    let other = Client::modern(&one.url).with("x-user", "ann").initialize().await;
    let bob = Client::modern(&one.url).with("x-user", "bob").initialize().await;
    for client in [&other, &bob] {
        let answer = resume(client, &one.url, &last).await;
        assert_eq!(answer.bytes().await.unwrap(), "", "an empty stream, as for an unknown id");
    }
    let stolen = Client { headers: vec![("x-user".into(), "bob".into())], ..ann.clone() };
    assert_eq!(resume(&stolen, &one.url, &last).await.status, 404);
    let answer = resume(&ann, &one.url, &last).await.message().await;
    assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
}

/// Invariant 7: an idle client is dropped from memory, but not one with a call in flight or an open stream; a dropped
/// client is restored when it returns.
#[tokio::test]
async fn only_idle_clients_are_dropped_from_memory() {
    let replicas = two_replicas();
    let replica = Replica::start(&replicas[0], Duration::from_millis(200)).await;
    let mut waits = Client::modern(&replica.url).initialize().await;
    let mut listens = Client::modern(&replica.url).initialize().await;
    let last = start_slow_call(&mut waits).await;
    let stream = listens.send(Method::GET, &Value::Null).await;
    assert_eq!(stream.status, 200);
    let mut silent = Client::modern(&replica.url).initialize().await;
    assert_eq!(silent.text("count", json!({ "by": 1 })).await, "1");
    wait_until("the idle client is dropped", async || replica.manager.live_sessions() == 2).await;
    assert_eq!(silent.text("count", json!({ "by": 1 })).await, "2");
    wait_until("the idle client is dropped again", async || replica.manager.live_sessions() == 2)
        .await;
    // The call continues without a reader.
    replica.counter.go.notify_one();
    let answer = resume(&waits, &replica.url, &last).await.message().await;
    assert_eq!(answer["result"]["content"][0]["text"], "1", "{answer}");
    drop(stream);
    wait_until("all clients are dropped", async || replica.manager.live_sessions() == 0).await;
}
