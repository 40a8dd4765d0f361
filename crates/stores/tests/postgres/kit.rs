//! What the tests of this store share.

use std::time::Duration;

use stayput_core::{
    Agent, Expect, Expiry, Key, Owner, Put, Record, Retry, StateLimits, StoreError, Timestamp,
};
use stayput_stores::{Database, OpenError};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn open(url: &str) -> Database {
    stayput_stores::open(url).await.unwrap()
}

/// A connection of the test's own, for what the store never says.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    spawn(connection);
    client
}

pub(crate) fn record() -> Record {
    Record::new(Owner::local(), Expiry::NEVER, NOW)
}

pub(crate) fn named(name: &str) -> Record {
    record().keyed(Agent::none(), Key::named(name).unwrap())
}

pub(crate) fn put<'a>(key: &'a str, bytes: &'a [u8]) -> Put<'a> {
    Put { key, bytes, expect: Expect::Any, limits: StateLimits::default() }
}

/// Waits for an answer, whatever it is. That it comes in time is not for a test to measure; that it
/// comes at all is.
pub(crate) async fn answer<T>(work: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(30), work).await;
    answer.expect("the store hangs")
}

pub(crate) fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    match result {
        Err(error @ StoreError::Unavailable { .. }) => assert_eq!(error.retry(), Retry::Later),
        other => panic!("the server is not there: {other:?}"),
    }
}

/// Says why a URL cannot be opened. A password is never part of it.
pub(crate) async fn refusal(url: &str) -> String {
    let error = answer(stayput_stores::open(url)).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    let said = error.to_string();
    assert!(!format!("{said} {error:?}").contains("secret"), "{said}");
    said
}

#[allow(clippy::disallowed_methods)] // Tasks of tests belong to no session, and are awaited.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// Runs `work` for 0 to `count` at once, and gives what came of it.
pub(crate) async fn at_once<F, T>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
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
