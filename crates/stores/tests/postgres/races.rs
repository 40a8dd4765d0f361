//! Concurrent calls.

use stayput_core::{EndReason, ExpectedRevision, Generation, Holder, Record, StoreError};
use stayput_testkit::postgres::PostgresUrl;
use tokio_postgres::Client;

use crate::kit::{
    MINUTE, NOW, answer, client, open, record, record_with_key, run_concurrently, spawn,
};

/// Invariant 3, while a key passes to its next session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successor_of_an_ending_session_gets_a_higher_generation() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let mut last = record_with_key("k");
    store.insert(&last, None).await.unwrap();
    for round in 1..=30 {
        last.generation = Generation(last.generation.0 + 7);
        last.end(EndReason::Closed, NOW);
        let (seen, next) = (ExpectedRevision::revision(&last), record_with_key("k"));
        let ending = {
            let (store, last) = (store.clone(), last.clone());
            spawn(async move { store.replace(&last, seen, None).await })
        };
        let generation = loop {
            match store.insert(&next, None).await {
                Ok(generation) => break generation,
                Err(StoreError::Taken { by }) => assert_eq!(by, last.id),
                Err(other) => panic!("{other:?}"),
            }
        };
        ending.await.unwrap().unwrap();
        assert!(generation > last.generation, "round {round}");
        last = Record { generation, ..next };
    }
}

/// Sessions are locked in one order, so that no deadlock occurs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_touches_do_not_deadlock() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let mut used = Vec::new();
    for _ in 0..50 {
        let record = record();
        store.insert(&record, None).await.unwrap();
        used.push((record.id, NOW));
    }
    let touches = run_concurrently(40, |n| {
        let (store, mut used) = (store.clone(), used.clone());
        used.rotate_left(n);
        used.truncate(20 + n / 2);
        if n % 2 == 0 {
            used.reverse();
        }
        async move { store.touch(&used, None).await }
    });
    for (n, touch) in touches.await.into_iter().enumerate() {
        assert_eq!(touch.unwrap(), 20 + n as u64 / 2);
    }
}

/// A renewal that began in time counts, also for a claim before its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_waits_for_a_renewal_in_progress() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let (holder, record) = (Holder::unreachable(), record_with_key("k"));
    let mine = store.acquire_lease(&holder, MINUTE).await.unwrap();
    let other = store.acquire_lease(&Holder::unreachable(), MINUTE).await.unwrap();
    store.insert(&record, None).await.unwrap();
    store.claim(record.id, mine).await.unwrap();

    let (mut renewing, watching) = (client(&at.url).await, client(&at.url).await);
    let over = "update stayput_lease set expires = clock_timestamp() where lease = $1";
    let lease = mine.to_string();
    watching.execute(over, &[&lease]).await.unwrap();
    let renewal = renewing.transaction().await.unwrap();
    let renew = "update stayput_lease set expires = 'infinity' where lease = $1";
    renewal.execute(renew, &[&lease]).await.unwrap();
    let (asked, id) = (store.clone(), record.id);
    let claim = spawn(async move { asked.claim(id, other).await });
    while waiting_for_a_lock(&watching).await == 0 {
        assert!(!claim.is_finished(), "{:?}", claim.await);
    }
    renewal.commit().await.unwrap();
    match claim.await.unwrap() {
        Err(StoreError::HeldBy { holder: found }) => assert_eq!(found, holder),
        other => panic!("{other:?}"),
    }
}

/// Counts the calls that wait for a lock in the database of this client.
async fn waiting_for_a_lock(client: &Client) -> i64 {
    let waits = "select count(*) from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock'";
    client.query_one(waits, &[]).await.unwrap().get(0)
}

/// A lease is renewed in time, however many other calls wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_does_not_wait_for_other_calls() {
    const CONNECTIONS: i64 = 16;
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let lease = store.acquire_lease(&Holder::unreachable(), MINUTE).await.unwrap();
    let (mut locking, watching) = (client(&at.url).await, client(&at.url).await);
    let locked = locking.transaction().await.unwrap();
    locked.execute("lock table stayput_session in access exclusive mode", &[]).await.unwrap();
    let (id, calls) = (record().id, 2 * CONNECTIONS);
    let loads: Vec<_> = (0..calls)
        .map(|_| {
            let store = store.clone();
            spawn(async move { store.load(id).await })
        })
        .collect();
    while waiting_for_a_lock(&watching).await < CONNECTIONS {
        assert!(!loads.iter().any(|load| load.is_finished()), "a call did not wait");
    }
    store.renew_lease(lease, MINUTE).await.unwrap();
    assert!(!loads.iter().any(|load| load.is_finished()), "the renewal waited for another call");
    locked.commit().await.unwrap();
    for load in loads {
        assert_eq!(answer(load).await.unwrap().unwrap(), None);
    }
}
