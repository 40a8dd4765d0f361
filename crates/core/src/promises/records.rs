//! What a store promises of records.

use std::sync::Arc;

use super::{
    MINUTE, NOW, assert_fails, at_once, inserted, key, later, lease, loaded, named, one_winner,
    owner, unnamed,
};
use crate::{
    Agent, Attachment, Connection, EndReason, Expect, Expiry, Generation, Handle, Key, Owner, Put,
    Record, Revision, Seen, StateLimits, Store, StoreError,
};

/// Nothing of a record changes on the way.
pub async fn a_record_reads_back_as_it_was_inserted(store: Arc<dyn Store>) {
    let agent = Agent::named("a:b/ü").unwrap();
    let mut full =
        unnamed().keyed(agent, Key::new("vscode", "ü 'quoted' \"x\" {0} \\ ::").unwrap());
    full.attach("browser", Attachment::new(Generation(4), "{\"id\":\"ä\\n\"}"));
    full.attach("", Attachment::new(Generation(1), String::new()));
    full.provisional = true;
    (full.told, full.wanted) = (Generation(3), Some(Expiry::idle(MINUTE).into()));
    full.named = true;
    full.expiry = Expiry { idle: None, absolute: Some(MINUTE) };
    full.holder = Some(lease(&store).await);
    for record in [
        full,
        Record::new(Owner::local(), Expiry::NEVER, NOW),
        Record::new(Owner::anonymous(), Expiry::idle(MINUTE), NOW),
    ] {
        let record = inserted(&store, record).await;
        assert_eq!(loaded(&store, &record).await, record);
    }
}

/// Absence is an answer, not an error.
pub async fn what_is_not_there_reads_as_nothing(store: Arc<dyn Store>) {
    let record = named("k");
    assert_eq!(store.load(record.id).await.unwrap(), None);
    assert_eq!(store.find(&record.owner, &record.agent, &key("k")).await.unwrap(), None);
    assert_eq!(store.find_handle(Handle::generate().hash(&record.owner)).await.unwrap(), None);
    assert_eq!(store.state(record.id, "x").await.unwrap(), None);
    assert!(store.state_keys(record.id).await.unwrap().is_empty());
    assert!(store.list(None, None, 10).await.unwrap().is_empty());
    assert!(store.due(later(9_999), None, 10).await.unwrap().is_empty());
    store.remove(record.id, None).await.unwrap();
    store.release(record.id, lease(&store).await).await.unwrap();
}

/// A key has one live session, and the loser learns which.
pub async fn insert_refuses_a_taken_key_and_says_by_whom(store: Arc<dyn Store>) {
    let first = inserted(&store, named("chat")).await;
    let second = named("chat");
    match store.insert(&second, None).await {
        Err(StoreError::Taken { by }) => assert_eq!(by, first.id),
        other => panic!("the key was taken: {other:?}"),
    }
    assert_eq!(store.load(second.id).await.unwrap(), None, "nothing is left of the loser");
    let found = store.find(&first.owner, &first.agent, &key("chat")).await.unwrap();
    assert_eq!(found, Some(first));
    assert_eq!(store.list(None, None, 10).await.unwrap().len(), 1);
}

/// An id is never used twice.
pub async fn insert_refuses_a_taken_id(store: Arc<dyn Store>) {
    let first = inserted(&store, named("a")).await;
    let same = Record { key: Some(key("b")), owner: owner("bob"), ..first.clone() };
    assert_fails!(store.insert(&same, None).await, StoreError::Taken { .. });
    assert_eq!(loaded(&store, &first).await, first);
    assert_eq!(store.find(&same.owner, &same.agent, &key("b")).await.unwrap(), None);
}

