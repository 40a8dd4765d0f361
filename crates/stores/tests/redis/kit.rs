//! What the tests of this store share.

use std::{collections::BTreeSet, process::Command, time::Duration};

use stayput_core::{
    Agent, Expect, Expiry, Key, Owner, Put, Record, Retry, Revision, Seen, StateLimits, Store,
    StoreError, Timestamp,
};
use stayput_stores::{Database, OpenError};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// After every deadline.
pub(crate) const LATE: Timestamp = Timestamp::from_millis(1_900_000_000_000);

pub(crate) async fn open(url: &str) -> Database {
    stayput_stores::open(url).await.unwrap()
}

pub(crate) fn named(name: &str) -> Record {
    Record::new(Owner::local(), Expiry::default(), NOW).keyed(Agent::none(), key(name))
}

pub(crate) fn key(name: &str) -> Key {
    Key::named(name).unwrap()
}

pub(crate) async fn find(store: &dyn Store, name: &str) -> Option<Record> {
    let (owner, agent, key) = (Owner::local(), Agent::none(), key(name));
    store.find(&owner, &agent, &key).await.unwrap()
}

pub(crate) async fn replace(store: &dyn Store, record: &Record) -> Result<Revision, StoreError> {
    store.replace(record, Seen::revision(record), None).await
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

/// Asserts that the server could not be asked; gives what the driver said.
pub(crate) fn unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(error @ StoreError::Unavailable { .. }) => {
            assert_eq!(error.retry(), Retry::Later);
            std::error::Error::source(&error).unwrap().to_string()
        }
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

/// What a command of the client prints.
pub(crate) fn says(cli: &mut Command, words: &str) -> String {
    let said = cli.arg("-e").args(words.split(' ')).output().unwrap();
    assert!(said.status.success(), "{words}: {said:?}");
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// All keys on a server, but those that stay when all sessions are gone.
pub(crate) fn left(cli: &mut Command) -> BTreeSet<String> {
    let stays = |key: &&str| key.contains(":{leases}:") || key.ends_with(":schema");
    let keys = says(cli, "--scan");
    let keys = keys.lines().filter(|key| !stays(key));
    keys.map(str::to_owned).collect()
}
