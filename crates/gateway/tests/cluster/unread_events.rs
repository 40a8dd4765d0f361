//! Events that clients have not read when a replica drains.

use serde_json::{Value, json};
use stayput_testkit::mcp::{Events, TestServer};
use tokio::{process::Command, time::timeout};

use crate::{
    database_use::Recorder,
    drain::{drain, draining},
    modern::Modern,
    replicas::{Database, Replicas},
    support::{Client, Gateway, LONG, gone, mark, stdio},
};

/// Starts a call at a replica, and disconnects after its first message. Returns the id of that event.
async fn leave_call(client: &Client, gateway: &Gateway) -> String {
    let params = json!({
        "name": "slow", "arguments": { "ms": 1_500, "steps": 2 }, "_meta": { "progressToken": 1 },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
    let mut events = client.send(gateway, &body.to_string()).await.events();
    let first = timeout(LONG, events.message()).await.unwrap().unwrap();
    assert_eq!(first["method"], "notifications/progress");
    events.last_id().unwrap().to_owned()
}

/// Reads a stream to its end.
async fn rest(mut events: Events) -> Vec<Value> {
    let rest = async {
        let mut all = Vec::new();
        while let Some(message) = events.message().await {
            all.push(message);
        }
        all
    };
    timeout(LONG, rest).await.expect("the stream ends")
}

/// Waits until no client is connected to the sessions at a replica.
async fn unconnected(gateway: &Gateway) {
    let alone = async {
        loop {
            let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
            command.args(["sessions", "--all", "--json", "--config"]).arg(gateway.config());
            command.env("XDG_DATA_HOME", gateway.folder.path().join("data"));
            let output = command.output().await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("\"state\""), "{text}");
            if !text.contains("\"connected\"") && !text.contains("\"busy\"") {
                return;
            }
        }
    };
    timeout(LONG, alone).await.expect("the client is seen to be gone");
}

/// §7: the answer of a call whose client has disconnected, and what came on a stream without a reader, are found by
/// `Last-Event-ID` at the next holder.
async fn check_unread_events(database: &Database, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "web": { "url": web.url() } });
    let replicas = Replicas::with(&servers, &draining(database.url(), "5s")).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let client = zero.client("web").await;
    assert_eq!(client.text(zero, "count").await, "1");
    let call = leave_call(&client, one).await;
    let mut stream = client.get(zero, None).await.events();
    stream.next().await.unwrap();
    let heard = stream.last_id().unwrap().to_owned();
    drop(stream);
    unconnected(zero).await;
    client.call(zero, "notify", json!({ "tool": "grown" })).await;
    let (success, told) = drain(zero, &["--json"]).await;
    assert!(success && told.contains("\"moved\":1"), "{told}");

    let events = client.get(two, Some(&call)).await.events();
    let messages = rest(events).await;
    let done = messages.last().unwrap_or_else(|| panic!("{}", replicas.logs()));
    assert_eq!((&done["id"], done["result"].is_object()), (&json!(9), true), "{messages:?}");
    // The next holder keeps it, so a client whose connection breaks again can read it again.
    assert_eq!(rest(client.get(one, Some(&call)).await.events()).await, messages);

    // The stream on which the client listens goes on.
    let mut stream = client.get(one, Some(&heard)).await.events();
    for _ in 0..2 {
        let message = timeout(LONG, stream.message()).await.unwrap().unwrap();
        assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
        client.call(two, "notify", json!({ "tool": "more" })).await;
    }
    // Another client gets nothing by the id, at any replica.
    let other = two.client("web").await;
    let mut stream = other.get(one, Some(&call)).await.events();
    let prime = timeout(LONG, stream.next()).await.unwrap().unwrap();
    assert!(prime.data().is_empty());
    other.call(two, "count", json!({})).await;
    other.call(two, "notify", json!({ "tool": "others" })).await;
    let message = timeout(LONG, stream.message()).await.unwrap().unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
    drop(replicas);
    gone(&mark).await;
}

