//! Invariants of `Sessions` with two processes and many callers, each of which may be cancelled or
//! left waiting at any point.
//!
//! All calls run on one thread, in an order that a seed decides; only the ids are random, and with
//! them the order in which a sweep visits sessions. `STAYPUT_TEST_SEEDS=60000` tries more seeds.

// The lint does not see that helpers outside of test functions are tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use stayput_core::{
    ActiveSession, Agent, Expiry, Holder, Key, LeaseRenewal, ManualClock, MemoryStore, OpenOptions,
    OpenedSession, Origin, Owner, Record, SessionId, SessionOpenError, Sessions, Settings, Store,
    StoreError, SweepReport, Timestamp,
};
use stayput_testkit::faulty::Faulty;

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: u64 = 3;

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| usize::try_from(self.below(count as u64)).unwrap())
    }
}

/// Result of a call.
enum Outcome {
    Opened(u64, Result<OpenedSession, SessionOpenError>),
    Found(Result<ActiveSession, SessionOpenError>),
    Ended(Result<(), SessionOpenError>),
    Swept(SweepReport),
    Renewed(Result<LeaseRenewal, StoreError>),
    Flushed(Result<u64, SessionOpenError>),
}

type Call = Pin<Box<dyn Future<Output = Outcome>>>;

/// State of the test and expectations of its clients.
struct Chaos {
    random: Random,
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    processes: Vec<Arc<Sessions>>,
    calls: Vec<Call>,
    uses: Vec<ActiveSession>,
    ids: Vec<SessionId>,
    /// Last session that a client got for a key.
    seen: BTreeMap<u64, SessionId>,
    /// Number of times that the end of a session was reported, and the revived sessions.
    ends_reported: BTreeMap<SessionId, u32>,
    /// Sessions that a process reported as lost.
    lost: Arc<Mutex<BTreeSet<SessionId>>>,
    revived: BTreeSet<SessionId>,
}

fn owner() -> Owner {
    Owner::local()
}

fn key(number: u64) -> Key {
    Key::named(&number.to_string()).unwrap()
}

