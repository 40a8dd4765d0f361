//! State of a session.

use ::redis::cmd;
use stayput_core::{
    ExpectedValue, Lease, Revision, SessionId, StateKey, StateValue, StateWrite, StoreError,
};

use super::{
    REDIS, RedisStore, TOO_LARGE, check_code, lease_text,
    scripts::{LIST_STATE_KEYS, PUT_STATE, REMOVE_STATE},
};
use crate::error::corrupt;

pub(super) async fn load_state(
    store: &RedisStore,
    id: SessionId,
    key: &str,
) -> Result<Option<StateValue>, StoreError> {
    let mut read = cmd("HMGET");
    read.arg(store.keys.state(id)).arg(format!("r{key}")).arg(format!("v{key}"));
    let (revision, bytes): (Option<u64>, Option<Vec<u8>>) = store.connection.query(&read).await?;
    let value = revision.zip(bytes);
    Ok(value.map(|(revision, bytes)| StateValue { revision: Revision(revision), bytes }))
}

pub(super) async fn list_state_keys(
    store: &RedisStore,
    id: SessionId,
) -> Result<Vec<StateKey>, StoreError> {
    let call = LIST_STATE_KEYS.call(&[&store.keys.state(id)]);
    let keys: Vec<(String, u64, usize)> = store.connection.query(&call).await?;
    let mut keys: Vec<_> = keys
        .into_iter()
        .map(|(key, revision, size)| StateKey { key, revision: Revision(revision), size })
        .collect();
    keys.sort_unstable_by(|one, two| one.key.cmp(&two.key));
    Ok(keys)
}

pub(super) async fn put_state(
    store: &RedisStore,
    id: SessionId,
    write: StateWrite<'_>,
    by: Option<Lease>,
) -> Result<Revision, StoreError> {
    let mut call = PUT_STATE.call(&[&store.keys.row(id), &store.keys.state(id)]);
    call.arg(lease_text(by)).arg(write.key).arg(format_expected(write.expected));
    // A value that is too large alone is not sent. The script still decides whether the session
    // exists and which error comes first.
    let bytes = if write.check(0, 0).is_ok() { write.bytes } else { &[] };
    call.arg(bytes).arg(write.bytes.len());
    call.arg(&[write.limits.key, write.limits.value, write.limits.session, write.limits.keys]);
    match store.connection.query::<Vec<i64>>(&call).await?.as_slice() {
        [TOO_LARGE, others, count] => {
            let number = |n: &i64| usize::try_from(*n).unwrap_or_default();
            write.check(number(others), number(count))?;
            Err(corrupt(REDIS, "the size of a state", "it does not add up"))
        }
        [1, revision] => Ok(Revision(revision.unsigned_abs())),
        answer => check_code(answer.first().copied().unwrap_or_default()).and(Err(corrupt(
            REDIS,
            "an answer",
            "unexpected answer to a write",
        ))),
    }
}

pub(super) async fn remove_state(
    store: &RedisStore,
    id: SessionId,
    key: &str,
    expected: ExpectedValue,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let mut call = REMOVE_STATE.call(&[&store.keys.row(id), &store.keys.state(id)]);
    call.arg(lease_text(by)).arg(key).arg(format_expected(expected));
    let (code,) = store.connection.query(&call).await?;
    check_code(code).map(drop)
}

/// Formats a condition for `expected_value.lua`.
fn format_expected(expected: ExpectedValue) -> String {
    match expected {
        ExpectedValue::Any => String::new(),
        ExpectedValue::Absent => "-".to_owned(),
        ExpectedValue::At(revision) => revision.to_string(),
    }
}