#[tokio::test]
async fn unread_events_are_found_at_the_next_holder_on_postgres() {
    check_unread_events(&Database::postgres().await, "unread-postgres").await;
}

#[tokio::test]
async fn unread_events_are_found_at_the_next_holder_on_redis() {
    check_unread_events(&Database::redis().await, "unread-redis").await;
}

/// A session with a process is given up at the deadline: the client of its last call learns what became of it.
#[tokio::test]
async fn call_that_is_cut_off_by_a_drain_is_reported_at_the_next_holder() {
    let (mark, database) = (mark("unread-cut"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::with(&servers, &draining(database.url(), "300ms")).await;
    let [zero, one, two] = &replicas.all[..] else { panic!() };
    let client = zero.client("local").await;
    let params = json!({
        "name": "slow", "arguments": { "ms": 60_000, "steps": 600 }, "_meta": { "progressToken": 1 },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
    let mut events = client.send(one, &body.to_string()).await.events();
    timeout(LONG, events.message()).await.unwrap().unwrap();
    let last = events.last_id().unwrap().to_owned();
    drop(events);
    let (success, told) = drain(zero, &["--json"]).await;
    assert!(success && told.contains("\"given_up\":1"), "{told}");
    let messages = rest(client.get(two, Some(&last)).await.events()).await;
    let done = messages.last().unwrap_or_else(|| panic!("{}", replicas.logs()));
    assert_eq!(done["id"], 9, "{done}");
    assert!(done.to_string().contains("may or may not have been carried out"), "{done}");
    drop(replicas);
    gone(&mark).await;
}

/// A JSON answer, a stream that was read, and everything for modern clients never touch the events in the store, not even in
/// a drain. What is unread does, and is removed with its session.
async fn check_use_of_the_store(recorder: Recorder, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "web": { "url": web.url() } });
    let replicas = Replicas::with(&servers, &draining(&recorder.url(), "5s")).await;
    let begin = recorder.position(0).await;
    for (holder, is_left) in [(0, false), (1, true)] {
        let gateway = &replicas.all[holder];
        let client = gateway.client("web").await;
        client.text(gateway, "count").await;
        let params = json!({
            "name": "slow", "arguments": { "ms": 10, "steps": 4 }, "_meta": { "progressToken": 1 },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
        assert!(rest(client.send(gateway, &body.to_string()).await.events()).await.len() > 1);
        let modern = Modern::of(gateway, "web").named(&format!("chat-{holder}"));
        modern.text("count").await;
        if is_left {
            leave_call(&client, gateway).await;
        }
        let (success, told) = drain(gateway, &["--json"]).await;
        assert!(success && told.contains("\"given_up\":0"), "{told}");
        let end = recorder.position(1 + holder).await;
        let log = recorder.log();
        let used = recorder.uses_of_events(&log[begin..end]);
        assert_eq!(!used.is_empty(), is_left, "{used:#?}");
        if is_left {
            assert_eq!(client.delete(&replicas.all[2]).await, 200);
            let log = (recorder.position(3).await, recorder.log());
            let used = recorder.uses_of_events(&log.1[end..log.0]);
            let removes =
                |it: &String| it.contains("delete from stayput_topic") || it.contains("\"DEL\"");
            assert!(used.iter().any(removes), "{used:#?}");
        }
    }
    drop((replicas, recorder));
    gone(&mark).await;
}

#[tokio::test]
async fn events_are_stored_in_postgres_only_if_they_are_unread() {
    let recorder = tokio::task::spawn_blocking(Recorder::postgres).await.unwrap();
    check_use_of_the_store(recorder, "unread-asks-postgres").await;
}

#[tokio::test]
async fn events_are_stored_in_redis_only_if_they_are_unread() {
    let recorder = tokio::task::spawn_blocking(Recorder::redis).await.unwrap();
    check_use_of_the_store(recorder, "unread-asks-redis").await;
}
