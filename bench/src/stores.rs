//! Each store compared with its bare driver.
//!
//! The bare side sends the same statement by the driver alone, on as many connections: no types, no checks, no
//! timeouts. The ratio of the rates is the cost of the store.

mod bare;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use stayput_core::{
    ExpectedValue, Expiry, Owner, Record, SessionId, StateLimits, StateWrite, Store, Timestamp,
};
use stayput_testkit::{postgres::PostgresUrl, redis::RedisUrl};

use self::bare::Bare;
use crate::report::{head, line};

/// Number of concurrent callers.
const CALLERS: usize = 32;
const SESSIONS: usize = 256;
const ROUNDS: usize = 5;
const VALUE: &[u8] = &[b'x'; 200];

/// Runs the measurements.
pub(crate) async fn run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.db");
    compare("sqlite", &format!("sqlite:{}", path.display()), 3_000).await;
    let postgres = PostgresUrl::empty();
    compare("postgres", &postgres.url, 4_000).await;
    let redis = RedisUrl::empty();
    compare("redis", &redis.url, 20_000).await;
}

async fn compare(kind: &str, url: &str, count: usize) {
    head(&format!("{kind}: operations of the store for one of the bare driver, {CALLERS} callers"));
    let store = stayput_stores::open(url).await.unwrap().store;
    let mut ids = Vec::new();
    for _ in 0..SESSIONS {
        let record = Record::new(Owner::local(), Expiry::default(), Timestamp::from_millis(1));
        store.insert(&record, None).await.unwrap();
        store.put_state(record.id, put(ExpectedValue::Any), None).await.unwrap();
        ids.push(record.id);
    }
    let ids: Arc<[SessionId]> = ids.into();
    let bare = Arc::new(Bare::open(url).await);
    for verb in [Verb::Load, Verb::State, Verb::Put] {
        let mut rates = [0.0_f64; 2];
        // In turns, so that both see the same machine; the best of each is the least disturbed one.
        for _ in 0..ROUNDS {
            let (store, all) = (store.clone(), ids.clone());
            let ours = rate(count, move |n| ask(store.clone(), verb, all[n % SESSIONS])).await;
            let theirs = bare.clone().rate(verb, ids.clone(), count).await;
            rates = [rates[0].max(ours), rates[1].max(theirs)];
        }
        let ratio = rates[0] / rates[1];
        line(verb.name(), &format!("{ratio:.2}"), Some(("≥ 0.70", ratio >= 0.7)));
    }
}

/// Measured operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Load,
    State,
    Put,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "load a record",
            Self::State => "read a value",
            Self::Put => "write a value",
        }
    }
}

fn put(expect: ExpectedValue) -> StateWrite<'static> {
    StateWrite { key: "key", bytes: VALUE, expected: expect, limits: StateLimits::default() }
}

async fn ask(store: Arc<dyn Store>, verb: Verb, id: SessionId) {
    match verb {
        Verb::Load => drop(store.load(id).await.unwrap().unwrap()),
        Verb::State => drop(store.load_state(id, "key").await.unwrap().unwrap()),
        Verb::Put => drop(store.put_state(id, put(ExpectedValue::Any), None).await.unwrap()),
    }
}

/// Returns the operations per second of this many callers, each sequential.
async fn rate<F>(count: usize, ask: impl Fn(usize) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let ask = ask.clone();
            tokio::spawn(async move {
                for n in (caller..count).step_by(CALLERS) {
                    ask(n).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    per_second(count, start.elapsed())
}

fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
