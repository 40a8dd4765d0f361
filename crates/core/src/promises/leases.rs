//! What a store promises of leases and claims.

use std::{sync::Arc, time::Duration};

use super::{
    MINUTE, NOW, assert_fails, at_once, inserted, later, lease, loaded, named, one_winner, unnamed,
    until_dead,
};
use crate::{
    Connection, Expect, Handle, Holder, Lease, Put, Record, Seen, StateLimits, Store, StoreError,
};

/// A later lease has a higher epoch, and others can see who has it and where.
pub async fn epochs_grow_and_holders_can_be_found(store: Arc<dyn Store>) {
    let (one, two) = (Holder::at("http://[::1]:1/ü").unwrap(), Holder::unreachable());
    let first = store.hold(&one, MINUTE).await.unwrap();
    let second = store.hold(&two, Duration::MAX).await.unwrap();
    let third = store.hold(&one, MINUTE).await.unwrap();
    assert!(first.epoch < second.epoch && second.epoch < third.epoch);
    assert_eq!((first.holder, second.holder), (one.id, two.id));
    assert_eq!(store.holder(first).await.unwrap(), Some(one.clone()));
    assert_eq!(store.holder(second).await.unwrap(), Some(two.clone()));
    let forged = Lease { holder: two.id, epoch: first.epoch };
    assert_eq!(store.holder(forged).await.unwrap(), None, "holder and epoch belong together");
    assert_fails!(store.renew(forged, MINUTE).await, StoreError::LeaseLost);
    let epochs = at_once(8, |_| {
        let store = store.clone();
        async move { lease(&store).await.epoch }
    })
    .await;
    assert_eq!(epochs.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
}

/// What somebody holds, nobody else gets; the error says where to go.
pub async fn a_live_holder_keeps_its_sessions(store: Arc<dyn Store>) {
    let holder = Holder::at("http://127.0.0.1:9").unwrap();
    let mine = store.hold(&holder, MINUTE * 60).await.unwrap();
    let other = lease(&store).await;
    let record = inserted(&store, named("k")).await;
    let claimed = store.claim(record.id, mine).await.unwrap();
    assert_eq!(claimed, Record { holder: Some(mine), ..record.clone() });
    assert_eq!(loaded(&store, &record).await, claimed);
    assert_eq!(store.claim(record.id, mine).await.unwrap(), claimed, "claiming twice is fine");
    match store.claim(record.id, other).await {
        Err(StoreError::HeldBy { holder: found }) => assert_eq!(found, holder),
        result => panic!("it is held: {result:?}"),
    }
    assert_eq!(loaded(&store, &record).await, claimed);
    assert_fails!(store.claim(unnamed().id, mine).await, StoreError::Missing);
}

/// Time runs out by the store's clock, and a lease that ran out never comes back.
pub async fn a_dead_lease_is_dead_for_good(store: Arc<dyn Store>) {
    let mine = lease(&store).await;
    let record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    store.renew(mine, Duration::from_millis(1)).await.unwrap();
    until_dead(&store, mine).await;
    assert_fails!(store.renew(mine, MINUTE).await, StoreError::LeaseLost);
    assert_eq!(store.holder(mine).await.unwrap(), None);
    let other = lease(&store).await;
    let claimed = store.claim(record.id, other).await.unwrap();
    assert_eq!(claimed.holder, Some(other));
    assert_fails!(store.renew(mine, MINUTE).await, StoreError::LeaseLost);
}

/// A clean end makes nobody wait.
pub async fn leaving_frees_at_once(store: Arc<dyn Store>) {
    let (mine, other) = (lease(&store).await, lease(&store).await);
    let record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    store.leave(mine).await.unwrap();
    store.leave(mine).await.unwrap();
    assert_fails!(store.renew(mine, MINUTE).await, StoreError::LeaseLost);
    assert_eq!(store.claim(record.id, other).await.unwrap().holder, Some(other));
    assert_eq!(store.holder(other).await.unwrap().map(|holder| holder.id), Some(other.holder));
}

/// Every way to write, by a lease or by nobody.
async fn try_all_writes(
    store: &Arc<dyn Store>,
    record: &Record,
    by: Option<Lease>,
) -> Vec<Result<(), StoreError>> {
    let id = record.id;
    let name = Handle::generate().hash(&record.owner);
    let put = Put { key: "x", bytes: b"1", expect: Expect::Any, limits: StateLimits::default() };
    let connection = Connection { name, session: id, used: NOW, body: vec![] };
    let seen = store.load(id).await.unwrap().unwrap();
    vec![
        store.put_state(id, put, by).await.map(drop),
        store.remove_state(id, "x", Expect::Any, by).await,
        store.add_handle(id, name, by).await,
        store.put_connection(&connection, NOW, by).await,
        store.remove_connection(name, by).await,
        store.replace(&seen, Seen::revision(&seen), by).await.map(drop),
        store.remove(id, by).await,
    ]
}

/// §7: a late holder's writes are refused.
pub async fn a_late_holder_cannot_write(store: Arc<dyn Store>) {
    let (late, mine) = (lease(&store).await, lease(&store).await);
    let record = inserted(&store, Record { holder: Some(late), ..named("k") }).await;
    let name = Handle::generate().hash(&record.owner);
    let connection = Connection { name, session: record.id, used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, Some(late)).await.unwrap();
    store.leave(late).await.unwrap();
    store.claim(record.id, mine).await.unwrap();
    for (n, result) in try_all_writes(&store, &record, Some(late)).await.into_iter().enumerate() {
        if n != 4 {
            assert_fails!(result, StoreError::NotHolder);
        }
    }
    assert_fails!(store.remove_connection(name, Some(late)).await, StoreError::NotHolder);
    assert_eq!(store.touch(&[(record.id, later(1))], Some(late)).await.unwrap(), 0);
    assert_eq!(store.touch_connections(&[(name, later(1))], Some(late)).await.unwrap(), 0);
    assert_eq!(loaded(&store, &record).await, Record { holder: Some(mine), ..record.clone() });
    assert_eq!(store.connection(name).await.unwrap(), Some(connection));
    store.release(record.id, late).await.unwrap();
    assert_eq!(loaded(&store, &record).await.holder, Some(mine));
    for result in try_all_writes(&store, &record, Some(mine)).await {
        result.unwrap();
    }
}

/// A claim keeps out who has no lease at all; without one, anybody may write.
pub async fn nobody_writes_what_somebody_holds(store: Arc<dyn Store>) {
    let mine = lease(&store).await;
    let record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    for (n, result) in try_all_writes(&store, &record, None).await.into_iter().enumerate() {
        if n != 4 {
            assert_fails!(result, StoreError::NotHolder);
        }
    }
    assert_eq!(store.touch(&[(record.id, later(1))], None).await.unwrap(), 0);
    store.release(record.id, mine).await.unwrap();
    assert_eq!(loaded(&store, &record).await, Record { holder: None, ..record.clone() });
    assert_eq!(store.touch(&[(record.id, later(1))], None).await.unwrap(), 1);
    for result in try_all_writes(&store, &record, Some(mine)).await {
        result.unwrap();
    }
}

/// Nobody gives up another's claim.
pub async fn release_frees_only_ones_own(store: Arc<dyn Store>) {
    let (mine, other) = (lease(&store).await, lease(&store).await);
    let record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    store.release(record.id, other).await.unwrap();
    assert_fails!(store.claim(record.id, other).await, StoreError::HeldBy { .. });
    store.release(record.id, mine).await.unwrap();
    assert_eq!(store.claim(record.id, other).await.unwrap().holder, Some(other));
}

/// Nobody holds what is over; who revives it holds it from the first moment.
pub async fn what_is_over_is_held_by_nobody(store: Arc<dyn Store>) {
    let (mine, other) = (lease(&store).await, lease(&store).await);
    let mut record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    record.end(crate::EndReason::Idle, later(1));
    record.revision = store.replace(&record, Seen::revision(&record), Some(mine)).await.unwrap();
    assert_fails!(store.claim(record.id, mine).await, StoreError::Missing);
    assert_eq!(loaded(&store, &record).await.holder, None);
    let seen = Seen::revision(&record);
    record.revive(later(2));
    record.revision = store.replace(&record, seen, Some(other)).await.unwrap();
    assert_eq!(loaded(&store, &record).await, Record { holder: Some(other), ..record.clone() });
    assert_fails!(store.claim(record.id, mine).await, StoreError::HeldBy { .. });
}

/// What is opened is held from the first moment.
pub async fn insert_can_claim(store: Arc<dyn Store>) {
    let (mine, other) = (lease(&store).await, lease(&store).await);
    let record = Record::new(crate::Owner::local(), crate::Expiry::NEVER, NOW);
    let record = inserted(&store, Record { holder: Some(mine), ..record }).await;
    assert_fails!(store.claim(record.id, other).await, StoreError::HeldBy { .. });
    assert_eq!(store.list(None, None, 1).await.unwrap(), [record]);
}

/// When a holder dies, one other takes over.
pub async fn of_many_claims_one_wins(store: Arc<dyn Store>) {
    let dead = lease(&store).await;
    let record = inserted(&store, Record { holder: Some(dead), ..named("k") }).await;
    store.leave(dead).await.unwrap();
    let mut leases = Vec::new();
    for _ in 0..16 {
        leases.push(lease(&store).await);
    }
    let results = at_once(leases.len(), |n| {
        let (store, lease, id) = (store.clone(), leases[n], record.id);
        async move { store.claim(id, lease).await }
    })
    .await;
    let winner = leases[one_winner(&results)];
    assert_eq!(loaded(&store, &record).await.holder, Some(winner));
    for result in results {
        match result {
            Ok(_) => {}
            Err(StoreError::HeldBy { holder }) => assert_eq!(holder.id, winner.holder),
            Err(other) => panic!("{other:?}"),
        }
    }
}
