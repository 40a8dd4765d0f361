//! Contract of handles and connections.

use std::sync::Arc;

use super::{
    NOW, acquire_lease, assert_fails, insert, later, load, owner, record_with_key,
    record_without_key,
};
use crate::{
    Connection, EndReason, ExpectedRevision, Handle, HandleHash, MAX_HANDLES_PER_SESSION,
    RETAINED_CONNECTIONS_PER_SESSION, Record, Store, StoreError,
};

async fn found(store: &Arc<dyn Store>, hash: HandleHash) -> Option<Record> {
    store.find_by_handle(hash).await.unwrap()
}

/// Every issued handle is valid for its owner only, also after the end of the session.
pub async fn session_is_found_by_every_handle(store: Arc<dyn Store>) {
    let mut record = insert(&store, record_with_key("k")).await;
    let other = insert(&store, record_without_key()).await;
    let handles: Vec<_> = (0..3).map(|_| Handle::generate()).collect();
    for handle in &handles {
        store.add_handle(record.id, handle.hash(&record.owner), None).await.unwrap();
    }
    store.add_handle(other.id, Handle::generate().hash(&other.owner), None).await.unwrap();
    for handle in &handles {
        assert_eq!(found(&store, handle.hash(&record.owner)).await.as_ref(), Some(&record));
        assert_eq!(found(&store, handle.hash(&owner("eve"))).await, None);
    }
    record.end(EndReason::Closed, NOW);
    record.revision =
        store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
    assert_eq!(found(&store, handles[0].hash(&record.owner)).await, Some(record));
    let nothing =
        store.add_handle(record_without_key().id, handles[0].hash(&owner("bob")), None).await;
    assert_fails!(nothing, StoreError::Missing);
}

/// Repeated re-issue does not fill the store.
pub async fn oldest_handle_above_the_limit_is_removed(store: Arc<dyn Store>) {
    let record = insert(&store, record_with_key("k")).await;
    let hashes: Vec<_> =
        (0..MAX_HANDLES_PER_SESSION + 2).map(|_| Handle::generate().hash(&record.owner)).collect();
    for hash in &hashes {
        store.add_handle(record.id, *hash, None).await.unwrap();
    }
    for (n, hash) in hashes.iter().enumerate() {
        assert_eq!(found(&store, *hash).await.is_some(), n >= 2, "handle {n}");
    }
    store.add_handle(record.id, hashes[2], None).await.unwrap(); // again, so it is the newest
    store.add_handle(record.id, Handle::generate().hash(&record.owner), None).await.unwrap();
    assert!(found(&store, hashes[2]).await.is_some());
    assert!(found(&store, hashes[3]).await.is_none());
}

/// A connection survives a restart and the end of its session, because its client must get the
/// loss.
pub async fn connection_outlives_the_end_of_its_session(store: Arc<dyn Store>) {
    let mut record = insert(&store, record_with_key("k")).await;
    let name = || Handle::generate().hash(&record.owner);
    let mut first =
        Connection { name: name(), session: record.id, last_used: NOW, body: vec![0, 255, 10] };
    let second = Connection { name: name(), session: record.id, last_used: NOW, body: Vec::new() };
    let lost = Connection {
        name: name(),
        session: record_without_key().id,
        last_used: NOW,
        body: Vec::new(),
    };
    assert_fails!(store.put_connection(&lost, NOW, None).await, StoreError::Missing);
    store.put_connection(&first, NOW, None).await.unwrap();
    store.put_connection(&second, NOW, None).await.unwrap();
    first.body = vec![7; 100_000];
    store.put_connection(&first, NOW, None).await.unwrap();
    record.end(EndReason::Idle, NOW);
    store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
    assert_eq!(store.load_connection(first.name).await.unwrap().as_ref(), Some(&first));
    assert_eq!(store.load_connection(second.name).await.unwrap().as_ref(), Some(&second));
    for _ in 0..2 {
        store.remove_connection(second.name, None).await.unwrap();
        assert_eq!(store.load_connection(second.name).await.unwrap(), None);
    }
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.load_connection(first.name).await.unwrap(), None);
}

