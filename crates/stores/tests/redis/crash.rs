//! A process that dies between two steps leaves nothing that is in the way.
//!
//! Each test lets an operation go a few steps and then drops it, for every number of steps there can
//! be; what others see then must be right. All is on one thread, so that every answer is waited for.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use stayput_core::{Connection, EndReason, Handle, HandleHash, Owner, Record, Store, StoreError};
use stayput_testkit::redis::Redis;

use crate::kit::{LATE, NOW, find, left, named, open, put, replace, says};

/// More than any operation has.
const STEPS: usize = 24;

/// Runs `work` until it has waited `steps` times, and drops it then; gives whether it was done.
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

/// A session with all that a session can have.
async fn whole(store: &dyn Store, name: &str) -> (Record, HandleHash, HandleHash) {
    let mut record = named(name);
    record.generation = store.insert(&record, None).await.unwrap();
    let hash = || Handle::generate().hash(&record.owner);
    let (handle, connection) = (hash(), hash());
    store.add_handle(record.id, handle, None).await.unwrap();
    let body = Connection { name: connection, session: record.id, used: NOW, body: vec![1] };
    store.put_connection(&body, NOW, None).await.unwrap();
    store.put_state(record.id, put("x", b"1"), None).await.unwrap();
    (record, handle, connection)
}

async fn ended(store: &dyn Store, mut record: Record) -> Record {
    record.end(EndReason::Closed, NOW);
    record.revision = replace(store, &record).await.unwrap();
    record
}

async fn listed(store: &dyn Store, record: &Record) -> [bool; 3] {
    let holds = |records: Vec<Record>| records.iter().any(|other| other.id == record.id);
    [
        holds(store.list(None, None, 999).await.unwrap()),
        holds(store.list(Some(&record.owner), None, 999).await.unwrap()),
        holds(store.due(LATE, None, 999).await.unwrap()),
    ]
}

/// Whoever comes next gets the key, or the session that has it.
async fn open_next(store: &dyn Store, name: &str) -> Record {
    let next = named(name);
    let id = match store.insert(&next, None).await {
        Ok(_) => next.id,
        Err(StoreError::Taken { by }) => by,
        Err(other) => panic!("{other:?}"),
    };
    let found = find(store, name).await.unwrap();
    assert_eq!(found.id, id);
    assert_eq!(listed(store, &found).await, [true; 3]);
    found
}

/// After all is forgotten nothing is left.
async fn assert_nothing_is_left(server: &Redis, store: &dyn Store) {
    for owner in [None, Some(Owner::local())] {
        for record in store.list(owner.as_ref(), None, 999).await.unwrap() {
            store.remove(record.id, None).await.unwrap();
        }
    }
    assert!(store.due(LATE, None, 999).await.unwrap().is_empty());
    store.purge(LATE, 999).await.unwrap();
    let left = left(&mut server.cli());
    assert!(left.is_empty(), "{left:#?}");
}

#[tokio::test]
async fn while_it_makes_a_session() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..STEPS {
        for successor in [false, true] {
            let name = format!("{steps} {successor}");
            if successor {
                ended(&*store, whole(&*store, &name).await.0).await;
            }
            let record = named(&name);
            let name_of_it = Handle::generate().hash(&record.owner);
            let connection =
                Connection { name: name_of_it, session: record.id, used: NOW, body: vec![1] };
            let whole = cut(steps, store.insert(&record, Some(&connection))).await;
            cuts += usize::from(!whole);
            let there = store.load(record.id).await.unwrap();
            if let Some(there) = &there {
                assert_eq!(listed(&*store, there).await, [true; 3], "it can end");
            }
            let led = store.connection(name_of_it).await.unwrap();
            assert!(led.is_none() || there.is_some(), "it leads nowhere");
            let found = find(&*store, &name).await.is_some_and(|found| found.id == record.id);
            assert!(!found || led == Some(connection), "it was kept with its session");
            assert!(!whole || found);
            let next = open_next(&*store, &name).await;
            assert_eq!(next.generation.0 > 0, successor);
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_nothing_is_left(&server, &*store).await;
}

#[tokio::test]
async fn while_it_ends_a_session() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..STEPS {
        let name = steps.to_string();
        let (record, handle, _) = whole(&*store, &name).await;
        let mut over = record.clone();
        over.end(EndReason::Idle, NOW);
        cuts += usize::from(!cut(steps, replace(&*store, &over)).await);
        let there = store.load(record.id).await.unwrap().unwrap();
        assert_eq!(listed(&*store, &record).await, [there.is_live(); 3]);
        assert_eq!(find(&*store, &name).await.is_some(), there.is_live());
        assert_eq!(store.state(record.id, "x").await.unwrap().is_some(), there.is_live());
        assert_eq!(store.find_handle(handle).await.unwrap(), Some(there.clone()));
        if !there.is_live() {
            assert_eq!(store.purge(LATE, 999).await.unwrap(), 1);
            assert_eq!(store.load(record.id).await.unwrap(), None);
        }
        open_next(&*store, &name).await;
    }
    assert!(cuts > 3, "{cuts}");
    assert_nothing_is_left(&server, &*store).await;
}

