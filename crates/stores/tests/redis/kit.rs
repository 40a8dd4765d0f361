//! Helpers of the tests of this store.

use std::{collections::BTreeSet, process::Command, time::Duration};

use stayput_core::{
    Agent, ExpectedRevision, ExpectedValue, Expiry, Key, Owner, Record, Retry, Revision,
    StateLimits, StateWrite, Store, StoreError, Timestamp,
};
use stayput_stores::{Database, StoreOpenError};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Time after every deadline.
pub(crate) const LATE: Timestamp = Timestamp::from_millis(1_900_000_000_000);

pub(crate) async fn open(url: &str) -> Database {
    stayput_stores::open(url).await.unwrap()
}

pub(crate) fn record_with_key(name: &str) -> Record {
    Record::new(Owner::local(), Expiry::default(), NOW).with_key(Agent::none(), key(name))
}

pub(crate) fn key(name: &str) -> Key {
    Key::named(name).unwrap()
}

pub(crate) async fn find_by_key(store: &dyn Store, name: &str) -> Option<Record> {
    let (owner, agent, key) = (Owner::local(), Agent::none(), key(name));
    store.find_by_key(&owner, &agent, &key).await.unwrap()
}

pub(crate) async fn replace(store: &dyn Store, record: &Record) -> Result<Revision, StoreError> {
    store.replace(record, ExpectedRevision::revision(record), None).await
}

pub(crate) fn put<'a>(key: &'a str, bytes: &'a [u8]) -> StateWrite<'a> {
    StateWrite { key, bytes, expected: ExpectedValue::Any, limits: StateLimits::default() }
}

/// Waits for any answer. The test does not measure the time, only that an answer comes at all.
pub(crate) async fn answer<T>(work: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(30), work).await;
    answer.expect("the store hangs")
}

/// Asserts that the server was unavailable, and returns the driver's error.
pub(crate) fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(error @ StoreError::Unavailable { .. }) => {
            assert_eq!(error.retry(), Retry::Later);
            std::error::Error::source(&error).unwrap().to_string()
        }
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

/// Returns the output of a command of the client.
pub(crate) fn run_cli(cli: &mut Command, words: &str) -> String {
    let output = cli.arg("-e").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Lists all keys on a server, except those that stay when all sessions are removed.
pub(crate) fn session_keys(cli: &mut Command) -> BTreeSet<String> {
    let permanent = |key: &&str| key.contains(":{leases}:") || key.ends_with(":schema");
    let keys = run_cli(cli, "--scan");
    let keys = keys.lines().filter(|key| !permanent(key));
    keys.map(str::to_owned).collect()
}
