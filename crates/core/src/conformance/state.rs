//! Contract of state.

use std::sync::Arc;

use super::{NOW, assert_fails, insert, record_with_key, record_without_key, run_concurrently};
use crate::{
    EndReason, ExpectedRevision, ExpectedValue, LimitKind, Revision, SessionId, State, StateKey,
    StateLimits, StateWrite, Store, StoreError,
};

fn put<'a>(key: &'a str, bytes: &'a [u8], expected: ExpectedValue) -> StateWrite<'a> {
    StateWrite { key, bytes, expected, limits: StateLimits::default() }
}

async fn read(store: &Arc<dyn Store>, id: SessionId, key: &str) -> Option<Vec<u8>> {
    store.load_state(id, key).await.unwrap().map(|value| value.bytes)
}

/// R057: values are arbitrary bytes, and keys do not collide.
pub async fn values_read_back_unchanged(store: Arc<dyn Store>) {
    let record = insert(&store, record_with_key("k")).await;
    let other = insert(&store, record_without_key()).await;
    let values = [
        ("b", vec![0, 255, 10, 13]),
        ("a", Vec::new()),
        ("ü:'{x}", vec![9; 200_000]),
        ("B", vec![1]),
    ];
    for (key, bytes) in &values {
        store.put_state(record.id, put(key, bytes, ExpectedValue::Absent), None).await.unwrap();
    }
    for (key, bytes) in &values {
        assert_eq!(read(&store, record.id, key).await.as_ref(), Some(bytes));
        assert_eq!(read(&store, other.id, key).await, None);
    }
    let keys = store.list_state_keys(record.id).await.unwrap();
    let shown: Vec<_> =
        keys.iter().map(|StateKey { key, size, .. }| (key.as_str(), *size)).collect();
    assert_eq!(shown, [("B", 1), ("a", 0), ("b", 4), ("ü:'{x}", 200_000)], "in byte order");
    for key in keys {
        let value = store.load_state(record.id, &key.key).await.unwrap().unwrap();
        assert_eq!(value.revision, key.revision);
    }
    assert!(store.list_state_keys(other.id).await.unwrap().is_empty());
}

/// A write is a compare-and-set.
pub async fn write_requires_the_expected_value(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let at_one = ExpectedValue::At(Revision(1));
    assert_fails!(store.put_state(id, put("x", b"0", at_one), None).await, StoreError::Stale);
    assert_fails!(store.remove_state(id, "x", at_one, None).await, StoreError::Stale);
    store.remove_state(id, "x", ExpectedValue::Any, None).await.unwrap();
    let first = store.put_state(id, put("x", b"1", ExpectedValue::Absent), None).await.unwrap();
    assert_fails!(
        store.put_state(id, put("x", b"2", ExpectedValue::Absent), None).await,
        StoreError::Stale
    );
    let second = store.put_state(id, put("x", b"3", ExpectedValue::At(first)), None).await.unwrap();
    assert_fails!(
        store.put_state(id, put("x", b"4", ExpectedValue::At(first)), None).await,
        StoreError::Stale
    );
    assert_fails!(
        store.remove_state(id, "x", ExpectedValue::At(first), None).await,
        StoreError::Stale
    );
    assert_fails!(
        store.remove_state(id, "x", ExpectedValue::Absent, None).await,
        StoreError::Stale
    );
    assert_eq!(read(&store, id, "x").await.unwrap(), b"3");
    store.put_state(id, put("y", b"other", ExpectedValue::Any), None).await.unwrap();
    store.remove_state(id, "x", ExpectedValue::At(second), None).await.unwrap();
    assert_eq!(read(&store, id, "x").await, None);
    assert_eq!(read(&store, id, "y").await.unwrap(), b"other");
}

/// A writer that saw a value before its removal does not mistake a new value for it.
pub async fn revisions_of_values_grow_across_removal(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let mut last = Revision(0);
    for round in 0..4 {
        let revision = store.put_state(id, put("x", b"v", ExpectedValue::Any), None).await.unwrap();
        assert!(revision > last, "round {round}");
        assert_eq!(store.load_state(id, "x").await.unwrap().unwrap().revision, revision);
        if round % 2 == 1 {
            store.remove_state(id, "x", ExpectedValue::At(revision), None).await.unwrap();
        }
        last = revision;
    }
}

