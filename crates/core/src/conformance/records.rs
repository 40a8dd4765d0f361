//! Contract of records.

use std::sync::Arc;

use super::{
    MINUTE, NOW, acquire_lease, assert_fails, assert_one_winner, insert, key, later, load, owner,
    record_with_key, record_without_key, run_concurrently,
};
use crate::{
    Agent, Attachment, Connection, EndReason, ExpectedRevision, ExpectedValue, Expiry, Generation,
    Handle, Key, Owner, Record, Revision, StateLimits, StateWrite, Store, StoreError,
};

/// Every field reads back unchanged.
pub async fn insert_stores_every_field(store: Arc<dyn Store>) {
    let agent = Agent::named("a:b/ü").unwrap();
    let mut full = record_without_key()
        .with_key(agent, Key::new("vscode", "ü 'quoted' \"x\" {0} \\ ::").unwrap());
    full.attach("browser", Attachment::new(Generation(4), "{\"id\":\"ä\\n\"}"));
    full.attach("", Attachment::new(Generation(1), String::new()));
    full.provisional = true;
    (full.acknowledged, full.confirmed_expiry) = (Generation(3), Some(Expiry::idle(MINUTE).into()));
    full.handle_used = true;
    full.expiry = Expiry { idle: None, absolute: Some(MINUTE) };
    full.holder = Some(acquire_lease(&store).await);
    for record in [
        full,
        Record::new(Owner::local(), Expiry::NEVER, NOW),
        Record::new(Owner::anonymous(), Expiry::idle(MINUTE), NOW),
    ] {
        let record = insert(&store, record).await;
        assert_eq!(load(&store, &record).await, record);
    }
}

/// A missing item is an answer, not an error.
pub async fn missing_items_read_as_none(store: Arc<dyn Store>) {
    let record = record_with_key("k");
    assert_eq!(store.load(record.id).await.unwrap(), None);
    assert_eq!(store.find_by_key(&record.owner, &record.agent, &key("k")).await.unwrap(), None);
    assert_eq!(store.find_by_handle(Handle::generate().hash(&record.owner)).await.unwrap(), None);
    assert_eq!(store.load_state(record.id, "x").await.unwrap(), None);
    assert!(store.list_state_keys(record.id).await.unwrap().is_empty());
    assert!(store.list(None, None, 10).await.unwrap().is_empty());
    assert!(store.list_due(later(9_999), None, 10).await.unwrap().is_empty());
    store.remove(record.id, None).await.unwrap();
    store.release_claim(record.id, acquire_lease(&store).await).await.unwrap();
}

/// A key has one live session, and the error names it.
pub async fn insert_refuses_a_taken_key_and_names_its_session(store: Arc<dyn Store>) {
    let first = insert(&store, record_with_key("chat")).await;
    let second = record_with_key("chat");
    match store.insert(&second, None).await {
        Err(StoreError::Taken { by }) => assert_eq!(by, first.id),
        other => panic!("the key was taken: {other:?}"),
    }
    assert_eq!(store.load(second.id).await.unwrap(), None, "the refused session was stored");
    let found = store.find_by_key(&first.owner, &first.agent, &key("chat")).await.unwrap();
    assert_eq!(found, Some(first));
    assert_eq!(store.list(None, None, 10).await.unwrap().len(), 1);
}

/// An id is never used twice.
pub async fn insert_refuses_a_taken_id(store: Arc<dyn Store>) {
    let first = insert(&store, record_with_key("a")).await;
    let same = Record { key: Some(key("b")), owner: owner("bob"), ..first.clone() };
    assert_fails!(store.insert(&same, None).await, StoreError::Taken { .. });
    assert_eq!(load(&store, &first).await, first);
    assert_eq!(store.find_by_key(&same.owner, &same.agent, &key("b")).await.unwrap(), None);
}