/// A session and its connection are stored in one step: both or neither.
pub async fn insert_stores_session_and_connection_together(store: Arc<dyn Store>) {
    let to = |record: &Record| {
        let name = Handle::generate().hash(&record.owner);
        Connection { name, session: record.id, last_used: later(1), body: vec![0, 255, 10] }
    };
    let there =
        async |connection: &Connection| store.load_connection(connection.name).await.unwrap();
    let lease = acquire_lease(&store).await;
    let record = Record { holder: Some(lease), ..record_without_key() };
    let first = to(&record);
    store.insert(&record, Some(&first)).await.unwrap();
    assert_eq!(load(&store, &record).await, record);
    assert_eq!(there(&first).await.as_ref(), Some(&first));
    let foreign = store.remove_connection(first.name, None).await;
    assert_fails!(foreign, StoreError::NotHolder);
    // With an id or a key that is taken.
    let again = to(&record);
    assert_fails!(store.insert(&record, Some(&again)).await, StoreError::Taken { .. });
    assert_eq!(there(&again).await, None);
    let mut before = insert(&store, record_with_key("k")).await;
    let next = record_with_key("k");
    let connection = to(&next);
    assert_fails!(store.insert(&next, Some(&connection)).await, StoreError::Taken { .. });
    assert_eq!((there(&connection).await, store.load(next.id).await.unwrap()), (None, None));
    // As a successor.
    before.end(EndReason::Closed, NOW);
    store.replace(&before, ExpectedRevision::revision(&before), None).await.unwrap();
    let generation = store.insert(&next, Some(&connection)).await.unwrap();
    assert_eq!(generation, before.generation.next());
    assert_eq!(there(&connection).await.as_ref(), Some(&connection));
    store.remove(record.id, Some(lease)).await.unwrap();
    assert_eq!(there(&first).await, None);
    assert!(there(&connection).await.is_some());
}

/// A connection can move to another session, and is then removed with that one.
pub async fn connection_can_move_to_another_session(store: Arc<dyn Store>) {
    let (first, second) =
        (insert(&store, record_with_key("a")).await, insert(&store, record_with_key("b")).await);
    let name = Handle::generate().hash(&first.owner);
    let mut connection = Connection { name, session: first.id, last_used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, None).await.unwrap();
    connection.session = second.id;
    store.put_connection(&connection, NOW, None).await.unwrap();
    store.remove(first.id, None).await.unwrap();
    assert_eq!(store.load_connection(name).await.unwrap(), Some(connection));
    store.remove(second.id, None).await.unwrap();
    assert_eq!(store.load_connection(name).await.unwrap(), None);
}

/// Clients that reconnect and never disconnect do not fill the store: above the limit, connections
/// that were unused for long are removed, and no other ones.
pub async fn stale_connections_above_the_limit_are_removed(store: Arc<dyn Store>) {
    let (record, other) =
        (insert(&store, record_with_key("k")).await, insert(&store, record_with_key("l")).await);
    let put = async |session, minute, unused| {
        let name = Handle::generate().hash(&record.owner);
        let connection = Connection { name, session, last_used: later(minute), body: vec![1] };
        store.put_connection(&connection, later(unused), None).await.unwrap();
        name
    };
    let is_there = async |name| store.load_connection(name).await.unwrap().is_some();
    let elsewhere = put(other.id, 0, 0).await;
    let mut first = Vec::new();
    for minute in 0..3 {
        first.push(put(record.id, minute, 99).await);
    }
    // Up to the limit none is removed, however long it was unused.
    for _ in 3..RETAINED_CONNECTIONS_PER_SESSION {
        put(record.id, 10, 99).await;
    }
    for name in &first {
        assert!(is_there(*name).await);
    }
    // Above the limit, but all were used since.
    put(record.id, 10, 0).await;
    assert!(is_there(first[0]).await);
    // A touch of the first one protects it.
    let used =
        [(first[0], later(5)), (first[1], NOW), (Handle::generate().hash(&record.owner), NOW)];
    assert_eq!(store.touch_connections(&used, None).await.unwrap(), 2);
    let touched = store.load_connection(first[1]).await.unwrap().unwrap();
    assert_eq!(touched.last_used, later(1), "times never go back");
    put(record.id, 10, 5).await;
    let left = [is_there(first[0]).await, is_there(first[1]).await, is_there(first[2]).await];
    assert_eq!(left, [true, false, false]);
    assert!(is_there(elsewhere).await);
    // If all are stale, the most recently used ones up to the limit stay.
    let last = put(record.id, 10, 99).await;
    assert_eq!([is_there(first[0]).await, is_there(last).await], [false, true]);
    // A late touch does not bring a removed one back.
    assert_eq!(store.touch_connections(&[(first[1], later(9))], None).await.unwrap(), 0);
    assert!(!is_there(first[1]).await);
}

/// The name of a connection does not work as a handle, and a handle not as a name.
pub async fn connection_name_is_not_a_handle(store: Arc<dyn Store>) {
    let record = insert(&store, record_with_key("k")).await;
    let (handle, name) =
        (Handle::generate().hash(&record.owner), Handle::generate().hash(&record.owner));
    store.add_handle(record.id, handle, None).await.unwrap();
    store
        .put_connection(
            &Connection { name, session: record.id, last_used: NOW, body: vec![] },
            NOW,
            None,
        )
        .await
        .unwrap();
    assert_eq!(found(&store, name).await, None);
    assert_eq!(store.load_connection(handle).await.unwrap(), None);
    store.remove_connection(handle, None).await.unwrap();
    assert!(found(&store, handle).await.is_some());
}