/// R060: the error at a limit names the limit and the size, and nothing changes.
pub async fn write_above_a_limit_is_refused_with_limit_and_size(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let limits = StateLimits { key: 3, value: 10, session: 20, keys: 3 };
    let put = |key, bytes| StateWrite { key, bytes, expected: ExpectedValue::Any, limits };
    let refused = async |key, bytes| match store.put_state(id, put(key, bytes), None).await {
        Err(StoreError::TooLarge { kind, limit, size }) => (kind, limit, size),
        other => panic!("{key} is too large: {other:?}"),
    };
    assert_eq!(refused("long", b"").await, (LimitKind::Key, 3, 4));
    assert_eq!(refused("a", &[0; 11]).await, (LimitKind::Value, 10, 11));
    store.put_state(id, put("a", &[0; 10]), None).await.unwrap();
    assert_eq!(refused("b", &[0; 9]).await, (LimitKind::Session, 20, 21));
    store.put_state(id, put("b", &[0; 8]), None).await.unwrap();
    store.put_state(id, put("a", &[1; 10]), None).await.unwrap(); // a replaced value counts once
    assert_eq!(read(&store, id, "b").await.unwrap().len(), 8);
    store.put_state(id, put("b", &[0; 1]), None).await.unwrap();
    store.put_state(id, put("c", &[0; 1]), None).await.unwrap();
    assert_eq!(refused("d", b"").await, (LimitKind::Keys, 3, 4));
    store.remove_state(id, "a", ExpectedValue::Any, None).await.unwrap();
    store.put_state(id, put("d", &[0; 10]), None).await.unwrap(); // a removed value no longer counts
    assert_eq!(store.list_state_keys(id).await.unwrap().len(), 3);
}

/// E29: a write that would be lost is refused.
pub async fn ended_session_has_no_state(store: Arc<dyn Store>) {
    let mut record = insert(&store, record_with_key("k")).await;
    store.put_state(record.id, put("x", b"1", ExpectedValue::Any), None).await.unwrap();
    record.end(EndReason::Closed, NOW);
    store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
    for id in [record.id, record_without_key().id] {
        assert_fails!(
            store.put_state(id, put("x", b"2", ExpectedValue::Any), None).await,
            StoreError::Missing
        );
        assert_fails!(
            store.remove_state(id, "x", ExpectedValue::Any, None).await,
            StoreError::Missing
        );
        assert_eq!(read(&store, id, "x").await, None);
    }
    record.revision = Revision(record.revision.0 + 1);
    let seen = ExpectedRevision::revision(&record);
    record.revive(NOW);
    store.replace(&record, seen, None).await.unwrap();
    assert!(
        store.list_state_keys(record.id).await.unwrap().is_empty(),
        "a revived session starts without state"
    );
    store.put_state(record.id, put("x", b"3", ExpectedValue::Absent), None).await.unwrap();
}

/// Concurrent updates of one key lose no change.
pub async fn concurrent_updates_lose_nothing(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let state = State::new(store, id, None, StateLimits::default());
    let add = |n: usize| {
        let state = state.clone();
        async move {
            for m in 0..10 {
                state.update("all", |all: &mut Vec<usize>| all.push(n * 10 + m)).await.unwrap();
            }
        }
    };
    run_concurrently(10, add).await;
    let mut all: Vec<usize> = state.get("all").await.unwrap().unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

/// Keys are independent rows.
pub async fn concurrent_writes_to_different_keys_do_not_conflict(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let results = run_concurrently(16, |n| {
        let store = store.clone();
        async move {
            let key = format!("key-{n}");
            let mut expected = ExpectedValue::Absent;
            for _ in 0..5 {
                // No other writer uses this key, so the revision is always current.
                expected = ExpectedValue::At(
                    store.put_state(id, put(&key, key.as_bytes(), expected), None).await?,
                );
            }
            Ok::<_, StoreError>(())
        }
    })
    .await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for n in 0..16 {
        let key = format!("key-{n}");
        assert_eq!(read(&store, id, &key).await, Some(key.into_bytes()));
    }
}

/// The limit on a session holds against concurrent writers.
pub async fn concurrent_writes_do_not_exceed_the_limit(store: Arc<dyn Store>) {
    let id = insert(&store, record_with_key("k")).await.id;
    let results = run_concurrently(16, |n| {
        let store = store.clone();
        async move {
            let limits = StateLimits { session: 55, ..StateLimits::default() };
            let key = char::from(b'a' + u8::try_from(n).unwrap()).to_string();
            store
                .put_state(
                    id,
                    StateWrite { key: &key, bytes: &[0; 10], expected: ExpectedValue::Any, limits },
                    None,
                )
                .await
        }
    })
    .await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5, "{results:?}");
    assert_eq!(store.list_state_keys(id).await.unwrap().len(), 5);
}
