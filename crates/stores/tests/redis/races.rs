//! Interleaved steps of several processes.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use stayput_core::{Connection, EndReason, Handle, Owner, Record, Store, StoreError};
use stayput_testkit::redis::Redis;

use crate::kit::{LATE, NOW, answer, find_by_key, open, record_with_key, replace, session_keys};

/// Counts the live sessions with the key, and the results.
#[derive(Default)]
struct Count {
    live: AtomicI64,
    made: AtomicUsize,
    revived: AtomicUsize,
    refused: AtomicUsize,
}

impl Count {
    fn note(&self, result: Result<(), StoreError>, done: &AtomicUsize) {
        match result {
            Ok(()) => {
                let others = self.live.fetch_add(1, Ordering::SeqCst);
                assert!(others <= 0, "two sessions have one key");
                done.fetch_add(1, Ordering::SeqCst);
            }
            Err(StoreError::Taken { .. } | StoreError::Stale | StoreError::Missing) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Creates, ends, revives and lists sessions of one key, as fast as it can.
async fn run_operations(store: Arc<dyn Store>, count: Arc<Count>, rounds: usize) {
    let mut over: Vec<Record> = Vec::new();
    for round in 0..rounds {
        let record = record_with_key("k");
        let name = Handle::generate().hash(&record.owner);
        let led = Connection { name, session: record.id, last_used: NOW, body: Vec::new() };
        let made = store.insert(&record, Some(&led)).await.map(drop);
        count.note(made, &count.made);
        if let Some(mut record) = find_by_key(&*store, "k").await {
            record.end(EndReason::Closed, NOW);
            // It may have ended from here on.
            count.live.fetch_sub(1, Ordering::SeqCst);
            match replace(&*store, &record).await {
                Ok(revision) => over.push(Record { revision, ..record }),
                Err(StoreError::Stale | StoreError::Missing) => {
                    count.live.fetch_add(1, Ordering::SeqCst);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        if let Some(record) = over.last() {
            let mut record = record.clone();
            record.revive(NOW);
            let revived = replace(&*store, &record).await.map(drop);
            count.note(revived, &count.revived);
        }
        match round % 8 {
            3 => drop(store.list_due(LATE, None, 9).await.unwrap()),
            5 => drop(store.list(Some(&Owner::local()), None, 9).await.unwrap()),
            7 => drop(store.purge(LATE, 3).await.unwrap()),
            _ => {}
        }
    }
}

/// A key has one live session, whatever several processes do concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods)] // These tasks belong to no session, and all are awaited.
async fn key_has_one_live_session() {
    let server = Redis::start();
    let count = Arc::new(Count::default());
    let mut tasks = Vec::new();
    for _ in 0..6 {
        // Each has its own connection, as a separate process would.
        let store = open(&server.url()).await.store;
        tasks.push(tokio::spawn(run_operations(store, count.clone(), 80)));
    }
    for task in tasks {
        answer(task).await.unwrap();
    }
    let store = open(&server.url()).await.store;
    let live = store.list(None, None, 999).await.unwrap();
    assert!(live.len() <= 1, "{live:#?}");
    assert_eq!(find_by_key(&*store, "k").await.as_ref(), live.first());
    assert_eq!(store.list_due(LATE, None, 999).await.unwrap(), live);
    let seen = |count: &AtomicUsize| count.load(Ordering::SeqCst) > 0;
    assert!(seen(&count.made) && seen(&count.revived) && seen(&count.refused));

    for record in live {
        store.remove(record.id, None).await.unwrap();
    }
    store.purge(LATE, 9_999).await.unwrap();
    let keys = session_keys(&mut server.cli());
    assert!(keys.is_empty(), "{keys:#?}");
}
