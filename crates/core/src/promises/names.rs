//! What a store promises of handles, connections and contents.

use std::sync::Arc;

use super::{NOW, assert_fails, inserted, later, lease, loaded, named, owner, unnamed};
use crate::{
    CONNECTIONS_PER_SESSION, Connection, EndReason, HANDLES_PER_SESSION, Handle, HandleHash,
    Record, Seen, Store, StoreError, content_digest,
};

async fn found(store: &Arc<dyn Store>, hash: HandleHash) -> Option<Record> {
    store.find_handle(hash).await.unwrap()
}

/// Every handle that was issued is good, for its owner alone, also to ask what became of the session.
pub async fn several_handles_name_a_session(store: Arc<dyn Store>) {
    let mut record = inserted(&store, named("k")).await;
    let other = inserted(&store, unnamed()).await;
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
    record.revision = store.replace(&record, Seen::revision(&record), None).await.unwrap();
    assert_eq!(found(&store, handles[0].hash(&record.owner)).await, Some(record));
    let nothing = store.add_handle(unnamed().id, handles[0].hash(&owner("bob")), None).await;
    assert_fails!(nothing, StoreError::Missing);
}

/// Re-issuing without end does not fill the store.
pub async fn the_oldest_of_too_many_handles_is_forgotten(store: Arc<dyn Store>) {
    let record = inserted(&store, named("k")).await;
    let hashes: Vec<_> =
        (0..HANDLES_PER_SESSION + 2).map(|_| Handle::generate().hash(&record.owner)).collect();
    for hash in &hashes {
        store.add_handle(record.id, *hash, None).await.unwrap();
    }
    for (n, hash) in hashes.iter().enumerate() {
        assert_eq!(found(&store, *hash).await.is_some(), n >= 2, "handle {n}");
    }
    store.add_handle(record.id, hashes[2], None).await.unwrap(); // again, so it is the youngest
    store.add_handle(record.id, Handle::generate().hash(&record.owner), None).await.unwrap();
    assert!(found(&store, hashes[2]).await.is_some());
    assert!(found(&store, hashes[3]).await.is_none());
}

/// A connection survives a restart and the end of its session: its client must be told of the loss.
pub async fn a_connection_lives_until_its_session_is_forgotten(store: Arc<dyn Store>) {
    let mut record = inserted(&store, named("k")).await;
    let name = || Handle::generate().hash(&record.owner);
    let mut first =
        Connection { name: name(), session: record.id, used: NOW, body: vec![0, 255, 10] };
    let second = Connection { name: name(), session: record.id, used: NOW, body: Vec::new() };
    let lost = Connection { name: name(), session: unnamed().id, used: NOW, body: Vec::new() };
    assert_fails!(store.put_connection(&lost, NOW, None).await, StoreError::Missing);
    store.put_connection(&first, NOW, None).await.unwrap();
    store.put_connection(&second, NOW, None).await.unwrap();
    first.body = vec![7; 100_000];
    store.put_connection(&first, NOW, None).await.unwrap();
    record.end(EndReason::Idle, NOW);
    store.replace(&record, Seen::revision(&record), None).await.unwrap();
    assert_eq!(store.connection(first.name).await.unwrap().as_ref(), Some(&first));
    assert_eq!(store.connection(second.name).await.unwrap().as_ref(), Some(&second));
    for _ in 0..2 {
        store.remove_connection(second.name, None).await.unwrap();
        assert_eq!(store.connection(second.name).await.unwrap(), None);
    }
    store.remove(record.id, None).await.unwrap();
    assert_eq!(store.connection(first.name).await.unwrap(), None);
}

/// A session and the connection that leads to it are kept in one step: both or neither.
pub async fn a_session_can_come_with_its_connection(store: Arc<dyn Store>) {
    let to = |record: &Record| {
        let name = Handle::generate().hash(&record.owner);
        Connection { name, session: record.id, used: later(1), body: vec![0, 255, 10] }
    };
    let there = async |connection: &Connection| store.connection(connection.name).await.unwrap();
    let lease = lease(&store).await;
    let record = Record { holder: Some(lease), ..unnamed() };
    let first = to(&record);
    store.insert(&record, Some(&first)).await.unwrap();
    assert_eq!(loaded(&store, &record).await, record);
    assert_eq!(there(&first).await.as_ref(), Some(&first));
    let foreign = store.remove_connection(first.name, None).await;
    assert_fails!(foreign, StoreError::NotHolder);
    // An id or a key that is taken.
    let again = to(&record);
    assert_fails!(store.insert(&record, Some(&again)).await, StoreError::Taken { .. });
    assert_eq!(there(&again).await, None);
    let mut before = inserted(&store, named("k")).await;
    let next = named("k");
    let connection = to(&next);
    assert_fails!(store.insert(&next, Some(&connection)).await, StoreError::Taken { .. });
    assert_eq!((there(&connection).await, store.load(next.id).await.unwrap()), (None, None));
    // A successor.
    before.end(EndReason::Closed, NOW);
    store.replace(&before, Seen::revision(&before), None).await.unwrap();
    let generation = store.insert(&next, Some(&connection)).await.unwrap();
    assert_eq!(generation, before.generation.next());
    assert_eq!(there(&connection).await.as_ref(), Some(&connection));
    store.remove(record.id, Some(lease)).await.unwrap();
    assert_eq!(there(&first).await, None);
    assert!(there(&connection).await.is_some());
}

