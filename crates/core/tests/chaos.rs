//! Two processes, many callers, every one of them cancelled or left waiting at any point: what must
//! hold of `Sessions` whatever happens.
//!
//! Everything runs on one thread, in an order that a seed decides; only the ids are random, and with
//! them the order in which a sweep meets sessions. `STAYPUT_TEST_SEEDS=60000` tries more of them.

// Helpers stand outside of the tests that the lint knows.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use stayput_core::{
    Agent, Expiry, Holder, InUse, Key, ManualClock, MemoryStore, OpenError, Opened, Origin, Owner,
    Record, Renewed, SessionId, Sessions, Settings, Store, StoreError, Swept, Timestamp, Wish,
};
use stayput_testkit::faulty::Faulty;

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: u64 = 3;

/// A source of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| usize::try_from(self.roll(count as u64)).unwrap())
    }
}

/// What a call came to.
enum Outcome {
    Opened(u64, Result<Opened, OpenError>),
    Found(Result<InUse, OpenError>),
    Ended(Result<(), OpenError>),
    Swept(Swept),
    Renewed(Result<Renewed, StoreError>),
    Flushed(Result<u64, OpenError>),
}

type Call = Pin<Box<dyn Future<Output = Outcome>>>;

/// The world, and what its inhabitants remember.
struct Chaos {
    dice: Dice,
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    processes: Vec<Arc<Sessions>>,
    calls: Vec<Call>,
    uses: Vec<InUse>,
    ids: Vec<SessionId>,
    /// The session that a client last got for a key.
    seen: BTreeMap<u64, SessionId>,
    /// How often a session was said to have ended, and which were revived in between.
    told: BTreeMap<SessionId, u32>,
    /// The sessions that a process said it had let go of.
    lost: BTreeSet<SessionId>,
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
        let mut processes = Vec::new();
        for _ in 0..2 {
            // It does not fail here; it lets others run between asking and being answered.
            let store = Arc::new(Faulty::new(store.clone()));
            let started =
                Sessions::start(store, clock.clone(), Holder::unreachable(), settings).await;
            processes.push(Arc::new(started.unwrap()));
        }
        let (calls, uses, ids, seen) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let (told, revived, lost) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self { dice, clock, store, processes, calls, uses, ids, seen, told, lost, revived }
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0..=6 => self.begin(),
            7..=14 => self.go_on(),
            15 => {
                if let Some(at) = self.dice.pick(self.calls.len()) {
                    drop(self.calls.swap_remove(at)); // whoever waited has gone
                }
            }
            16..=17 => {
                if let Some(at) = self.dice.pick(self.uses.len()) {
                    drop(self.uses.swap_remove(at));
                }
            }
            _ => self.clock.advance(MINUTE * u32::try_from(self.dice.roll(5)).unwrap()),
        }
    }

    fn begin(&mut self) {
        let process = self.dice.pick(2).unwrap();
        let sessions = self.processes[process].clone();
        let id = self.dice.pick(self.ids.len()).map(|at| self.ids[at]);
        let call: Call = match (self.dice.roll(12), id) {
            (0..=3, _) => {
                let number = self.dice.roll(KEYS);
                let wish = Wish::keyed(owner(), Agent::none(), key(number));
                Box::pin(async move { Outcome::Opened(number, sessions.open(&wish).await) })
            }
            (4, _) => {
                Box::pin(
                    async move { Outcome::Opened(KEYS, sessions.open(&Wish::new(owner())).await) },
                )
            }
            (5..=6, Some(id)) => {
                Box::pin(async move { Outcome::Found(sessions.by_id(&owner(), id).await) })
            }
            (7, Some(id)) => {
                self.revived.insert(id);
                Box::pin(async move { Outcome::Opened(KEYS, sessions.revive(&owner(), id).await) })
            }
            (8, _) => {
                let held = sessions.held();
                let Some(at) = self.dice.pick(held.len()) else { return };
                let session = held[at].clone();
                Box::pin(async move { Outcome::Ended(sessions.end(&session).await) })
            }
            (9, _) => Box::pin(async move { Outcome::Swept(sessions.sweep().await) }),
            (10, _) => Box::pin(async move { Outcome::Renewed(sessions.renew().await) }),
            _ => Box::pin(async move { Outcome::Flushed(sessions.flush().await) }),
        };
        self.calls.push(call);
    }

    fn go_on(&mut self) {
        if let Some(at) = self.dice.pick(self.calls.len()) {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(outcome) = self.calls[at].as_mut().poll(&mut context) {
                drop(self.calls.swap_remove(at));
                self.came_to(outcome);
            }
        }
    }

    fn came_to(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Opened(number, Ok(Opened { session, origin })) => {
                let id = session.id();
                self.ids.push(id);
                if number < KEYS {
                    let before = self.seen.insert(number, id);
                    let lost = matches!(origin, Origin::Lost(_));
                    assert!(
                        lost || before.is_none_or(|it| it == id),
                        "a loss on key {number} was silent"
                    );
                }
                self.uses.push(session);
            }
            Outcome::Found(Ok(session)) => self.uses.push(session),
            Outcome::Swept(swept) => {
                for record in swept.ended {
                    *self.told.entry(record.id).or_default() += 1;
                }
                swept.error.map_or(Ok(()), Err).map_or_else(allowed, |()| {});
            }
            Outcome::Opened(_, Err(error))
            | Outcome::Found(Err(error))
            | Outcome::Ended(Err(error))
            | Outcome::Flushed(Err(error)) => allowed(error),
            Outcome::Renewed(Err(error)) => panic!("{error:?}"),
            Outcome::Ended(Ok(())) | Outcome::Flushed(Ok(_)) | Outcome::Renewed(Ok(_)) => {}
        }
        for process in &self.processes {
            self.lost.extend(process.lost().iter().map(|session| session.id()));
        }
    }

    /// Lets all that was begun come to its end, renews what ran out, and sweeps up.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "a call never ends");
            if self.calls.is_empty() {
                break;
            }
            self.go_on();
        }
        for process in self.processes.clone() {
            for call in 0..3 {
                let process = process.clone();
                self.calls.push(match call {
                    0 => Box::pin(async move { Outcome::Renewed(process.renew().await) }),
                    _ => Box::pin(async move { Outcome::Swept(process.sweep().await) }),
                });
                while !self.calls.is_empty() {
                    self.go_on();
                }
            }
        }
    }

    /// What must hold when nothing is under way.
    async fn check(&self) {
        let mut holders: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (number, process) in self.processes.iter().enumerate() {
            for session in process.held() {
                let id = session.id();
                assert!(!session.is_over(), "{id} is held and over");
                assert_eq!(holders.insert(id, number), None, "{id} is held twice");
                let record = self.store.load(id).await.unwrap().unwrap();
                assert!(record.is_live(), "{id} is held and ended");
                assert_eq!(record.holder.unwrap().holder, process.holder().id, "{id} is another's");
            }
        }
        for session in self.uses.iter().filter(|session| !session.is_over()) {
            assert!(holders.contains_key(&session.id()), "{session:?} is in use and not held");
        }
        for record in self.store.list(None, None, 1_000).await.unwrap() {
            let claimed = self.processes.iter().any(|process| {
                record.holder.is_some_and(|lease| lease.holder == process.holder().id)
            });
            let alive = match record.holder {
                Some(lease) => self.store.holder(lease).await.unwrap().is_some(),
                None => false,
            };
            assert!(!(claimed && alive) || holders.contains_key(&record.id), "{record:?} strays");
        }
        self.check_told().await;
    }

    async fn check_told(&self) {
        let inside = |id: SessionId| self.uses.iter().any(|session| session.id() == id);
        for id in &self.ids {
            let record: Option<Record> = self.store.load(*id).await.unwrap();
            let over = record.is_none_or(|record| !record.is_live());
            let times = self.told.get(id).copied().unwrap_or_default();
            if !self.revived.contains(id) && !inside(*id) {
                assert!(times <= 1, "the end of {id} was told {times} times");
            }
            if over && !inside(*id) && !self.revived.contains(id) && !self.lost.contains(id) {
                assert_eq!(times, 1, "nobody was told of the end of {id}");
            }
        }
    }
}

/// What may go wrong for a caller when others are faster, or its process slept for too long.
fn allowed(error: OpenError) {
    use OpenError as E;
    match error {
        E::Unknown | E::Over(_) | E::HeldElsewhere { .. } | E::LeaseLost => {}
        E::Store(StoreError::Taken { .. } | StoreError::NotHolder) => {}
        error => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn whatever_happens() {
    // One seed again, or more of them than there is time for in every run.
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("STAYPUT_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("STAYPUT_TEST_SEEDS").unwrap_or(400),
    };
    for seed in seeds {
        let told = std::panic::AssertUnwindSafe(async {
            let mut chaos = Chaos::new(seed).await;
            for _ in 0..4 {
                for _ in 0..60 {
                    chaos.step();
                }
                chaos.settle();
                chaos.check().await;
            }
        });
        let ended = futures_util::FutureExt::catch_unwind(told).await;
        assert!(ended.is_ok(), "with STAYPUT_TEST_SEED={seed}");
    }
}
