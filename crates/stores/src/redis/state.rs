//! The state of a session.

use ::redis::cmd;
use stayput_core::{
    Expect, Lease, Put, Revision, SessionId, StateKey, StoreError, Value as Stored,
};

use super::{
    LARGE, REDIS, RedisStore, allowed, lease_text,
    scripts::{PUT_STATE, REMOVE_STATE, STATE_KEYS},
};
use crate::failure::corrupt;

pub(super) async fn state(
    store: &RedisStore,
    id: SessionId,
    key: &str,
) -> Result<Option<Stored>, StoreError> {
    let mut read = cmd("HMGET");
    read.arg(store.keys.state(id)).arg(format!("r{key}")).arg(format!("v{key}"));
    let (revision, bytes): (Option<u64>, Option<Vec<u8>>) = store.link.one(&read).await?;
    let value = revision.zip(bytes);
    Ok(value.map(|(revision, bytes)| Stored { revision: Revision(revision), bytes }))
}

pub(super) async fn state_keys(
    store: &RedisStore,
    id: SessionId,
) -> Result<Vec<StateKey>, StoreError> {
    let call = STATE_KEYS.call(&[&store.keys.state(id)]);
    let keys: Vec<(String, u64, usize)> = store.link.one(&call).await?;
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
    put: Put<'_>,
    by: Option<Lease>,
) -> Result<Revision, StoreError> {
    let mut call = PUT_STATE.call(&[&store.keys.row(id), &store.keys.state(id)]);
    call.arg(lease_text(by)).arg(put.key).arg(expected(put.expect));
    // What is too large by itself need not travel; whether the session is there at all, and
    // whether this is the first thing wrong, is still for the script to say.
    let bytes = if put.check(0, 0).is_ok() { put.bytes } else { &[] };
    call.arg(bytes).arg(put.bytes.len());
    call.arg(&[put.limits.key, put.limits.value, put.limits.session, put.limits.keys]);
    match store.link.one::<Vec<i64>>(&call).await?.as_slice() {
        [LARGE, others, count] => {
            let number = |n: &i64| usize::try_from(*n).unwrap_or_default();
            put.check(number(others), number(count))?;
            Err(corrupt(REDIS, "the size of a state", "it does not add up"))
        }
        [1, revision] => Ok(Revision(revision.unsigned_abs())),
        said => allowed(said.first().copied().unwrap_or_default()).and(Err(corrupt(
            REDIS,
            "an answer",
            "a put answered something else",
        ))),
    }
}

pub(super) async fn remove_state(
    store: &RedisStore,
    id: SessionId,
    key: &str,
    expect: Expect,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let mut call = REMOVE_STATE.call(&[&store.keys.row(id), &store.keys.state(id)]);
    call.arg(lease_text(by)).arg(key).arg(expected(expect));
    let (code,) = store.link.one(&call).await?;
    allowed(code).map(drop)
}

/// What must be there, as `value.lua` reads it.
fn expected(expect: Expect) -> String {
    match expect {
        Expect::Any => String::new(),
        Expect::Absent => "-".to_owned(),
        Expect::At(revision) => revision.to_string(),
    }
}
