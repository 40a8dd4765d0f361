//! Contract of leases and claims.

use std::{sync::Arc, time::Duration};

use super::{
    MINUTE, NOW, acquire_lease, assert_fails, assert_one_winner, insert, later, load,
    record_with_key, record_without_key, run_concurrently, wait_until_expired,
};
use crate::{
    Connection, ExpectedRevision, ExpectedValue, Handle, Holder, Lease, Record, StateLimits,
    StateWrite, Store, StoreError,
};

/// A later lease has a higher epoch, and other processes can read its holder and address.
pub async fn epochs_grow_and_leases_name_their_holder(store: Arc<dyn Store>) {
    let (one, two) = (Holder::at("http://[::1]:1/ü").unwrap(), Holder::unreachable());
    let first = store.acquire_lease(&one, MINUTE).await.unwrap();
    let second = store.acquire_lease(&two, Duration::MAX).await.unwrap();
    let third = store.acquire_lease(&one, MINUTE).await.unwrap();
    assert!(first.epoch < second.epoch && second.epoch < third.epoch);
    assert_eq!((first.holder, second.holder), (one.id, two.id));
    assert_eq!(store.lease_holder(first).await.unwrap(), Some(one.clone()));
    assert_eq!(store.lease_holder(second).await.unwrap(), Some(two.clone()));
    let forged = Lease { holder: two.id, epoch: first.epoch };
    assert_eq!(store.lease_holder(forged).await.unwrap(), None, "holder and epoch belong together");
    assert_fails!(store.renew_lease(forged, MINUTE).await, StoreError::LeaseLost);
    let epochs = run_concurrently(8, |_| {
        let store = store.clone();
        async move { acquire_lease(&store).await.epoch }
    })
    .await;
    assert_eq!(epochs.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
}

/// A claimed session cannot be claimed by another process; the error has the holder's address.
pub async fn claim_of_a_held_session_is_refused(store: Arc<dyn Store>) {
    let holder = Holder::at("http://127.0.0.1:9").unwrap();
    let mine = store.acquire_lease(&holder, MINUTE * 60).await.unwrap();
    let other = acquire_lease(&store).await;
    let record = insert(&store, record_with_key("k")).await;
    let claimed = store.claim(record.id, mine).await.unwrap();
    assert_eq!(claimed, Record { holder: Some(mine), ..record.clone() });
    assert_eq!(load(&store, &record).await, claimed);
    assert_eq!(store.claim(record.id, mine).await.unwrap(), claimed, "a repeated claim succeeds");
    match store.claim(record.id, other).await {
        Err(StoreError::HeldBy { holder: found }) => assert_eq!(found, holder),
        result => panic!("the session is held: {result:?}"),
    }
    assert_eq!(load(&store, &record).await, claimed);
    assert_fails!(store.claim(record_without_key().id, mine).await, StoreError::Missing);
}

/// The store's clock decides when a lease expires, and an expired lease never becomes valid again.
pub async fn expired_lease_cannot_be_renewed(store: Arc<dyn Store>) {
    let mine = acquire_lease(&store).await;
    let record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    store.renew_lease(mine, Duration::from_millis(1)).await.unwrap();
    wait_until_expired(&store, mine).await;
    assert_fails!(store.renew_lease(mine, MINUTE).await, StoreError::LeaseLost);
    assert_eq!(store.lease_holder(mine).await.unwrap(), None);
    let other = acquire_lease(&store).await;
    let claimed = store.claim(record.id, other).await.unwrap();
    assert_eq!(claimed.holder, Some(other));
    assert_fails!(store.renew_lease(mine, MINUTE).await, StoreError::LeaseLost);
}

/// After a clean release no process has to wait.
pub async fn released_lease_frees_its_sessions_at_once(store: Arc<dyn Store>) {
    let (mine, other) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    store.release_lease(mine).await.unwrap();
    store.release_lease(mine).await.unwrap();
    assert_fails!(store.renew_lease(mine, MINUTE).await, StoreError::LeaseLost);
    assert_eq!(store.claim(record.id, other).await.unwrap().holder, Some(other));
    assert_eq!(
        store.lease_holder(other).await.unwrap().map(|holder| holder.id),
        Some(other.holder)
    );
}

/// Tries every kind of write, under a lease or without one.
async fn try_all_writes(
    store: &Arc<dyn Store>,
    record: &Record,
    by: Option<Lease>,
) -> Vec<Result<(), StoreError>> {
    let id = record.id;
    let name = Handle::generate().hash(&record.owner);
    let put = StateWrite {
        key: "x",
        bytes: b"1",
        expected: ExpectedValue::Any,
        limits: StateLimits::default(),
    };
    let connection = Connection { name, session: id, last_used: NOW, body: vec![] };
    let seen = store.load(id).await.unwrap().unwrap();
    vec![
        store.put_state(id, put, by).await.map(drop),
        store.remove_state(id, "x", ExpectedValue::Any, by).await,
        store.add_handle(id, name, by).await,
        store.put_connection(&connection, NOW, by).await,
        store.remove_connection(name, by).await,
        store.replace(&seen, ExpectedRevision::revision(&seen), by).await.map(drop),
        store.remove(id, by).await,
    ]
}

/// Writes of a late holder are refused (§7).
pub async fn late_holder_cannot_write(store: Arc<dyn Store>) {
    let (late, mine) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let record = insert(&store, Record { holder: Some(late), ..record_with_key("k") }).await;
    let name = Handle::generate().hash(&record.owner);
    let connection = Connection { name, session: record.id, last_used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, Some(late)).await.unwrap();
    store.release_lease(late).await.unwrap();
    store.claim(record.id, mine).await.unwrap();
    for (n, result) in try_all_writes(&store, &record, Some(late)).await.into_iter().enumerate() {
        if n != 4 {
            assert_fails!(result, StoreError::NotHolder);
        }
    }
    assert_fails!(store.remove_connection(name, Some(late)).await, StoreError::NotHolder);
    assert_eq!(store.touch(&[(record.id, later(1))], Some(late)).await.unwrap(), 0);
    assert_eq!(store.touch_connections(&[(name, later(1))], Some(late)).await.unwrap(), 0);
    assert_eq!(load(&store, &record).await, Record { holder: Some(mine), ..record.clone() });
    assert_eq!(store.load_connection(name).await.unwrap(), Some(connection));
    store.release_claim(record.id, late).await.unwrap();
    assert_eq!(load(&store, &record).await.holder, Some(mine));
    for result in try_all_writes(&store, &record, Some(mine)).await {
        result.unwrap();
    }
}

/// A claimed session refuses writers without a lease; an unclaimed one accepts every writer.
pub async fn held_session_refuses_writers_without_a_lease(store: Arc<dyn Store>) {
    let mine = acquire_lease(&store).await;
    let record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    for (n, result) in try_all_writes(&store, &record, None).await.into_iter().enumerate() {
        if n != 4 {
            assert_fails!(result, StoreError::NotHolder);
        }
    }
    assert_eq!(store.touch(&[(record.id, later(1))], None).await.unwrap(), 0);
    store.release_claim(record.id, mine).await.unwrap();
    assert_eq!(load(&store, &record).await, Record { holder: None, ..record.clone() });
    assert_eq!(store.touch(&[(record.id, later(1))], None).await.unwrap(), 1);
    for result in try_all_writes(&store, &record, Some(mine)).await {
        result.unwrap();
    }
}

/// A release by another lease has no effect.
pub async fn release_by_another_lease_has_no_effect(store: Arc<dyn Store>) {
    let (mine, other) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    store.release_claim(record.id, other).await.unwrap();
    assert_fails!(store.claim(record.id, other).await, StoreError::HeldBy { .. });
    store.release_claim(record.id, mine).await.unwrap();
    assert_eq!(store.claim(record.id, other).await.unwrap().holder, Some(other));
}

/// An ended session has no claim; its reviver holds it from the start.
pub async fn ended_session_has_no_claim(store: Arc<dyn Store>) {
    let (mine, other) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let mut record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    record.end(crate::EndReason::Idle, later(1));
    record.revision =
        store.replace(&record, ExpectedRevision::revision(&record), Some(mine)).await.unwrap();
    assert_fails!(store.claim(record.id, mine).await, StoreError::Missing);
    assert_eq!(load(&store, &record).await.holder, None);
    let seen = ExpectedRevision::revision(&record);
    record.revive(later(2));
    record.revision = store.replace(&record, seen, Some(other)).await.unwrap();
    assert_eq!(load(&store, &record).await, Record { holder: Some(other), ..record.clone() });
    assert_fails!(store.claim(record.id, mine).await, StoreError::HeldBy { .. });
}

/// A new session can be claimed from the start.
pub async fn insert_claims_the_session_for_its_holder(store: Arc<dyn Store>) {
    let (mine, other) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let record = Record::new(crate::Owner::local(), crate::Expiry::NEVER, NOW);
    let record = insert(&store, Record { holder: Some(mine), ..record }).await;
    assert_fails!(store.claim(record.id, other).await, StoreError::HeldBy { .. });
    assert_eq!(store.list(None, None, 1).await.unwrap(), [record]);
}

/// After the death of a holder, exactly one other process takes over.
pub async fn concurrent_claims_succeed_once(store: Arc<dyn Store>) {
    let dead = acquire_lease(&store).await;
    let record = insert(&store, Record { holder: Some(dead), ..record_with_key("k") }).await;
    store.release_lease(dead).await.unwrap();
    let mut leases = Vec::new();
    for _ in 0..16 {
        leases.push(acquire_lease(&store).await);
    }
    let results = run_concurrently(leases.len(), |n| {
        let (store, lease, id) = (store.clone(), leases[n], record.id);
        async move { store.claim(id, lease).await }
    })
    .await;
    let winner = leases[assert_one_winner(&results)];
    assert_eq!(load(&store, &record).await.holder, Some(winner));
    for result in results {
        match result {
            Ok(_) => {}
            Err(StoreError::HeldBy { holder }) => assert_eq!(holder.id, winner.holder),
            Err(other) => panic!("{other:?}"),
        }
    }
}