/// A connection can be led to another session, and then goes with that one.
pub async fn a_connection_can_lead_elsewhere(store: Arc<dyn Store>) {
    let (first, second) = (inserted(&store, named("a")).await, inserted(&store, named("b")).await);
    let name = Handle::generate().hash(&first.owner);
    let mut connection = Connection { name, session: first.id, used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, None).await.unwrap();
    connection.session = second.id;
    store.put_connection(&connection, NOW, None).await.unwrap();
    store.remove(first.id, None).await.unwrap();
    assert_eq!(store.connection(name).await.unwrap(), Some(connection));
    store.remove(second.id, None).await.unwrap();
    assert_eq!(store.connection(name).await.unwrap(), None);
}

/// Clients that connect anew and never say goodbye do not fill the store: of many connections those go that
/// nobody used for long, and no other one.
pub async fn of_many_connections_the_unused_are_forgotten(store: Arc<dyn Store>) {
    let (record, other) = (inserted(&store, named("k")).await, inserted(&store, named("l")).await);
    let put = async |session, minute, unused| {
        let name = Handle::generate().hash(&record.owner);
        let connection = Connection { name, session, used: later(minute), body: vec![1] };
        store.put_connection(&connection, later(unused), None).await.unwrap();
        name
    };
    let is_there = async |name| store.connection(name).await.unwrap().is_some();
    let elsewhere = put(other.id, 0, 0).await;
    let mut first = Vec::new();
    for minute in 0..3 {
        first.push(put(record.id, minute, 99).await);
    }
    // As many as there may be, however long nobody used them.
    for _ in 3..CONNECTIONS_PER_SESSION {
        put(record.id, 10, 99).await;
    }
    for name in &first {
        assert!(is_there(*name).await);
    }
    // More than that, and all were used since.
    put(record.id, 10, 0).await;
    assert!(is_there(first[0]).await);
    // The first is noted as used again: then it is not the one to go.
    let used =
        [(first[0], later(5)), (first[1], NOW), (Handle::generate().hash(&record.owner), NOW)];
    assert_eq!(store.touch_connections(&used, None).await.unwrap(), 2);
    let noted = store.connection(first[1]).await.unwrap().unwrap();
    assert_eq!(noted.used, later(1), "times never go back");
    put(record.id, 10, 5).await;
    let left = [is_there(first[0]).await, is_there(first[1]).await, is_there(first[2]).await];
    assert_eq!(left, [true, false, false]);
    assert!(is_there(elsewhere).await);
    // However long nobody used any of them, as many stay as there may be: those that were used last.
    let last = put(record.id, 10, 99).await;
    assert_eq!([is_there(first[0]).await, is_there(last).await], [false, true]);
    // One that is forgotten is not brought back by a late note.
    assert_eq!(store.touch_connections(&[(first[1], later(9))], None).await.unwrap(), 0);
    assert!(!is_there(first[1]).await);
}

/// Who knows the name of a connection cannot use it as a handle, nor the other way round.
pub async fn a_connection_is_no_handle(store: Arc<dyn Store>) {
    let record = inserted(&store, named("k")).await;
    let (handle, name) =
        (Handle::generate().hash(&record.owner), Handle::generate().hash(&record.owner));
    store.add_handle(record.id, handle, None).await.unwrap();
    store
        .put_connection(
            &Connection { name, session: record.id, used: NOW, body: vec![] },
            NOW,
            None,
        )
        .await
        .unwrap();
    assert_eq!(found(&store, name).await, None);
    assert_eq!(store.connection(handle).await.unwrap(), None);
    store.remove_connection(handle, None).await.unwrap();
    assert!(found(&store, handle).await.is_some());
}

/// The same content has one place.
pub async fn contents_are_kept_once(store: Arc<dyn Store>) {
    let content = vec![0, 1, 2, 255];
    let digest = store.put_content(&content).await.unwrap();
    assert_eq!(digest, content_digest(&content));
    assert_eq!(store.put_content(&content).await.unwrap(), digest);
    let other = store.put_content(b"").await.unwrap();
    assert_eq!(store.content(digest).await.unwrap(), Some(content));
    assert_eq!(store.content(other).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.content(content_digest(b"never put")).await.unwrap(), None);
}
