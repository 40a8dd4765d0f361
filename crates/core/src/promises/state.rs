//! What a store promises of state.

use std::sync::Arc;

use super::{NOW, assert_fails, at_once, inserted, named, unnamed};
use crate::{
    EndReason, Expect, Measure, Put, Revision, Seen, SessionId, State, StateKey, StateLimits,
    Store, StoreError,
};

fn put<'a>(key: &'a str, bytes: &'a [u8], expect: Expect) -> Put<'a> {
    Put { key, bytes, expect, limits: StateLimits::default() }
}

async fn read(store: &Arc<dyn Store>, id: SessionId, key: &str) -> Option<Vec<u8>> {
    store.state(id, key).await.unwrap().map(|value| value.bytes)
}

/// R057: bytes are bytes, and keys do not collide.
pub async fn values_read_back_as_they_were_put(store: Arc<dyn Store>) {
    let record = inserted(&store, named("k")).await;
    let other = inserted(&store, unnamed()).await;
    let values = [
        ("b", vec![0, 255, 10, 13]),
        ("a", Vec::new()),
        ("ü:'{x}", vec![9; 200_000]),
        ("B", vec![1]),
    ];
    for (key, bytes) in &values {
        store.put_state(record.id, put(key, bytes, Expect::Absent), None).await.unwrap();
    }
    for (key, bytes) in &values {
        assert_eq!(read(&store, record.id, key).await.as_ref(), Some(bytes));
        assert_eq!(read(&store, other.id, key).await, None);
    }
    let keys = store.state_keys(record.id).await.unwrap();
    let shown: Vec<_> =
        keys.iter().map(|StateKey { key, size, .. }| (key.as_str(), *size)).collect();
    assert_eq!(
        shown,
        [("B", 1), ("a", 0), ("b", 4), ("ü:'{x}", 200_000)],
        "in the order of their bytes"
    );
    for key in keys {
        let value = store.state(record.id, &key.key).await.unwrap().unwrap();
        assert_eq!(value.revision, key.revision);
    }
    assert!(store.state_keys(other.id).await.unwrap().is_empty());
}

/// Compare and set.
pub async fn a_put_happens_only_on_what_it_expects(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let at_one = Expect::At(Revision(1));
    assert_fails!(store.put_state(id, put("x", b"0", at_one), None).await, StoreError::Stale);
    assert_fails!(store.remove_state(id, "x", at_one, None).await, StoreError::Stale);
    store.remove_state(id, "x", Expect::Any, None).await.unwrap();
    let first = store.put_state(id, put("x", b"1", Expect::Absent), None).await.unwrap();
    assert_fails!(
        store.put_state(id, put("x", b"2", Expect::Absent), None).await,
        StoreError::Stale
    );
    let second = store.put_state(id, put("x", b"3", Expect::At(first)), None).await.unwrap();
    assert_fails!(
        store.put_state(id, put("x", b"4", Expect::At(first)), None).await,
        StoreError::Stale
    );
    assert_fails!(store.remove_state(id, "x", Expect::At(first), None).await, StoreError::Stale);
    assert_fails!(store.remove_state(id, "x", Expect::Absent, None).await, StoreError::Stale);
    assert_eq!(read(&store, id, "x").await.unwrap(), b"3");
    store.put_state(id, put("y", b"other", Expect::Any), None).await.unwrap();
    store.remove_state(id, "x", Expect::At(second), None).await.unwrap();
    assert_eq!(read(&store, id, "x").await, None);
    assert_eq!(read(&store, id, "y").await.unwrap(), b"other");
}

/// Whoever saw a value before it was removed and made again does not take the new one for it.
pub async fn revisions_of_values_grow_across_removal(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let mut last = Revision(0);
    for round in 0..4 {
        let revision = store.put_state(id, put("x", b"v", Expect::Any), None).await.unwrap();
        assert!(revision > last, "round {round}");
        assert_eq!(store.state(id, "x").await.unwrap().unwrap().revision, revision);
        if round % 2 == 1 {
            store.remove_state(id, "x", Expect::At(revision), None).await.unwrap();
        }
        last = revision;
    }
}