/// R099: one name is a different session for another owner or agent.
pub async fn keys_are_separate_per_owner_and_agent(store: Arc<dyn Store>) {
    let agent = |name| Agent::named(name).unwrap();
    let names = [
        (owner("ann"), Agent::none()),
        (owner("bob"), Agent::none()),
        (owner("ann"), agent("x")),
        (owner("ann"), agent("y")),
        (Owner::local(), Agent::none()),
    ];
    let mut records = Vec::new();
    for (owner, agent) in names {
        let record = Record::new(owner, Expiry::default(), NOW).with_key(agent, key("same"));
        records.push(insert(&store, record).await);
    }
    for record in records {
        let found = store.find_by_key(&record.owner, &record.agent, &key("same")).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

/// Fifty concurrent first calls create one session.
pub async fn concurrent_inserts_of_one_key_create_one_session(store: Arc<dyn Store>) {
    let records: Vec<_> = (0..50).map(|_| record_with_key("chat")).collect();
    let results = run_concurrently(records.len(), |n| {
        let (store, record) = (store.clone(), records[n].clone());
        async move { store.insert(&record, None).await }
    })
    .await;
    let winner = &records[assert_one_winner(&results)];
    for result in results {
        match result {
            Ok(generation) => assert_eq!(generation, Generation(0)),
            Err(StoreError::Taken { by }) => assert_eq!(by, winner.id),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(store.list(None, None, 99).await.unwrap(), std::slice::from_ref(winner));
}

/// A lost race is an error.
pub async fn replace_raises_the_revision_and_refuses_a_stale_one(store: Arc<dyn Store>) {
    let first = insert(&store, record_with_key("k")).await;
    let mut second = first.clone();
    second.attach("s", Attachment::new(Generation(2), "x"));
    second.provisional = true;
    second.revision =
        store.replace(&second, ExpectedRevision::revision(&first), None).await.unwrap();
    assert!(second.revision > first.revision);
    assert_eq!(load(&store, &second).await, second);
    assert_fails!(
        store.replace(&first, ExpectedRevision::revision(&first), None).await,
        StoreError::Stale
    );
    let ahead = ExpectedRevision { revision: Revision(second.revision.0 + 1), last_used: None };
    assert_fails!(store.replace(&first, ahead, None).await, StoreError::Stale);
    assert_eq!(load(&store, &second).await, second);
}

/// One of several writers with the same revision succeeds.
pub async fn concurrent_replaces_of_one_revision_succeed_once(store: Arc<dyn Store>) {
    let first = insert(&store, record_without_key()).await;
    let results = run_concurrently(16, |n| {
        let (store, mut record) = (store.clone(), first.clone());
        record.attach("s", Attachment::new(Generation(n as u64), n.to_string()));
        async move { store.replace(&record, ExpectedRevision::revision(&record), None).await }
    })
    .await;
    let winner = assert_one_winner(&results);
    assert_eq!(load(&store, &first).await.attachments["s"].body, winner.to_string());
}

/// A missing record is not created by a replace.
pub async fn replace_refuses_a_missing_record(store: Arc<dyn Store>) {
    let record = record_with_key("k");
    assert_fails!(
        store.replace(&record, ExpectedRevision::revision(&record), None).await,
        StoreError::Missing
    );
    assert_eq!(store.load(record.id).await.unwrap(), None);
}

/// E20: a writer that ends an idle session does not end one that was used meanwhile.
pub async fn replace_refuses_a_session_used_since(store: Arc<dyn Store>) {
    let seen = insert(&store, record_with_key("k")).await;
    assert_eq!(store.touch(&[(seen.id, later(1))], None).await.unwrap(), 1);
    let mut over = seen.clone();
    over.end(EndReason::Idle, later(2));
    assert_fails!(
        store.replace(&over, ExpectedRevision::unused(&seen), None).await,
        StoreError::Stale
    );
    assert!(load(&store, &seen).await.is_live());
    let seen = load(&store, &seen).await;
    store.replace(&over, ExpectedRevision::unused(&seen), None).await.unwrap();
    assert!(!load(&store, &seen).await.is_live());
}

/// Owner, agent, key and time of use are not for a replace to change.
pub async fn replace_keeps_owner_agent_key_and_last_use(store: Arc<dyn Store>) {
    let mine = acquire_lease(&store).await;
    let first = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    store.touch(&[(first.id, later(3))], Some(mine)).await.unwrap();
    let thief = Record { owner: owner("eve"), holder: None, ..first.clone() }
        .with_key(Agent::none(), key("l"));
    let revision =
        store.replace(&thief, ExpectedRevision::revision(&first), Some(mine)).await.unwrap();
    let expected = Record { revision, last_used: later(3), ..first.clone() };
    assert_eq!(load(&store, &first).await, expected);
    assert_eq!(store.find_by_key(&owner("eve"), &Agent::none(), &key("l")).await.unwrap(), None);
    assert!(store.list(Some(&owner("eve")), None, 9).await.unwrap().is_empty());
}

/// A tombstone keeps the reason for its owner, and is in no index of live sessions.
pub async fn end_frees_the_key_and_drops_the_state(store: Arc<dyn Store>) {
    let mine = acquire_lease(&store).await;
    let mut record = insert(&store, Record { holder: Some(mine), ..record_with_key("k") }).await;
    let put = StateWrite {
        key: "x",
        bytes: b"1",
        expected: ExpectedValue::Any,
        limits: StateLimits::default(),
    };
    store.put_state(record.id, put, Some(mine)).await.unwrap();
    record.end(EndReason::Age, later(5));
    record.revision =
        store.replace(&record, ExpectedRevision::revision(&record), Some(mine)).await.unwrap();
    assert_eq!(load(&store, &record).await, record, "a tombstone without a claim");
    assert_eq!(store.find_by_key(&record.owner, &record.agent, &key("k")).await.unwrap(), None);
    assert_eq!(store.load_state(record.id, "x").await.unwrap(), None);
    assert!(store.list_state_keys(record.id).await.unwrap().is_empty());
    assert!(store.list(Some(&record.owner), None, 9).await.unwrap().is_empty());
    assert!(store.list_due(later(99_999), None, 9).await.unwrap().is_empty());
}

/// Invariant 3: the successor of a key reports a loss.
pub async fn successor_gets_a_higher_generation(store: Arc<dyn Store>) {
    let mut highest = Generation(0);
    for round in 0..3 {
        let mut record = insert(&store, record_with_key("k")).await;
        if round > 0 {
            assert!(record.generation > highest, "round {round}: {record:?}");
        }
        assert_eq!(load(&store, &record).await.generation, record.generation);
        let lost = Generation(record.generation.0 + 5);
        record.attach("s", Attachment::new(lost, String::new()));
        record.end(EndReason::Closed, later(round));
        store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
        highest = lost;
    }
    let other = insert(&store, record_with_key("other")).await;
    assert_eq!(other.generation, Generation(0));
}

/// A revived session gets its key back, unless another session has it now.
pub async fn revival_takes_the_key_back(store: Arc<dyn Store>) {
    let mut first = insert(&store, record_with_key("k")).await;
    first.end(EndReason::Idle, later(1));
    first.revision = store.replace(&first, ExpectedRevision::revision(&first), None).await.unwrap();
    let mut second = insert(&store, record_with_key("k")).await;
    let mut revived = first.clone();
    revived.revive(later(2));
    match store.replace(&revived, ExpectedRevision::revision(&first), None).await {
        Err(StoreError::Taken { by }) => assert_eq!(by, second.id),
        other => panic!("the key was taken: {other:?}"),
    }
    assert_eq!(load(&store, &first).await, first);
    second.end(EndReason::Closed, later(3));
    store.replace(&second, ExpectedRevision::revision(&second), None).await.unwrap();
    revived.revision =
        store.replace(&revived, ExpectedRevision::revision(&first), None).await.unwrap();
    let found = store.find_by_key(&first.owner, &first.agent, &key("k")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&revived));
    assert_eq!(store.list(Some(&first.owner), None, 9).await.unwrap(), [revived.clone()]);
    assert_eq!(store.list_due(later(9_999), None, 9).await.unwrap(), [revived]);
    assert_fails!(store.insert(&record_with_key("k"), None).await, StoreError::Taken { .. });
}

/// Times of use never go back, and do not make a replace fail.
pub async fn touch_moves_only_the_time_of_use_forward(store: Arc<dyn Store>) {
    let record = insert(&store, record_with_key("k")).await;
    for (at, then) in [(later(5), later(5)), (later(2), later(5)), (later(6), later(6))] {
        assert_eq!(store.touch(&[(record.id, at)], None).await.unwrap(), 1);
        assert_eq!(load(&store, &record).await, Record { last_used: then, ..record.clone() });
    }
    store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
    assert_eq!(load(&store, &record).await.last_used, later(6));
}

/// A session that cannot be touched does not affect the others.
pub async fn touch_skips_ended_missing_and_foreign_sessions(store: Arc<dyn Store>) {
    let (mine, other) = (acquire_lease(&store).await, acquire_lease(&store).await);
    let free = insert(&store, record_without_key()).await;
    let own = insert(&store, Record { holder: Some(mine), ..record_without_key() }).await;
    let foreign = insert(&store, Record { holder: Some(other), ..record_without_key() }).await;
    let mut over = insert(&store, record_without_key()).await;
    over.end(EndReason::Closed, NOW);
    store.replace(&over, ExpectedRevision::revision(&over), None).await.unwrap();
    let all =
        [free.id, foreign.id, over.id, record_without_key().id, own.id].map(|id| (id, later(1)));
    assert_eq!(store.touch(&all, Some(mine)).await.unwrap(), 2);
    assert_eq!(load(&store, &own).await.last_used, later(1));
    assert_eq!(load(&store, &free).await.last_used, later(1));
    assert_eq!(load(&store, &foreign).await.last_used, NOW);
    assert_eq!(load(&store, &over).await.last_used, NOW);
    assert_eq!(store.touch(&[], Some(mine)).await.unwrap(), 0);
}

/// After a removal nothing leads to the session, and a successor inherits nothing.
pub async fn remove_deletes_everything_of_a_session(store: Arc<dyn Store>) {
    let mut record = record_with_key("k");
    record.generation = Generation(3);
    let record = insert(&store, record).await;
    let (handle, name) = (Handle::generate(), Handle::generate().hash(&record.owner));
    store.add_handle(record.id, handle.hash(&record.owner), None).await.unwrap();
    let connection = Connection { name, session: record.id, last_used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, None).await.unwrap();
    let put = StateWrite {
        key: "x",
        bytes: b"1",
        expected: ExpectedValue::Any,
        limits: StateLimits::default(),
    };
    store.put_state(record.id, put, None).await.unwrap();
    for _ in 0..2 {
        store.remove(record.id, None).await.unwrap();
        assert_eq!(store.load(record.id).await.unwrap(), None);
        assert_eq!(store.find_by_handle(handle.hash(&record.owner)).await.unwrap(), None);
        assert_eq!(store.load_connection(name).await.unwrap(), None);
        assert_eq!(store.load_state(record.id, "x").await.unwrap(), None);
        assert!(store.list(None, None, 9).await.unwrap().is_empty());
        assert!(store.list_due(later(9_999), None, 9).await.unwrap().is_empty());
    }
    assert_eq!(insert(&store, record_with_key("k")).await.generation, Generation(0));
}

/// A page with fewer records is the last one.
pub async fn list_returns_live_records_in_pages_by_id(store: Arc<dyn Store>) {
    let mut all = Vec::new();
    for n in 0..7u64 {
        let owner = if n % 3 == 2 { owner("bob") } else { owner("ann") };
        // Inserted out of order: ids are made from the time.
        let at = later(u32::try_from((n * 5) % 7).unwrap());
        all.push(insert(&store, Record::new(owner, Expiry::NEVER, at)).await);
    }
    let mut over = insert(&store, record_without_key()).await;
    over.end(EndReason::Closed, NOW);
    store.replace(&over, ExpectedRevision::revision(&over), None).await.unwrap();
    all.sort_by_key(|record| record.id);
    for whose in [None, Some(owner("ann")), Some(owner("bob")), Some(owner("eve"))] {
        let expected: Vec<_> = all
            .iter()
            .filter(|record| whose.as_ref().is_none_or(|owner| *owner == record.owner))
            .cloned()
            .collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.list(whose.as_ref(), after, 2).await.unwrap();
            after = page.last().map(|record| record.id);
            let full = page.len() == 2;
            seen.extend(page);
            if !full {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
}

/// Expired sessions are listed by deadline, and a touch moves the deadline.
pub async fn list_due_returns_expired_sessions_by_deadline(store: Arc<dyn Store>) {
    let with = |expiry| Record { expiry, ..record_without_key() };
    let idle = insert(&store, with(Expiry::idle(MINUTE * 5))).await;
    let both = Expiry { idle: Some(MINUTE * 9), absolute: Some(MINUTE * 7) };
    let both = insert(&store, with(both)).await;
    let late = insert(&store, with(Expiry::idle(MINUTE * 50))).await;
    insert(&store, with(Expiry::NEVER)).await;
    let ids =
        |records: Vec<Record>| records.into_iter().map(|record| record.id).collect::<Vec<_>>();
    assert_eq!(ids(store.list_due(later(4), None, 9).await.unwrap()), []);
    assert_eq!(
        ids(store.list_due(later(5), None, 9).await.unwrap()),
        [idle.id],
        "a session is due at its deadline"
    );
    assert_eq!(ids(store.list_due(later(60), None, 9).await.unwrap()), [idle.id, both.id, late.id]);
    assert_eq!(ids(store.list_due(later(60), None, 2).await.unwrap()), [idle.id, both.id]);
    let mut pages = Vec::new();
    let mut after = None;
    while let [next] = store.list_due(later(60), after, 1).await.unwrap().as_slice() {
        after = Some((next.deadline().unwrap(), next.id));
        pages.push(next.id);
    }
    assert_eq!(pages, [idle.id, both.id, late.id], "page by page");
    store.touch(&[(idle.id, later(4)), (both.id, later(6))], None).await.unwrap();
    assert_eq!(
        ids(store.list_due(later(8), None, 9).await.unwrap()),
        [both.id],
        "use does not extend the maximum age"
    );
    let longer = Record { expiry: Expiry::idle(MINUTE * 100), ..both.clone() };
    store.replace(&longer, ExpectedRevision::revision(&both), None).await.unwrap();
    assert_eq!(
        ids(store.list_due(later(9), None, 9).await.unwrap()),
        [idle.id],
        "E33: a longer expiry moves the deadline"
    );
    let shorter = Record { expiry: Expiry::idle(MINUTE), ..late.clone() };
    store.replace(&shorter, ExpectedRevision::revision(&late), None).await.unwrap();
    assert_eq!(ids(store.list_due(later(9), None, 9).await.unwrap()), [late.id, idle.id]);
}

/// Tombstones are removed when they are old enough, and not before.
pub async fn purge_removes_old_tombstones_only(store: Arc<dyn Store>) {
    let mut over = Vec::new();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let mut record = insert(&store, record_with_key(name)).await;
        store.add_handle(record.id, Handle::generate().hash(&record.owner), None).await.unwrap();
        record.end(EndReason::Closed, later(u32::try_from(n).unwrap()));
        store.replace(&record, ExpectedRevision::revision(&record), None).await.unwrap();
        over.push(record);
    }
    let live = insert(&store, record_with_key("live")).await;
    assert_eq!(store.purge(later(0), 9).await.unwrap(), 0);
    assert_eq!(store.purge(later(2), 9).await.unwrap(), 2);
    assert_eq!(store.load(over[0].id).await.unwrap(), None);
    assert_eq!(store.load(over[1].id).await.unwrap(), None);
    assert!(store.load(over[2].id).await.unwrap().is_some());
    assert_eq!(insert(&store, record_with_key("a")).await.generation, Generation(0));
    assert_eq!(insert(&store, record_with_key("c")).await.generation, Generation(1));
    assert_eq!(store.purge(later(9_999), 9).await.unwrap(), 1);
    assert_eq!(store.purge(later(9_999), 9).await.unwrap(), 0);
    assert_eq!(load(&store, &live).await, live);
    assert_eq!(
        store.find_by_key(&live.owner, &live.agent, &key("c")).await.unwrap().map(|c| c.is_live()),
        Some(true)
    );
}