impl Chaos {
    async fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        let settings = Settings {
            lease: MINUTE * 10,
            expiry: Expiry { idle: Some(MINUTE * 7), absolute: Some(MINUTE * 40) },
            ..Settings::default()
        };
        let (mut processes, lost) = (Vec::new(), Arc::<Mutex<BTreeSet<_>>>::default());
        for _ in 0..2 {
            // It does not fail here; it yields between request and answer.
            let store = Arc::new(Faulty::new(store.clone()));
            let started = Sessions::start(store, clock.clone(), Holder::unreachable(), settings)
                .await
                .unwrap();
            let losses = lost.clone();
            started.on_lost(move |id, _| losses.lock().unwrap().extend([id]));
            processes.push(Arc::new(started));
        }
        let (calls, uses, ids, seen) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let (ends_reported, revived) = (BTreeMap::new(), BTreeSet::new());
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self {
            random,
            clock,
            store,
            processes,
            calls,
            uses,
            ids,
            seen,
            ends_reported,
            lost,
            revived,
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.begin_call(),
            7..=14 => self.poll_one_call(),
            15 => {
                if let Some(at) = self.random.pick(self.calls.len()) {
                    drop(self.calls.swap_remove(at)); // the caller is cancelled
                }
            }
            16..=17 => {
                if let Some(at) = self.random.pick(self.uses.len()) {
                    drop(self.uses.swap_remove(at));
                }
            }
            _ => self.clock.advance(MINUTE * u32::try_from(self.random.below(5)).unwrap()),
        }
    }

    fn begin_call(&mut self) {
        let process = self.random.pick(2).unwrap();
        let sessions = self.processes[process].clone();
        let id = self.random.pick(self.ids.len()).map(|at| self.ids[at]);
        let call: Call = match (self.random.below(12), id) {
            (0..=3, _) => {
                let number = self.random.below(KEYS);
                let options = OpenOptions::with_key(owner(), Agent::none(), key(number));
                Box::pin(async move { Outcome::Opened(number, sessions.open(&options).await) })
            }
            (4, _) => Box::pin(async move {
                Outcome::Opened(KEYS, sessions.open(&OpenOptions::new(owner())).await)
            }),
            (5..=6, Some(id)) => {
                Box::pin(async move { Outcome::Found(sessions.find_by_id(&owner(), id).await) })
            }
            (7, Some(id)) => {
                self.revived.insert(id);
                Box::pin(async move { Outcome::Opened(KEYS, sessions.revive(&owner(), id).await) })
            }
            (8, _) => {
                let held = sessions.held_sessions();
                let Some(at) = self.random.pick(held.len()) else { return };
                let session = held[at].clone();
                Box::pin(async move { Outcome::Ended(sessions.end(&session).await) })
            }
            (9, _) => Box::pin(async move { Outcome::Swept(sessions.sweep().await) }),
            (10, _) => Box::pin(async move {
                let renewed = sessions.renew().await;
                sessions.reclaim().await;
                Outcome::Renewed(renewed)
            }),
            _ => Box::pin(async move { Outcome::Flushed(sessions.flush().await) }),
        };
        self.calls.push(call);
    }

    fn poll_one_call(&mut self) {
        if let Some(at) = self.random.pick(self.calls.len()) {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(outcome) = self.calls[at].as_mut().poll(&mut context) {
                drop(self.calls.swap_remove(at));
                self.handle_outcome(outcome);
            }
        }
    }

    fn handle_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Opened(number, Ok(OpenedSession { session, origin })) => {
                let id = session.id();
                self.ids.push(id);
                if number < KEYS {
                    let before = self.seen.insert(number, id);
                    let lost = matches!(origin, Origin::Lost(_));
                    assert!(
                        lost || before.is_none_or(|it| it == id),
                        "a loss on key {number} was not reported"
                    );
                }
                self.uses.push(session);
            }
            Outcome::Found(Ok(session)) => self.uses.push(session),
            Outcome::Swept(swept) => {
                for record in swept.ended {
                    *self.ends_reported.entry(record.id).or_default() += 1;
                }
                swept.error.map_or(Ok(()), Err).map_or_else(assert_allowed, |()| {});
            }
            Outcome::Opened(_, Err(error))
            | Outcome::Found(Err(error))
            | Outcome::Ended(Err(error))
            | Outcome::Flushed(Err(error)) => assert_allowed(error),
            Outcome::Renewed(Err(error)) => panic!("{error:?}"),
            Outcome::Ended(Ok(())) | Outcome::Flushed(Ok(_)) | Outcome::Renewed(Ok(_)) => {}
        }
    }

    /// Completes all calls, renews expired leases, and sweeps.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "a call never ends");
            if self.calls.is_empty() {
                break;
            }
            self.poll_one_call();
        }
        for process in self.processes.clone() {
            for call in 0..3 {
                let process = process.clone();
                self.calls.push(match call {
                    0 => Box::pin(async move {
                        let renewed = process.renew().await;
                        process.reclaim().await;
                        Outcome::Renewed(renewed)
                    }),
                    _ => Box::pin(async move { Outcome::Swept(process.sweep().await) }),
                });
                while !self.calls.is_empty() {
                    self.poll_one_call();
                }
            }
        }
    }

    /// Checks the invariants when no call is in progress.
    async fn check(&self) {
        let mut holders: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (number, process) in self.processes.iter().enumerate() {
            for session in process.held_sessions() {
                let id = session.id();
                assert!(!session.is_closed(), "{id} is held and closed");
                assert_eq!(holders.insert(id, number), None, "{id} is held twice");
                let record = self.store.load(id).await.unwrap().unwrap();
                assert!(record.is_live(), "{id} is held and ended");
                assert_eq!(
                    record.holder.unwrap().holder,
                    process.holder().id,
                    "{id} is claimed by another process"
                );
            }
        }
        for session in self.uses.iter().filter(|session| !session.is_closed()) {
            assert!(holders.contains_key(&session.id()), "{session:?} is in use and not held");
        }
        for record in self.store.list(None, None, 1_000).await.unwrap() {
            let claimed = self.processes.iter().any(|process| {
                record.holder.is_some_and(|lease| lease.holder == process.holder().id)
            });
            let alive = match record.holder {
                Some(lease) => self.store.lease_holder(lease).await.unwrap().is_some(),
                None => false,
            };
            assert!(
                !(claimed && alive) || holders.contains_key(&record.id),
                "{record:?} is claimed and not held"
            );
        }
        self.check_reports().await;
    }

    async fn check_reports(&self) {
        let inside = |id: SessionId| self.uses.iter().any(|session| session.id() == id);
        for id in &self.ids {
            let record: Option<Record> = self.store.load(*id).await.unwrap();
            let over = record.is_none_or(|record| !record.is_live());
            let times = self.ends_reported.get(id).copied().unwrap_or_default();
            if !self.revived.contains(id) && !inside(*id) {
                assert!(times <= 1, "the end of {id} was reported {times} times");
            }
            let lost = self.lost.lock().unwrap().contains(id);
            if over && !inside(*id) && !self.revived.contains(id) && !lost {
                assert_eq!(times, 1, "the end of {id} was not reported");
            }
        }
    }
}

/// Accepts the errors that a caller may get when others are faster, or its process slept for too
/// long.
fn assert_allowed(error: SessionOpenError) {
    use SessionOpenError as E;
    match error {
        E::Unknown | E::Ended(_) | E::HeldElsewhere { .. } | E::LeaseLost => {}
        E::Store(StoreError::Taken { .. } | StoreError::NotHolder) => {}
        error => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn invariants_hold_under_random_cancellation() {
    // One given seed, or more seeds than a normal run.
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("STAYPUT_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("STAYPUT_TEST_SEEDS").unwrap_or(400),
    };
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(async {
            let mut chaos = Chaos::new(seed).await;
            for _ in 0..4 {
                for _ in 0..60 {
                    chaos.step();
                }
                chaos.settle();
                chaos.check().await;
            }
        });
        let result = futures_util::FutureExt::catch_unwind(run).await;
        assert!(result.is_ok(), "with STAYPUT_TEST_SEED={seed}");
    }
}