/// R099: the same name means another session to another owner or agent.
pub async fn owners_and_agents_have_keys_of_their_own(store: Arc<dyn Store>) {
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
        let record = Record::new(owner, Expiry::default(), NOW).keyed(agent, key("same"));
        records.push(inserted(&store, record).await);
    }
    for record in records {
        let found = store.find(&record.owner, &record.agent, &key("same")).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

/// Fifty first calls at once: one session.
pub async fn of_many_inserts_of_one_key_one_wins(store: Arc<dyn Store>) {
    let records: Vec<_> = (0..50).map(|_| named("chat")).collect();
    let results = at_once(records.len(), |n| {
        let (store, record) = (store.clone(), records[n].clone());
        async move { store.insert(&record, None).await }
    })
    .await;
    let winner = &records[one_winner(&results)];
    for result in results {
        match result {
            Ok(generation) => assert_eq!(generation, Generation(0)),
            Err(StoreError::Taken { by }) => assert_eq!(by, winner.id),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(store.list(None, None, 99).await.unwrap(), std::slice::from_ref(winner));
}

/// A lost race is reported, never papered over.
pub async fn replace_moves_the_revision_and_refuses_a_stale_one(store: Arc<dyn Store>) {
    let first = inserted(&store, named("k")).await;
    let mut second = first.clone();
    second.attach("s", Attachment::new(Generation(2), "x"));
    second.provisional = true;
    second.revision = store.replace(&second, Seen::revision(&first), None).await.unwrap();
    assert!(second.revision > first.revision);
    assert_eq!(loaded(&store, &second).await, second);
    assert_fails!(store.replace(&first, Seen::revision(&first), None).await, StoreError::Stale);
    let ahead = Seen { revision: Revision(second.revision.0 + 1), last_used: None };
    assert_fails!(store.replace(&first, ahead, None).await, StoreError::Stale);
    assert_eq!(loaded(&store, &second).await, second);
}

/// Of writers that have seen the same, one writes.
pub async fn of_many_replaces_of_one_revision_one_wins(store: Arc<dyn Store>) {
    let first = inserted(&store, unnamed()).await;
    let results = at_once(16, |n| {
        let (store, mut record) = (store.clone(), first.clone());
        record.attach("s", Attachment::new(Generation(n as u64), n.to_string()));
        async move { store.replace(&record, Seen::revision(&record), None).await }
    })
    .await;
    let winner = one_winner(&results);
    assert_eq!(loaded(&store, &first).await.attachments["s"].body, winner.to_string());
}

/// What is gone stays gone.
pub async fn replace_never_creates(store: Arc<dyn Store>) {
    let record = named("k");
    assert_fails!(store.replace(&record, Seen::revision(&record), None).await, StoreError::Missing);
    assert_eq!(store.load(record.id).await.unwrap(), None);
}

/// E20: who ends a session for idling does not end one that somebody came back to.
pub async fn replace_refuses_what_was_used_since(store: Arc<dyn Store>) {
    let seen = inserted(&store, named("k")).await;
    assert_eq!(store.touch(&[(seen.id, later(1))], None).await.unwrap(), 1);
    let mut over = seen.clone();
    over.end(EndReason::Idle, later(2));
    assert_fails!(store.replace(&over, Seen::unused(&seen), None).await, StoreError::Stale);
    assert!(loaded(&store, &seen).await.is_live());
    let seen = loaded(&store, &seen).await;
    store.replace(&over, Seen::unused(&seen), None).await.unwrap();
    assert!(!loaded(&store, &seen).await.is_live());
}

/// Owner, agent, key and time of use are not for a replace to change.
pub async fn replace_never_changes_whose_it_is(store: Arc<dyn Store>) {
    let mine = lease(&store).await;
    let first = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    store.touch(&[(first.id, later(3))], Some(mine)).await.unwrap();
    let thief = Record { owner: owner("eve"), holder: None, ..first.clone() }
        .keyed(Agent::none(), key("l"));
    let revision = store.replace(&thief, Seen::revision(&first), Some(mine)).await.unwrap();
    let expected = Record { revision, last_used: later(3), ..first.clone() };
    assert_eq!(loaded(&store, &first).await, expected);
    assert_eq!(store.find(&owner("eve"), &Agent::none(), &key("l")).await.unwrap(), None);
    assert!(store.list(Some(&owner("eve")), None, 9).await.unwrap().is_empty());
}

/// A tombstone tells its owner what happened, and is in nobody's way.
pub async fn ending_frees_the_key_and_drops_the_state(store: Arc<dyn Store>) {
    let mine = lease(&store).await;
    let mut record = inserted(&store, Record { holder: Some(mine), ..named("k") }).await;
    let put = Put { key: "x", bytes: b"1", expect: Expect::Any, limits: StateLimits::default() };
    store.put_state(record.id, put, Some(mine)).await.unwrap();
    record.end(EndReason::Age, later(5));
    record.revision = store.replace(&record, Seen::revision(&record), Some(mine)).await.unwrap();
    assert_eq!(loaded(&store, &record).await, record, "the tombstone, held by nobody");
    assert_eq!(store.find(&record.owner, &record.agent, &key("k")).await.unwrap(), None);
    assert_eq!(store.state(record.id, "x").await.unwrap(), None);
    assert!(store.state_keys(record.id).await.unwrap().is_empty());
    assert!(store.list(Some(&record.owner), None, 9).await.unwrap().is_empty());
    assert!(store.due(later(99_999), None, 9).await.unwrap().is_empty());
}

/// Invariant 3: whoever takes over a key is told that something was lost.
pub async fn a_successor_inherits_the_generation(store: Arc<dyn Store>) {
    let mut highest = Generation(0);
    for round in 0..3 {
        let mut record = inserted(&store, named("k")).await;
        if round > 0 {
            assert!(record.generation > highest, "round {round}: {record:?}");
        }
        assert_eq!(loaded(&store, &record).await.generation, record.generation);
        let lost = Generation(record.generation.0 + 5);
        record.attach("s", Attachment::new(lost, String::new()));
        record.end(EndReason::Closed, later(round));
        store.replace(&record, Seen::revision(&record), None).await.unwrap();
        highest = lost;
    }
    let other = inserted(&store, named("other")).await;
    assert_eq!(other.generation, Generation(0));
}

/// A revived session has its key again, unless another one has it by now.
pub async fn reviving_takes_the_key_back(store: Arc<dyn Store>) {
    let mut first = inserted(&store, named("k")).await;
    first.end(EndReason::Idle, later(1));
    first.revision = store.replace(&first, Seen::revision(&first), None).await.unwrap();
    let mut second = inserted(&store, named("k")).await;
    let mut revived = first.clone();
    revived.revive(later(2));
    match store.replace(&revived, Seen::revision(&first), None).await {
        Err(StoreError::Taken { by }) => assert_eq!(by, second.id),
        other => panic!("the key was taken: {other:?}"),
    }
    assert_eq!(loaded(&store, &first).await, first);
    second.end(EndReason::Closed, later(3));
    store.replace(&second, Seen::revision(&second), None).await.unwrap();
    revived.revision = store.replace(&revived, Seen::revision(&first), None).await.unwrap();
    let found = store.find(&first.owner, &first.agent, &key("k")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&revived));
    assert_eq!(store.list(Some(&first.owner), None, 9).await.unwrap(), [revived.clone()]);
    assert_eq!(store.due(later(9_999), None, 9).await.unwrap(), [revived]);
    assert_fails!(store.insert(&named("k"), None).await, StoreError::Taken { .. });
}

/// Times of use do not spoil anybody's replace and never go back.
pub async fn touch_moves_time_forward_and_nothing_else(store: Arc<dyn Store>) {
    let record = inserted(&store, named("k")).await;
    for (at, then) in [(later(5), later(5)), (later(2), later(5)), (later(6), later(6))] {
        assert_eq!(store.touch(&[(record.id, at)], None).await.unwrap(), 1);
        assert_eq!(loaded(&store, &record).await, Record { last_used: then, ..record.clone() });
    }
    store.replace(&record, Seen::revision(&record), None).await.unwrap();
    assert_eq!(loaded(&store, &record).await.last_used, later(6));
}

/// One that cannot be touched does not keep the others from it.
pub async fn touch_passes_over_what_it_may_not_touch(store: Arc<dyn Store>) {
    let (mine, other) = (lease(&store).await, lease(&store).await);
    let free = inserted(&store, unnamed()).await;
    let own = inserted(&store, Record { holder: Some(mine), ..unnamed() }).await;
    let foreign = inserted(&store, Record { holder: Some(other), ..unnamed() }).await;
    let mut over = inserted(&store, unnamed()).await;
    over.end(EndReason::Closed, NOW);
    store.replace(&over, Seen::revision(&over), None).await.unwrap();
    let all = [free.id, foreign.id, over.id, unnamed().id, own.id].map(|id| (id, later(1)));
    assert_eq!(store.touch(&all, Some(mine)).await.unwrap(), 2);
    assert_eq!(loaded(&store, &own).await.last_used, later(1));
    assert_eq!(loaded(&store, &free).await.last_used, later(1));
    assert_eq!(loaded(&store, &foreign).await.last_used, NOW);
    assert_eq!(loaded(&store, &over).await.last_used, NOW);
    assert_eq!(store.touch(&[], Some(mine)).await.unwrap(), 0);
}

/// Forgotten is forgotten: nothing leads there, and a successor inherits nothing.
pub async fn remove_forgets_all_that_belongs_to_a_session(store: Arc<dyn Store>) {
    let mut record = named("k");
    record.generation = Generation(3);
    let record = inserted(&store, record).await;
    let (handle, name) = (Handle::generate(), Handle::generate().hash(&record.owner));
    store.add_handle(record.id, handle.hash(&record.owner), None).await.unwrap();
    let connection = Connection { name, session: record.id, used: NOW, body: vec![1] };
    store.put_connection(&connection, NOW, None).await.unwrap();
    let put = Put { key: "x", bytes: b"1", expect: Expect::Any, limits: StateLimits::default() };
    store.put_state(record.id, put, None).await.unwrap();
    for _ in 0..2 {
        store.remove(record.id, None).await.unwrap();
        assert_eq!(store.load(record.id).await.unwrap(), None);
        assert_eq!(store.find_handle(handle.hash(&record.owner)).await.unwrap(), None);
        assert_eq!(store.connection(name).await.unwrap(), None);
        assert_eq!(store.state(record.id, "x").await.unwrap(), None);
        assert!(store.list(None, None, 9).await.unwrap().is_empty());
        assert!(store.due(later(9_999), None, 9).await.unwrap().is_empty());
    }
    assert_eq!(inserted(&store, named("k")).await.generation, Generation(0));
}

/// A page that is not full is the last one.
pub async fn list_pages_through_live_records_in_order(store: Arc<dyn Store>) {
    let mut all = Vec::new();
    for n in 0..7u64 {
        let owner = if n % 3 == 2 { owner("bob") } else { owner("ann") };
        // Inserted out of order: ids are made from the time.
        let at = later(u32::try_from((n * 5) % 7).unwrap());
        all.push(inserted(&store, Record::new(owner, Expiry::NEVER, at)).await);
    }
    let mut over = inserted(&store, unnamed()).await;
    over.end(EndReason::Closed, NOW);
    store.replace(&over, Seen::revision(&over), None).await.unwrap();
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

/// The store knows whose time has come, and a touch puts it off.
pub async fn due_lists_what_is_over_earliest_first(store: Arc<dyn Store>) {
    let with = |expiry| Record { expiry, ..unnamed() };
    let idle = inserted(&store, with(Expiry::idle(MINUTE * 5))).await;
    let both = Expiry { idle: Some(MINUTE * 9), absolute: Some(MINUTE * 7) };
    let both = inserted(&store, with(both)).await;
    let late = inserted(&store, with(Expiry::idle(MINUTE * 50))).await;
    inserted(&store, with(Expiry::NEVER)).await;
    let ids =
        |records: Vec<Record>| records.into_iter().map(|record| record.id).collect::<Vec<_>>();
    assert_eq!(ids(store.due(later(4), None, 9).await.unwrap()), []);
    assert_eq!(
        ids(store.due(later(5), None, 9).await.unwrap()),
        [idle.id],
        "a deadline is over when it comes"
    );
    assert_eq!(ids(store.due(later(60), None, 9).await.unwrap()), [idle.id, both.id, late.id]);
    assert_eq!(ids(store.due(later(60), None, 2).await.unwrap()), [idle.id, both.id]);
    let mut pages = Vec::new();
    let mut after = None;
    while let [next] = store.due(later(60), after, 1).await.unwrap().as_slice() {
        after = Some((next.deadline().unwrap(), next.id));
        pages.push(next.id);
    }
    assert_eq!(pages, [idle.id, both.id, late.id], "page by page");
    store.touch(&[(idle.id, later(4)), (both.id, later(6))], None).await.unwrap();
    assert_eq!(
        ids(store.due(later(8), None, 9).await.unwrap()),
        [both.id],
        "age does not wait for use"
    );
    let longer = Record { expiry: Expiry::idle(MINUTE * 100), ..both.clone() };
    store.replace(&longer, Seen::revision(&both), None).await.unwrap();
    assert_eq!(
        ids(store.due(later(9), None, 9).await.unwrap()),
        [idle.id],
        "E33: extend really extends"
    );
    let shorter = Record { expiry: Expiry::idle(MINUTE), ..late.clone() };
    store.replace(&shorter, Seen::revision(&late), None).await.unwrap();
    assert_eq!(ids(store.due(later(9), None, 9).await.unwrap()), [late.id, idle.id]);
}

/// Tombstones go when they are old enough, and only then.
pub async fn purge_forgets_old_tombstones_alone(store: Arc<dyn Store>) {
    let mut over = Vec::new();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let mut record = inserted(&store, named(name)).await;
        store.add_handle(record.id, Handle::generate().hash(&record.owner), None).await.unwrap();
        record.end(EndReason::Closed, later(u32::try_from(n).unwrap()));
        store.replace(&record, Seen::revision(&record), None).await.unwrap();
        over.push(record);
    }
    let live = inserted(&store, named("live")).await;
    assert_eq!(store.purge(later(0), 9).await.unwrap(), 0);
    assert_eq!(store.purge(later(2), 9).await.unwrap(), 2);
    assert_eq!(store.load(over[0].id).await.unwrap(), None);
    assert_eq!(store.load(over[1].id).await.unwrap(), None);
    assert!(store.load(over[2].id).await.unwrap().is_some());
    assert_eq!(inserted(&store, named("a")).await.generation, Generation(0));
    assert_eq!(inserted(&store, named("c")).await.generation, Generation(1));
    assert_eq!(store.purge(later(9_999), 9).await.unwrap(), 1);
    assert_eq!(store.purge(later(9_999), 9).await.unwrap(), 0);
    assert_eq!(loaded(&store, &live).await, live);
    assert_eq!(
        store.find(&live.owner, &live.agent, &key("c")).await.unwrap().map(|c| c.is_live()),
        Some(true)
    );
}
