//! A process that dies between two steps leaves no harmful data.
//!
//! Each test drops an operation after some steps, for every possible number of steps, and checks what
//! others see. All runs on one thread, so that every answer is awaited.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use stayput_core::{Connection, EndReason, Handle, HandleHash, Owner, Record, Store, StoreError};
use stayput_testkit::redis::Redis;

use crate::kit::{
    LATE, NOW, find_by_key, open, put, record_with_key, replace, run_cli, session_keys,
};

/// More steps than any operation has.
const MAX_STEPS: usize = 24;

/// Runs `work` until it has waited `steps` times, and then drops it. Returns whether it was completed.
async fn cut<T>(steps: usize, work: impl Future<Output = T>) -> bool {
    let (mut work, mut steps) = (pin!(work), steps);
    poll_fn(|context| match (work.as_mut().poll(context), steps) {
        (Poll::Ready(_), _) => Poll::Ready(true),
        (Poll::Pending, 0) => Poll::Ready(false),
        (Poll::Pending, _) => {
            steps -= 1;
            Poll::Pending
        }
    })
    .await
}

async fn start() -> (Redis, Arc<dyn Store>) {
    let server = Redis::start();
    let store = open(&server.url()).await.store;
    (server, store)
}

/// Creates a session with a handle, a connection and state.
async fn create_full(store: &dyn Store, name: &str) -> (Record, HandleHash, HandleHash) {
    let mut record = record_with_key(name);
    record.generation = store.insert(&record, None).await.unwrap();
    let hash = || Handle::generate().hash(&record.owner);
    let (handle, connection) = (hash(), hash());
    store.add_handle(record.id, handle, None).await.unwrap();
    let body = Connection { name: connection, session: record.id, last_used: NOW, body: vec![1] };
    store.put_connection(&body, NOW, None).await.unwrap();
    store.put_state(record.id, put("x", b"1"), None).await.unwrap();
    (record, handle, connection)
}

async fn end(store: &dyn Store, mut record: Record) -> Record {
    record.end(EndReason::Closed, NOW);
    record.revision = replace(store, &record).await.unwrap();
    record
}

async fn is_listed(store: &dyn Store, record: &Record) -> [bool; 3] {
    let holds = |records: Vec<Record>| records.iter().any(|other| other.id == record.id);
    [
        holds(store.list(None, None, 999).await.unwrap()),
        holds(store.list(Some(&record.owner), None, 999).await.unwrap()),
        holds(store.list_due(LATE, None, 999).await.unwrap()),
    ]
}

/// Opens the key as the next client: creates a session, or finds the existing one.
async fn open_next(store: &dyn Store, name: &str) -> Record {
    let next = record_with_key(name);
    let id = match store.insert(&next, None).await {
        Ok(_) => next.id,
        Err(StoreError::Taken { by }) => by,
        Err(other) => panic!("{other:?}"),
    };
    let found = find_by_key(store, name).await.unwrap();
    assert_eq!(found.id, id);
    assert_eq!(is_listed(store, &found).await, [true; 3]);
    found
}

/// Removes all sessions, and checks that no key is left.
async fn assert_no_keys_left(server: &Redis, store: &dyn Store) {
    for owner in [None, Some(Owner::local())] {
        for record in store.list(owner.as_ref(), None, 999).await.unwrap() {
            store.remove(record.id, None).await.unwrap();
        }
    }
    assert!(store.list_due(LATE, None, 999).await.unwrap().is_empty());
    store.purge(LATE, 999).await.unwrap();
    let keys = session_keys(&mut server.cli());
    assert!(keys.is_empty(), "{keys:#?}");
}

#[tokio::test]
async fn interrupted_insert_leaves_a_consistent_store() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..MAX_STEPS {
        for successor in [false, true] {
            let name = format!("{steps} {successor}");
            if successor {
                end(&*store, create_full(&*store, &name).await.0).await;
            }
            let record = record_with_key(&name);
            let name_of_it = Handle::generate().hash(&record.owner);
            let connection =
                Connection { name: name_of_it, session: record.id, last_used: NOW, body: vec![1] };
            let complete = cut(steps, store.insert(&record, Some(&connection))).await;
            cuts += usize::from(!complete);
            let there = store.load(record.id).await.unwrap();
            if let Some(there) = &there {
                assert_eq!(is_listed(&*store, there).await, [true; 3], "it can expire");
            }
            let led = store.load_connection(name_of_it).await.unwrap();
            assert!(led.is_none() || there.is_some(), "the connection leads nowhere");
            let found =
                find_by_key(&*store, &name).await.is_some_and(|found| found.id == record.id);
            assert!(
                !found || led == Some(connection),
                "the connection was stored with its session"
            );
            assert!(!complete || found);
            let next = open_next(&*store, &name).await;
            assert_eq!(next.generation.0 > 0, successor);
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_no_keys_left(&server, &*store).await;
}

#[tokio::test]
async fn interrupted_end_leaves_a_consistent_store() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..MAX_STEPS {
        let name = steps.to_string();
        let (record, handle, _) = create_full(&*store, &name).await;
        let mut over = record.clone();
        over.end(EndReason::Idle, NOW);
        cuts += usize::from(!cut(steps, replace(&*store, &over)).await);
        let there = store.load(record.id).await.unwrap().unwrap();
        assert_eq!(is_listed(&*store, &record).await, [there.is_live(); 3]);
        assert_eq!(find_by_key(&*store, &name).await.is_some(), there.is_live());
        assert_eq!(store.load_state(record.id, "x").await.unwrap().is_some(), there.is_live());
        assert_eq!(store.find_by_handle(handle).await.unwrap(), Some(there.clone()));
        if !there.is_live() {
            assert_eq!(store.purge(LATE, 999).await.unwrap(), 1);
            assert_eq!(store.load(record.id).await.unwrap(), None);
        }
        open_next(&*store, &name).await;
    }
    assert!(cuts > 3, "{cuts}");
    assert_no_keys_left(&server, &*store).await;
}