#[tokio::test]
async fn while_it_revives_a_session() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..STEPS {
        for robbed in [false, true] {
            let name = format!("{steps} {robbed}");
            let mut record = ended(&*store, whole(&*store, &name).await.0).await;
            if robbed {
                ended(&*store, open_next(&*store, &name).await).await;
            }
            record.revive(NOW);
            cuts += usize::from(!cut(steps, replace(&*store, &record)).await);
            let there = store.load(record.id).await.unwrap().unwrap();
            assert_eq!(listed(&*store, &record).await, [there.is_live(); 3]);
            assert_eq!(find(&*store, &name).await, Some(there.clone()).filter(Record::is_live));
            assert_eq!(open_next(&*store, &name).await.id == record.id, there.is_live());
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_nothing_is_left(&server, &*store).await;
}

#[tokio::test]
async fn while_it_forgets_a_session() {
    let (server, store) = start().await;
    let mut cuts = 0;
    for steps in 0..STEPS {
        for purge in [false, true] {
            let name = format!("{steps} {purge}");
            let (record, handle, connection) = whole(&*store, &name).await;
            cuts += usize::from(if purge {
                ended(&*store, record.clone()).await;
                !cut(steps, store.purge(LATE, 9)).await
            } else {
                !cut(steps, store.remove(record.id, None)).await
            });
            let there = store.load(record.id).await.unwrap();
            let named = store.find_handle(handle).await.unwrap();
            assert_eq!(named, there);
            let connected = store.connection(connection).await.unwrap();
            assert_eq!(connected.is_some(), there.is_some());
            assert_eq!(find(&*store, &name).await, there.clone().filter(Record::is_live));
            open_next(&*store, &name).await;
        }
    }
    assert!(cuts > 6, "{cuts}");
    assert_nothing_is_left(&server, &*store).await;
}

/// What was written last is what counts, however far an index got.
#[tokio::test]
async fn while_it_shortens_a_life() {
    let (_server, store) = start().await;
    for steps in 0..STEPS {
        let mut record = named(&steps.to_string());
        store.insert(&record, None).await.unwrap();
        record.expiry.idle = Some(std::time::Duration::from_secs(1));
        cut(steps, replace(&*store, &record)).await;
        let there = store.load(record.id).await.unwrap().unwrap();
        let deadline = there.deadline().unwrap();
        let due = store.due(deadline, None, 999).await.unwrap();
        assert!(due.contains(&there));
        store.remove(record.id, None).await.unwrap();
    }
}

/// A row whose key never led to it, as the worst crash leaves it.
#[tokio::test]
async fn a_session_without_its_key_keeps_nobody_from_it() {
    let (server, store) = start().await;
    let lost = named("k");
    store.insert(&lost, None).await.unwrap();
    let indexes = left(&mut server.cli());
    let index = indexes.iter().find(|key| key.contains(":k:")).unwrap();
    says(&mut server.cli(), &format!("del {index}"));
    assert_eq!(find(&*store, "k").await, None);
    assert_eq!(listed(&*store, &lost).await, [true; 3]);
    let next = named("k");
    store.insert(&next, None).await.unwrap();
    assert_eq!(find(&*store, "k").await, Some(next));
    ended(&*store, lost).await;
    assert!(find(&*store, "k").await.is_some());
    assert_nothing_is_left(&server, &*store).await;
}

/// What somebody else wrote into a row is an error that says so, and not for ever.
#[tokio::test]
async fn a_row_that_cannot_be_read_can_still_be_forgotten() {
    let (server, store) = start().await;
    let (record, handle, _) = whole(&*store, "k").await;
    let spoil = format!("hset stayput:{{{}}}:r created soon", record.id);
    says(&mut server.cli(), &spoil);
    let said = store.load(record.id).await.unwrap_err();
    assert_eq!(said.to_string(), "the redis store holds a record that cannot be read");
    // One of many does not keep the others from being noted.
    let other = named("other");
    store.insert(&other, None).await.unwrap();
    let used = [(record.id, LATE), (other.id, LATE)];
    assert_eq!(store.touch(&used, None).await.unwrap(), 2);
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), None);
    assert_eq!(store.find_handle(handle).await.unwrap(), None);
    open_next(&*store, "k").await;
    assert_nothing_is_left(&server, &*store).await;
}
