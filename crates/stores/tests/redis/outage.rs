//! A server that crashes, hangs or is full is an answer in time, and is used again when it is well.

use std::sync::Arc;

use stayput_core::{SessionId, Store, Topic};
use stayput_testkit::redis::Redis;

use crate::kit::{NOW, answer, named, open, put, refusal, says, unavailable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_loses_nothing_that_was_acknowledged() {
    let mut server = Redis::start();
    let database = open(&server.url()).await;
    let (store, events, record) = (&database.store, &database.events, named("k"));
    store.insert(&record, None).await.unwrap();
    let revision = store.put_state(record.id, put("x", b"1"), None);
    let revision = revision.await.unwrap();
    let topic = Topic { owner: record.owner.clone(), session: record.id, stream: 1 };
    events.append(&topic, b"said").await.unwrap();

    server.kill();
    unavailable(answer(store.load(record.id)).await);
    unavailable(answer(store.put_state(record.id, put("x", b"2"), None)).await);
    unavailable(answer(events.append(&topic, b"lost")).await);
    assert!(refusal(&server.url()).await.contains("refused"));

    server.start_again();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    let value = store.state(record.id, "x").await.unwrap().unwrap();
    assert_eq!((value.revision, &*value.bytes), (revision, &b"1"[..]));
    assert_eq!(events.after(&topic, 0, 9).await.unwrap()[0].body, b"said");
    store.put_state(record.id, put("x", b"3"), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_not_waited_for() {
    let server = Redis::start();
    let store = open(&server.url()).await.store;
    let record = named("k");
    store.insert(&record, None).await.unwrap();

    server.freeze();
    // Over the connection that is there, and over one that cannot be made.
    unavailable(answer(store.load(record.id)).await);
    unavailable(answer(store.put_state(record.id, put("x", b"1"), None)).await);
    assert!(refusal(&server.url()).await.contains("in time"));

    server.wake();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    store.put_state(record.id, put("x", b"2"), None).await.unwrap();
}

/// What the server says to a new connection once is not what it says for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lets_nobody_in_is_tried_again() {
    let server = Redis::start();
    let store = open(&server.url()).await.store;
    let id = SessionId::generate(NOW);
    says(&mut server.cli(), "config set requirepass other");
    says(server.cli().args(["-a", "other"]), "client kill type normal");
    let refused = async { while !unavailable(store.load(id).await).contains("NOAUTH") {} };
    answer(refused).await;
    let open = server.cli().args(["-a", "other", "config", "set", "requirepass", ""]).status();
    assert!(open.unwrap().success());
    assert_eq!(store.load(id).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_the_scripts_is_told_again() {
    let server = Redis::start();
    let database = open(&server.url()).await;
    let store: Arc<dyn Store> = database.store;
    let record = named("k");
    let flush = || says(&mut server.cli(), "script flush");
    flush();
    store.insert(&record, None).await.unwrap();
    flush();
    let touched = [(record.id, NOW), (record.id, NOW)];
    assert_eq!(store.touch(&touched, None).await.unwrap(), 2);
    flush();
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), None);
}
