//! What a call asks of the store, and what it makes of the answers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use stayput_core::{Connection, ManualClock, MemoryEvents, MemoryStore, SystemClock, Timestamp};
use stayput_server::NameSource;
use stayput_testkit::{faulty::Faulty, mcp::send};
use support::{Caller, World, builder};

/// R039, the cost: a request that touches its session costs one read, and one write if it changed something; one that does
/// not costs nothing.
#[tokio::test]
async fn a_call_asks_the_store_for_no_more_than_it_needs() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone()))));
    let sessions = builder().clock(clock).with_store(store.clone(), Arc::new(MemoryEvents::new()));
    let world = World::start(sessions).await;
    let handle = world.modern().start().await;
    let named = |mut says: Value| {
        says["session_id"] = handle.as_str().into();
        says
    };
    let (mut modern, mut legacy) = (world.modern(), world.legacy().await);
    for client in [&mut modern, &mut legacy] {
        let modern = client.connection.is_none();
        let by = |says: Value| if modern { named(says) } else { says };
        // The first one looks for the session.
        client.text("count", by(json!({ "by": 1 }))).await;
        store.asked();
        for (tool, says, asked) in [
            ("plain", json!({}), ""),
            ("read", json!({}), "state"),
            ("count", json!({ "by": 1 }), "state put_state"),
            ("does", json!({ "what": "get" }), "state"),
            ("does", json!({ "what": "set" }), "put_state"),
            ("does", json!({ "what": "remove" }), "remove_state"),
            // Nothing is there: because there is nothing, or because the session is over?
            ("does", json!({ "what": "get" }), "state load"),
            ("does", json!({ "what": "keys" }), "state_keys load"),
        ] {
            let named = if tool == "plain" { says.clone() } else { by(says.clone()) };
            client.text(tool, named).await;
            // What is done from time to time is not for this call.
            let mut verbs = store.asked();
            verbs.retain(|verb| !["touch", "due", "purge"].contains(verb));
            assert_eq!(verbs.join(" "), asked, "{tool} {says}");
        }
    }
}

/// Invariant 3, R057: what one process remembers of a session that another one has ended does not pass for an empty one,
/// whatever is done with it.
#[tokio::test]
async fn a_session_that_ended_elsewhere_is_over_here() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let events = Arc::new(MemoryEvents::new());
    let one = World::start(builder().with_store(store.clone(), events.clone())).await;
    let two = World::start(builder().with_store(store, events)).await;
    for what in ["get", "set", "remove", "keys", "info", "handle"] {
        let handle = one.modern().start().await;
        let says = |what: &str| json!({ "what": what, "session_id": handle });
        assert_eq!(one.modern().text("does", says("set")).await, "set");
        assert_eq!(one.modern().text("does", says("get")).await, "Some(7)");
        assert_eq!(two.modern().text("does", says("end")).await, "ended");
        let over = one.modern().error("does", says(what)).await;
        assert!(over.contains("was ended"), "{what}: {over}");
    }
    let handle = one.modern().start().await;
    let says = json!({ "by": 1, "session_id": handle });
    assert_eq!(one.modern().text("count", says.clone()).await, "1");
    two.modern().text("does", json!({ "what": "end", "session_id": handle })).await;
    assert!(one.modern().error("count", says).await.contains("was ended"));
}

/// R062: a store that does not answer is told as such, to a tool, a resource, a page and a connection, and a call that
/// wants none of it runs.
#[tokio::test]
async fn a_store_that_is_away_is_told() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let sessions =
        builder().name_sources([NameSource::Argument, NameSource::Header, NameSource::Connection]);
    let world =
        World::start(sessions.with_store(store.clone(), Arc::new(MemoryEvents::new()))).await;
    let mut client = world.modern().with("stayput-session", "key:a");
    client.text("count", json!({ "by": 1 })).await;
    store.fail(true);
    assert!(client.error("read", json!({})).await.contains("does not answer"));
    let read = client.request("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!(read["error"]["code"], -32603, "{read}");
    let page = world.url.replace("/mcp", "/count");
    let page = send(Method::GET, &page, &[("stayput-session", "key:a")], "").await.unwrap();
    assert_eq!(page.status, 503);
    let mut unknown = Caller { connection: Some("7".into()), ..world.modern() };
    assert_eq!(unknown.ask("ping", json!({})).await.status, 503);
    assert_eq!(client.text("plain", json!({})).await, "plain");
    store.fail(false);
    assert_eq!(client.text("read", json!({})).await, "1");
}

/// R062: the store hears that a connection is used, so that it forgets others that lead to the same session; once in a
/// while and not with each request.
#[tokio::test]
async fn the_store_is_told_that_a_connection_is_used() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone()))));
    let sessions =
        builder().clock(clock.clone()).with_store(store.clone(), Arc::new(MemoryEvents::new()));
    let world = World::start(sessions).await;
    let mut client = world.legacy().await;
    let mut told = Vec::new();
    for seconds in [2, 2, Connection::NOTED.as_secs(), 2, 2] {
        clock.advance(Duration::from_secs(seconds));
        store.asked();
        client.text("plain", json!({})).await;
        told.push(store.asked().contains(&"touch_connections"));
    }
    assert_eq!(told, [false, false, true, false, false]);
}
