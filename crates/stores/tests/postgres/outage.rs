//! Crashes, hangs and locks of the server: every call is answered in time.

use std::process::Command;

use stayput_testkit::postgres::{Postgres, PostgresUrl};

use crate::kit::{
    answer, assert_unavailable, client, open, open_error, put, record, record_with_key,
    run_concurrently,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_crash_of_the_server() {
    let mut server = Postgres::start();
    let database = open(&server.url()).await;
    let (store, record) = (&database.store, record_with_key("k"));
    store.insert(&record, None).await.unwrap();
    let revision = store.put_state(record.id, put("x", b"1"), None).await.unwrap();
    // Opens several connections of the pool, which all break.
    let reads = run_concurrently(16, |_| {
        let (store, id) = (store.clone(), record.id);
        async move { store.load(id).await }
    });
    for read in reads.await {
        assert!(read.unwrap().is_some());
    }

    server.kill();
    assert_unavailable(answer(store.load(record.id)).await);
    assert_unavailable(answer(store.put_state(record.id, put("x", b"2"), None)).await);
    assert!(open_error(&server.url()).await.contains("refused"));

    server.start_again();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record.clone()));
    let value = store.load_state(record.id, "x").await.unwrap().unwrap();
    assert_eq!((value.revision, value.bytes.as_slice()), (revision, &b"1"[..]));
    store.put_state(record.id, put("x", b"3"), None).await.unwrap();
}

/// Stops all processes of a server until it is dropped.
struct Frozen(Vec<String>);

impl Frozen {
    fn new(server: &Postgres) -> Self {
        let first = server.id().to_string();
        // The parent is stopped before its children are listed: it starts and reaps none then.
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
async fn hanging_server_is_unavailable() {
    let server = Postgres::start();
    let database = open(&server.url()).await;
    let (store, record) = (&database.store, record_with_key("k"));
    store.insert(&record, None).await.unwrap();
    let frozen = Frozen::new(&server);
    let reads = run_concurrently(20, |_| {
        let (store, id) = (store.clone(), record.id);
        async move { store.load(id).await }
    });
    reads.await.into_iter().for_each(assert_unavailable);
    drop(frozen);
    assert_eq!(store.load(record.id).await.unwrap(), Some(record));
}

#[tokio::test]
async fn wait_for_a_lock_is_bounded() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let record = record_with_key("k");
    store.insert(&record, None).await.unwrap();
    let mut blocker = client(&at.url).await;
    let transaction = blocker.transaction().await.unwrap();
    let lock = "lock table stayput_session in access exclusive mode";
    transaction.batch_execute(lock).await.unwrap();
    assert_unavailable(answer(store.put_state(record.id, put("x", b"1"), None)).await);
    transaction.rollback().await.unwrap();
    assert_eq!(store.load_state(record.id, "x").await.unwrap(), None);
    store.put_state(record.id, put("x", b"2"), None).await.unwrap();
}

/// Simulates a failover that leaves the old primary running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_server_is_unavailable() {
    let server = Postgres::start();
    let store = open(&server.url()).await.store;
    let admin = client(&server.url()).await;
    let become_replica = "alter system set default_transaction_read_only = on";
    admin.batch_execute(become_replica).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    // The setting reaches the server's processes after a moment.
    let refused = answer(async {
        loop {
            if let Err(error) = store.insert(&record(), None).await {
                break error;
            }
        }
    });
    assert_unavailable::<()>(Err(refused.await));
    assert_unavailable(answer(store.insert(&record(), None)).await);
    assert!(open_error(&server.url()).await.contains("does not allow writes"));
    let become_primary = "alter system reset default_transaction_read_only";
    admin.batch_execute(become_primary).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    answer(async { while store.insert(&record(), None).await.is_err() {} }).await;
}
