//! Helpers of the tests of this store.

use std::time::Duration;

use stayput_core::{
    Agent, ExpectedValue, Expiry, Key, Owner, Record, Retry, StateLimits, StateWrite, StoreError,
    Timestamp,
};
use stayput_stores::{Database, StoreOpenError};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn open(url: &str) -> Database {
    stayput_stores::open(url).await.unwrap()
}

/// Opens a connection of the test itself, for statements that the store never sends.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    spawn(connection);
    client
}

pub(crate) fn record() -> Record {
    Record::new(Owner::local(), Expiry::NEVER, NOW)
}

pub(crate) fn record_with_key(name: &str) -> Record {
    record().with_key(Agent::none(), Key::named(name).unwrap())
}

pub(crate) fn put<'a>(key: &'a str, bytes: &'a [u8]) -> StateWrite<'a> {
    StateWrite { key, bytes, expected: ExpectedValue::Any, limits: StateLimits::default() }
}

/// Waits for any answer. The test does not measure the time, only that an answer comes at all.
pub(crate) async fn answer<T>(work: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(30), work).await;
    answer.expect("the store hangs")
}

pub(crate) fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    match result {
        Err(error @ StoreError::Unavailable { .. }) => assert_eq!(error.retry(), Retry::Later),
        other => panic!("the server is unavailable: {other:?}"),
    }
}

/// Returns the error of opening a URL, and checks that it contains no password.
pub(crate) async fn open_error(url: &str) -> String {
    let error = answer(stayput_stores::open(url)).await.unwrap_err();
    assert!(matches!(error, StoreOpenError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!format!("{text} {error:?}").contains("secret"), "{text}");
    text
}

#[allow(clippy::disallowed_methods)] // Tasks of tests belong to no session, and are awaited.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// Runs `work` for 0 to `count` concurrently, and returns the results.
pub(crate) async fn run_concurrently<F, T>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|n| spawn(work(n))).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(answer(task).await.unwrap());
    }
    done
}