/// R060: at a limit the error names it and the size, and nothing is changed.
pub async fn limits_are_named_with_their_sizes(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let limits = StateLimits { key: 3, value: 10, session: 20, keys: 3 };
    let put = |key, bytes| Put { key, bytes, expect: Expect::Any, limits };
    let refused = async |key, bytes| match store.put_state(id, put(key, bytes), None).await {
        Err(StoreError::TooLarge { measure, limit, size }) => (measure, limit, size),
        other => panic!("{key} is too large: {other:?}"),
    };
    assert_eq!(refused("long", b"").await, (Measure::Key, 3, 4));
    assert_eq!(refused("a", &[0; 11]).await, (Measure::Value, 10, 11));
    store.put_state(id, put("a", &[0; 10]), None).await.unwrap();
    assert_eq!(refused("b", &[0; 9]).await, (Measure::Session, 20, 21));
    store.put_state(id, put("b", &[0; 8]), None).await.unwrap();
    store.put_state(id, put("a", &[1; 10]), None).await.unwrap(); // a replaced value counts once
    assert_eq!(read(&store, id, "b").await.unwrap().len(), 8);
    store.put_state(id, put("b", &[0; 1]), None).await.unwrap();
    store.put_state(id, put("c", &[0; 1]), None).await.unwrap();
    assert_eq!(refused("d", b"").await, (Measure::Keys, 3, 4));
    store.remove_state(id, "a", Expect::Any, None).await.unwrap();
    store.put_state(id, put("d", &[0; 10]), None).await.unwrap(); // what was removed counts no more
    assert_eq!(store.state_keys(id).await.unwrap().len(), 3);
}

/// E29: a write that would be lost is refused.
pub async fn what_is_over_has_no_state(store: Arc<dyn Store>) {
    let mut record = inserted(&store, named("k")).await;
    store.put_state(record.id, put("x", b"1", Expect::Any), None).await.unwrap();
    record.end(EndReason::Closed, NOW);
    store.replace(&record, Seen::revision(&record), None).await.unwrap();
    for id in [record.id, unnamed().id] {
        assert_fails!(
            store.put_state(id, put("x", b"2", Expect::Any), None).await,
            StoreError::Missing
        );
        assert_fails!(store.remove_state(id, "x", Expect::Any, None).await, StoreError::Missing);
        assert_eq!(read(&store, id, "x").await, None);
    }
    record.revision = Revision(record.revision.0 + 1);
    let seen = Seen::revision(&record);
    record.revive(NOW);
    store.replace(&record, seen, None).await.unwrap();
    assert!(
        store.state_keys(record.id).await.unwrap().is_empty(),
        "a revived session begins empty"
    );
    store.put_state(record.id, put("x", b"3", Expect::Absent), None).await.unwrap();
}

/// Two concurrent updates never lose one.
pub async fn concurrent_updates_lose_nothing(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let state = State::new(store, id, None, StateLimits::default());
    let add = |n: usize| {
        let state = state.clone();
        async move {
            for m in 0..10 {
                state.update("all", |all: &mut Vec<usize>| all.push(n * 10 + m)).await.unwrap();
            }
        }
    };
    at_once(10, add).await;
    let mut all: Vec<usize> = state.get("all").await.unwrap().unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

/// Keys are rows of their own.
pub async fn concurrent_updates_of_other_keys_do_not_meet(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let results = at_once(16, |n| {
        let store = store.clone();
        async move {
            let key = format!("key-{n}");
            let mut expect = Expect::Absent;
            for _ in 0..5 {
                // With nobody else on this key, what was seen is what is there.
                expect =
                    Expect::At(store.put_state(id, put(&key, key.as_bytes(), expect), None).await?);
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

/// The limit on a session holds against many writers at once.
pub async fn of_many_puts_at_the_limit_none_goes_past_it(store: Arc<dyn Store>) {
    let id = inserted(&store, named("k")).await.id;
    let results = at_once(16, |n| {
        let store = store.clone();
        async move {
            let limits = StateLimits { session: 55, ..StateLimits::default() };
            let key = char::from(b'a' + u8::try_from(n).unwrap()).to_string();
            store
                .put_state(
                    id,
                    Put { key: &key, bytes: &[0; 10], expect: Expect::Any, limits },
                    None,
                )
                .await
        }
    })
    .await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5, "{results:?}");
    assert_eq!(store.state_keys(id).await.unwrap().len(), 5);
}
