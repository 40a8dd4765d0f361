//! Crashes, hangs and refusals of the server: every call is answered in time, and works again afterwards.

use std::sync::Arc;

use stayput_core::{SessionId, Store, Topic};
use stayput_testkit::redis::Redis;

use crate::kit::{
    NOW, answer, assert_unavailable, open, open_error, put, record_with_key, run_cli,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_crash_of_the_server() {
    let mut server = Redis::start();
    let database = open(&server.url()).await;
    let (store, events, record) = (&database.store, &database.events, record_with_key("k"));
    store.insert(&record, None).await.unwrap();
    let revision = store.put_state(record.id, put("x", b"1"), None);
    let revision = revision.await.unwrap();
    let topic = Topic { owner: record.owner.clone(), session: record.id, stream: 1 };
    events.append(&topic, b"said").await.unwrap();

    server.kill();
    assert_unavailable(answer(store.load(record.id)).await);
    assert_unavailable(answer(store.put_state(record.id, put("x", b"2"), None)).await);
    assert_unavailable(answer(events.append(&topic, b"lost")).await);
    assert!(open_error(&server.url()).await.contains("refused"));

    server.start_again();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    let value = store.load_state(record.id, "x").await.unwrap().unwrap();
    assert_eq!((value.revision, &*value.bytes), (revision, &b"1"[..]));
    assert_eq!(events.read_after(&topic, 0, 9).await.unwrap()[0].body, b"said");
    store.put_state(record.id, put("x", b"3"), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_server_is_unavailable() {
    let server = Redis::start();
    let store = open(&server.url()).await.store;
    let record = record_with_key("k");
    store.insert(&record, None).await.unwrap();

    server.freeze();
    // On the open connection, and on one that cannot be opened.
    assert_unavailable(answer(store.load(record.id)).await);
    assert_unavailable(answer(store.put_state(record.id, put("x", b"1"), None)).await);
    assert!(open_error(&server.url()).await.contains("in time"));

    server.wake();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    store.put_state(record.id, put("x", b"2"), None).await.unwrap();
}

/// A server that refuses a new connection once is tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connection_is_retried() {
    let server = Redis::start();
    let store = open(&server.url()).await.store;
    let id = SessionId::generate(NOW);
    run_cli(&mut server.cli(), "config set requirepass other");
    run_cli(server.cli().args(["-a", "other"]), "client kill type normal");
    let refused = async { while !assert_unavailable(store.load(id).await).contains("NOAUTH") {} };
    answer(refused).await;
    let open = server.cli().args(["-a", "other", "config", "set", "requirepass", ""]).status();
    assert!(open.unwrap().success());
    assert_eq!(store.load(id).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_again() {
    let server = Redis::start();
    let database = open(&server.url()).await;
    let store: Arc<dyn Store> = database.store;
    let record = record_with_key("k");
    let flush = || run_cli(&mut server.cli(), "script flush");
    flush();
    store.insert(&record, None).await.unwrap();
    flush();
    let touched = [(record.id, NOW), (record.id, NOW)];
    assert_eq!(store.touch(&touched, None).await.unwrap(), 2);
    flush();
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), None);
}