#[tokio::test]
async fn interrupted_revival_leaves_a_consistent_store() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..MAX_STEPS {
        for key_taken in [false, true] {
            let name = format!("{steps} {key_taken}");
            let mut record = end(&*store, create_full(&*store, &name).await.0).await;
            if key_taken {
                end(&*store, open_next(&*store, &name).await).await;
            }
            record.revive(NOW);
            cuts += usize::from(!cut(steps, replace(&*store, &record)).await);
            let there = store.load(record.id).await.unwrap().unwrap();
            assert_eq!(is_listed(&*store, &record).await, [there.is_live(); 3]);
            assert_eq!(
                find_by_key(&*store, &name).await,
                Some(there.clone()).filter(Record::is_live)
            );
            assert_eq!(open_next(&*store, &name).await.id == record.id, there.is_live());
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_no_keys_left(&server, &*store).await;
}

#[tokio::test]
async fn interrupted_removal_leaves_a_consistent_store() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..MAX_STEPS {
        for purge in [false, true] {
            let name = format!("{steps} {purge}");
            let (record, handle, connection) = create_full(&*store, &name).await;
            cuts += usize::from(if purge {
                end(&*store, record.clone()).await;
                !cut(steps, store.purge(LATE, 9)).await
            } else {
                !cut(steps, store.remove(record.id, None)).await
            });
            let there = store.load(record.id).await.unwrap();
            let by_handle = store.find_by_handle(handle).await.unwrap();
            assert_eq!(by_handle, there);
            let connected = store.load_connection(connection).await.unwrap();
            assert_eq!(connected.is_some(), there.is_some());
            assert_eq!(find_by_key(&*store, &name).await, there.clone().filter(Record::is_live));
            open_next(&*store, &name).await;
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_no_keys_left(&server, &*store).await;
}

/// The row decides, however far the update of the index got.
#[tokio::test]
async fn interrupted_change_of_expiry_lists_the_session_as_due() {
    let (_server, store) = start().await;
    for steps in 0..MAX_STEPS {
        let mut record = record_with_key(&steps.to_string());
        store.insert(&record, None).await.unwrap();
        record.expiry.idle = Some(std::time::Duration::from_secs(1));
        cut(steps, replace(&*store, &record)).await;
        let there = store.load(record.id).await.unwrap().unwrap();
        let deadline = there.deadline().unwrap();
        let due = store.list_due(deadline, None, 999).await.unwrap();
        assert!(due.contains(&there));
        store.remove(record.id, None).await.unwrap();
    }
}

/// A row without an index entry of its key, as the worst crash leaves it.
#[tokio::test]
async fn session_without_an_index_entry_does_not_block_its_key() {
    let (server, store) = start().await;
    let lost = record_with_key("k");
    store.insert(&lost, None).await.unwrap();
    let indexes = session_keys(&mut server.cli());
    let index = indexes.iter().find(|key| key.contains(":k:")).unwrap();
    run_cli(&mut server.cli(), &format!("del {index}"));
    assert_eq!(find_by_key(&*store, "k").await, None);
    assert_eq!(is_listed(&*store, &lost).await, [true; 3]);
    let next = record_with_key("k");
    store.insert(&next, None).await.unwrap();
    assert_eq!(find_by_key(&*store, "k").await, Some(next));
    end(&*store, lost).await;
    assert!(find_by_key(&*store, "k").await.is_some());
    assert_no_keys_left(&server, &*store).await;
}

/// An undecodable row is an error, and can be removed.
#[tokio::test]
async fn undecodable_row_can_be_removed() {
    let (server, store) = start().await;
    let (record, handle, _) = create_full(&*store, "k").await;
    let spoil = format!("hset stayput:{{{}}}:r created soon", record.id);
    run_cli(&mut server.cli(), &spoil);
    let text = store.load(record.id).await.unwrap_err();
    assert_eq!(text.to_string(), "the redis store holds a record that cannot be read");
    // It does not keep the others from being touched.
    let other = record_with_key("other");
    store.insert(&other, None).await.unwrap();
    let used = [(record.id, LATE), (other.id, LATE)];
    assert_eq!(store.touch(&used, None).await.unwrap(), 2);
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), None);
    assert_eq!(store.find_by_handle(handle).await.unwrap(), None);
    open_next(&*store, "k").await;
    assert_no_keys_left(&server, &*store).await;
}
