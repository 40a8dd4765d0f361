//! A server that crashes, hangs or waits is an answer in time.

use std::process::Command;

use stayput_testkit::postgres::{Postgres, PostgresUrl};

use crate::kit::{answer, assert_unavailable, at_once, client, named, open, put, record, refusal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_loses_nothing_that_was_acknowledged() {
    let mut server = Postgres::start();
    let database = open(&server.url()).await;
    let (store, record) = (&database.store, named("k"));
    store.insert(&record, None).await.unwrap();
    let revision = store.put_state(record.id, put("x", b"1"), None).await.unwrap();
    // Several connections of the pool, all of which will be dead.
    let reads = at_once(16, |_| {
        let (store, id) = (store.clone(), record.id);
        async move { store.load(id).await }
    });
    for read in reads.await {
        assert!(read.unwrap().is_some());
    }

    server.kill();
    assert_unavailable(answer(store.load(record.id)).await);
    assert_unavailable(answer(store.put_state(record.id, put("x", b"2"), None)).await);
    assert!(refusal(&server.url()).await.contains("refused"));

    server.start_again();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    let value = store.state(record.id, "x").await.unwrap().unwrap();
    assert_eq!((value.revision, value.bytes.as_slice()), (revision, &b"1"[..]));
    store.put_state(record.id, put("x", b"3"), None).await.unwrap();
}

/// All processes of a server, stopped until this is dropped.
struct Frozen(Vec<String>);

impl Frozen {
    fn new(server: &Postgres) -> Self {
        let first = server.id().to_string();
        // The first one is stopped before the others are counted: it neither makes nor buries any then.
        let mut frozen = Self(vec![first.clone()]);
        frozen.signal("STOP");
        let others = Command::new("pgrep").args(["-P", &first]).output().unwrap();
        let others = String::from_utf8(others.stdout).unwrap();
        assert!(!others.is_empty());
        frozen.0.splice(0..0, others.lines().map(str::to_owned));
        frozen.signal("STOP");
        frozen
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name]).args(&self.0).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_not_waited_for() {
    let server = Postgres::start();
    let database = open(&server.url()).await;
    let (store, record) = (&database.store, named("k"));
    store.insert(&record, None).await.unwrap();
    let frozen = Frozen::new(&server);
    let reads = at_once(20, |_| {
        let (store, id) = (store.clone(), record.id);
        async move { store.load(id).await }
    });
    reads.await.into_iter().for_each(assert_unavailable);
    drop(frozen);
    assert_eq!(store.load(record.id).await.unwrap(), Some(record));
}

#[tokio::test]
async fn a_lock_is_not_waited_for_without_end() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let record = named("k");
    store.insert(&record, None).await.unwrap();
    let mut blocker = client(&at.url).await;
    let transaction = blocker.transaction().await.unwrap();
    let lock = "lock table stayput_session in access exclusive mode";
    transaction.batch_execute(lock).await.unwrap();
    assert_unavailable(answer(store.put_state(record.id, put("x", b"1"), None)).await);
    transaction.rollback().await.unwrap();
    assert_eq!(store.state(record.id, "x").await.unwrap(), None);
    store.put_state(record.id, put("x", b"2"), None).await.unwrap();
}

/// As in a failover that leaves the old primary standing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_not_there() {
    let server = Postgres::start();
    let store = open(&server.url()).await.store;
    let admin = client(&server.url()).await;
    let become_replica = "alter system set default_transaction_read_only = on";
    admin.batch_execute(become_replica).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    // It takes the server a moment to tell its processes.
    let refused = answer(async {
        loop {
            if let Err(error) = store.insert(&record(), None).await {
                break error;
            }
        }
    });
    assert_unavailable::<()>(Err(refused.await));
    assert_unavailable(answer(store.insert(&record(), None)).await);
    assert!(refusal(&server.url()).await.contains("does not allow writes"));
    let become_primary = "alter system reset default_transaction_read_only";
    admin.batch_execute(become_primary).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    answer(async { while store.insert(&record(), None).await.is_err() {} }).await;
}
