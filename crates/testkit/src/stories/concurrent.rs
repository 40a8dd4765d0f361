//! Concurrent stories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use stayput_core::{
    Agent, EndReason, ExpectedRevision, Expiry, Generation, Holder, Key, Lease, Owner, Record,
    SessionId, State, StateLimits, Store, StoreError, Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const KEYS: usize = 3;

/// Operation of a task, on the session that currently has the key.
#[derive(Clone, Copy, Debug)]
enum Act {
    Open,
    End,
    Count,
    Claim,
    Touch,
}

/// Totals that must match in the end.
#[derive(Debug)]
struct Ledger {
    /// Generations that inserts got, per key.
    generations: Mutex<BTreeMap<usize, Vec<Generation>>>,
    /// Acknowledged updates, per session.
    counts: Mutex<BTreeMap<SessionId, u64>>,
    inserted: AtomicUsize,
    ended: AtomicUsize,
    /// Holder of the session that all of them claim; 0 is none.
    held: AtomicUsize,
}

/// Lets `tasks` tasks of two holders act on a few keys concurrently.
///
/// The store must be empty.
pub async fn all_at_once(store: Arc<dyn Store>, tasks: usize, acts: usize) {
    let act = prop_oneof![
        4 => Just(Act::Open), 2 => Just(Act::End), 6 => Just(Act::Count), 3 => Just(Act::Claim), 1 => Just(Act::Touch)
    ];
    let story = prop::collection::vec((act, 0..KEYS), acts);
    let mut random = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let ledger = Arc::new(Ledger {
        generations: Mutex::default(),
        counts: Mutex::default(),
        inserted: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        held: AtomicUsize::new(0),
    });
    let wanted = Record::new(owner(), Expiry::NEVER, NOW);
    store.insert(&wanted, None).await.unwrap();
    let mut running = Vec::new();
    for task in 0..tasks {
        let story = story.new_tree(&mut random).unwrap().current();
        let lease =
            store.acquire_lease(&Holder::unreachable(), Duration::from_secs(3_600)).await.unwrap();
        let actor = Actor {
            store: store.clone(),
            ledger: ledger.clone(),
            lease,
            number: task + 1,
            wanted: wanted.id,
        };
        running.push(tokio::spawn(actor.play(story)));
    }
    for task in running {
        task.await.unwrap();
    }
    ledger.audit(&store, wanted.id).await;
}

struct Actor {
    store: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    lease: Lease,
    number: usize,
    wanted: SessionId,
}

fn owner() -> Owner {
    Owner::verified("https://id.example.com", "all").unwrap()
}

fn key(number: usize) -> Key {
    Key::named(&format!("key-{number}")).unwrap()
}

impl Actor {
    async fn play(self, story: Vec<(Act, usize)>) {
        for (act, key) in story {
            match act {
                Act::Open => self.open(key).await,
                Act::End => self.end(key).await,
                Act::Count => self.count(key).await,
                Act::Claim => self.claim().await,
                Act::Touch => self.touch(key).await,
            }
        }
    }

    async fn found(&self, number: usize) -> Option<Record> {
        self.store.find_by_key(&owner(), &Agent::none(), &key(number)).await.unwrap()
    }

    async fn open(&self, number: usize) {
        let record = Record::new(owner(), Expiry::NEVER, NOW).with_key(Agent::none(), key(number));
        match self.store.insert(&record, None).await {
            Ok(generation) => {
                self.ledger.inserted.fetch_add(1, Ordering::SeqCst);
                let mut generations = self.ledger.generations.lock().unwrap();
                generations.entry(number).or_default().push(generation);
            }
            Err(StoreError::Taken { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn end(&self, number: usize) {
        let Some(seen) = self.found(number).await else {
            return;
        };
        let mut over = seen.clone();
        over.end(EndReason::Closed, NOW);
        match self.store.replace(&over, ExpectedRevision::revision(&seen), None).await {
            Ok(_) => {
                self.ledger.ended.fetch_add(1, Ordering::SeqCst);
                self.ledger.counts.lock().unwrap().remove(&seen.id);
            }
            Err(StoreError::Stale) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn count(&self, number: usize) {
        let Some(session) = self.found(number).await else {
            return;
        };
        let state = State::new(self.store.clone(), session.id, None, StateLimits::default());
        match state.update("count", |count: &mut u64| *count += 1).await {
            Ok(()) => *self.ledger.counts.lock().unwrap().entry(session.id).or_default() += 1,
            // The session ended meanwhile.
            Err(stayput_core::StateError::Store(StoreError::Missing)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Claims the session, and checks that the holder is alone until it releases it.
    async fn claim(&self) {
        match self.store.claim(self.wanted, self.lease).await {
            Ok(_) => {
                assert_eq!(
                    self.ledger.held.swap(self.number, Ordering::SeqCst),
                    0,
                    "two hold one session"
                );
                tokio::task::yield_now().await;
                assert_eq!(
                    self.ledger.held.swap(0, Ordering::SeqCst),
                    self.number,
                    "two hold one session"
                );
                self.store.release_claim(self.wanted, self.lease).await.unwrap();
            }
            Err(StoreError::HeldBy { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn touch(&self, number: usize) {
        if let Some(session) = self.found(number).await {
            let used = NOW.after(Duration::from_secs(self.number as u64));
            self.store.touch(&[(session.id, used)], None).await.unwrap();
        }
    }
}

impl Ledger {
    async fn audit(&self, store: &Arc<dyn Store>, wanted: SessionId) {
        for (key, generations) in self.generations.lock().unwrap().iter() {
            let different: BTreeSet<_> = generations.iter().collect();
            assert_eq!(
                different.len(),
                generations.len(),
                "key {key}: a generation was given twice"
            );
            assert_eq!(different.len() as u64, generations.iter().max().unwrap().0 + 1);
        }
        let live = store.list(None, None, 10_000).await.unwrap();
        let [inserted, ended] =
            [&self.inserted, &self.ended].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(
            live.len(),
            inserted - ended + 1,
            "{inserted} inserted, {ended} ended, and one more"
        );
        for number in 0..KEYS {
            let having = live.iter().filter(|record| record.key.as_ref() == Some(&key(number)));
            let having: Vec<_> = having.map(|record| record.id).collect();
            let found = store.find_by_key(&owner(), &Agent::none(), &key(number)).await.unwrap();
            assert_eq!(having, found.into_iter().map(|record| record.id).collect::<Vec<_>>());
        }
        let counts = self.counts.lock().unwrap().clone();
        for record in live.iter().filter(|record| record.id != wanted) {
            let state = State::new(store.clone(), record.id, None, StateLimits::default());
            let count: Option<u64> = state.get("count").await.unwrap();
            assert_eq!(
                count.unwrap_or(0),
                counts.get(&record.id).copied().unwrap_or(0),
                "{record:?}"
            );
        }
    }
}
