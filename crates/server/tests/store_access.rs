//! Store requests of a call, and store failures.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use stayput_core::{Connection, ManualClock, MemoryEventLog, MemoryStore, SystemClock, Timestamp};
use stayput_server::NameSource;
use stayput_testkit::{faulty::Faulty, mcp::send};
use support::{Client, TestServer, builder};

/// R039: a request that uses its session costs one read, plus one write if it changes state; other requests cost
/// nothing.
#[tokio::test]
async fn call_makes_no_unneeded_store_request() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone()))));
    let sessions =
        builder().clock(clock).with_store(store.clone(), Arc::new(MemoryEventLog::new()));
    let server = TestServer::start(sessions).await;
    let handle = server.modern().start().await;
    let named = |mut arguments: Value| {
        arguments["session_id"] = handle.as_str().into();
        arguments
    };
    let (mut modern, mut legacy) = (server.modern(), server.legacy().await);
    for client in [&mut modern, &mut legacy] {
        let modern = client.connection.is_none();
        let by = |arguments: Value| if modern { named(arguments) } else { arguments };
        // The first call looks the session up.
        client.text("count", by(json!({ "by": 1 }))).await;
        store.asked();
        for (tool, arguments, asked) in [
            ("plain", json!({}), ""),
            ("read", json!({}), "load_state"),
            ("count", json!({ "by": 1 }), "load_state put_state"),
            ("does", json!({ "what": "get" }), "load_state"),
            ("does", json!({ "what": "set" }), "put_state"),
            ("does", json!({ "what": "remove" }), "remove_state"),
            // An empty result needs a second look, because the session may have ended.
            ("does", json!({ "what": "get" }), "load_state load"),
            ("does", json!({ "what": "keys" }), "list_state_keys load"),
        ] {
            let named = if tool == "plain" { arguments.clone() } else { by(arguments.clone()) };
            client.text(tool, named).await;
            // Ignore the background sweep.
            let mut verbs = store.asked();
            verbs.retain(|verb| !["touch", "list_due", "purge"].contains(verb));
            assert_eq!(verbs.join(" "), asked, "{tool} {arguments}");
        }
    }
}

/// Invariant 3, R057: a cached session that another process has ended is not treated as empty, whatever the
/// operation.
#[tokio::test]
async fn session_ended_by_another_process_is_refused() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let events = Arc::new(MemoryEventLog::new());
    let one = TestServer::start(builder().with_store(store.clone(), events.clone())).await;
    let two = TestServer::start(builder().with_store(store, events)).await;
    for what in ["get", "set", "remove", "keys", "info", "handle"] {
        let handle = one.modern().start().await;
        let arguments = |what: &str| json!({ "what": what, "session_id": handle });
        assert_eq!(one.modern().text("does", arguments("set")).await, "set");
        assert_eq!(one.modern().text("does", arguments("get")).await, "Some(7)");
        assert_eq!(two.modern().text("does", arguments("end")).await, "ended");
        let over = one.modern().error("does", arguments(what)).await;
        assert!(over.contains("was ended"), "{what}: {over}");
    }
    let handle = one.modern().start().await;
    let arguments = json!({ "by": 1, "session_id": handle });
    assert_eq!(one.modern().text("count", arguments.clone()).await, "1");
    two.modern().text("does", json!({ "what": "end", "session_id": handle })).await;
    assert!(one.modern().error("count", arguments).await.contains("was ended"));
}

/// R062: an unavailable store is reported to a tool, a resource, a page and a connection; a call without state still
/// runs.
#[tokio::test]
async fn unavailable_store_is_reported() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let sessions =
        builder().name_sources([NameSource::Argument, NameSource::Header, NameSource::Connection]);
    let server =
        TestServer::start(sessions.with_store(store.clone(), Arc::new(MemoryEventLog::new())))
            .await;
    let mut client = server.modern().with("stayput-session", "key:a");
    client.text("count", json!({ "by": 1 })).await;
    store.fail(true);
    assert!(client.error("read", json!({})).await.contains("does not answer"));
    let read = client.request("resources/read", json!({ "uri": "test://count" })).await;
    assert_eq!(read["error"]["code"], -32603, "{read}");
    let page = server.url.replace("/mcp", "/count");
    let page = send(Method::GET, &page, &[("stayput-session", "key:a")], "").await.unwrap();
    assert_eq!(page.status, 503);
    let mut unknown = Client { connection: Some("7".into()), ..server.modern() };
    assert_eq!(unknown.ask("ping", json!({})).await.status, 503);
    assert_eq!(client.text("plain", json!({})).await, "plain");
    store.fail(false);
    assert_eq!(client.text("read", json!({})).await, "1");
}

/// R170: the use of a connection is written to the store once in a while, not for each request. The store uses it to
/// forget older connections of the same session.
#[tokio::test]
async fn connection_use_is_written_once_in_a_while() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone()))));
    let sessions =
        builder().clock(clock.clone()).with_store(store.clone(), Arc::new(MemoryEventLog::new()));
    let server = TestServer::start(sessions).await;
    let mut client = server.legacy().await;
    let mut touched = Vec::new();
    for seconds in [2, 2, Connection::TOUCH_INTERVAL.as_secs(), 2, 2] {
        clock.advance(Duration::from_secs(seconds));
        store.asked();
        client.text("plain", json!({})).await;
        touched.push(store.asked().contains(&"touch_connections"));
    }
    assert_eq!(touched, [false, false, true, false, false]);
}
