//! Leases, which the server's clock judges, and claims.

use std::time::Duration;

use ::redis::{Cmd, Value};
use stayput_core::{Epoch, Holder, Lease, Record, SessionId, StoreError};

use super::{
    REDIS, RedisStore, TURNS,
    link::answer,
    row::{self, Row},
    scripts::{CLAIM, HOLD, HOLDER, LEAVE, RELEASE, RENEW, Script},
};
use crate::failure::{corrupt, unavailable};

fn on_leases(store: &RedisStore, script: &Script) -> Cmd {
    script.call(&store.keys.leases().each_ref().map(String::as_str))
}

pub(super) async fn hold(
    store: &RedisStore,
    holder: &Holder,
    ttl: Duration,
) -> Result<Lease, StoreError> {
    let json = serde_json::to_string(holder);
    let json = json.map_err(|error| corrupt(REDIS, "a holder", error))?;
    let mut call = on_leases(store, &HOLD);
    call.arg(holder.id.to_string()).arg(json).arg(row::millis(ttl));
    let epoch = Epoch(store.link.one(&call).await?);
    Ok(Lease { holder: holder.id, epoch })
}

pub(super) async fn renew(
    store: &RedisStore,
    lease: Lease,
    ttl: Duration,
) -> Result<(), StoreError> {
    let mut call = on_leases(store, &RENEW);
    call.arg(lease.to_string()).arg(row::millis(ttl));
    match store.link.one(&call).await? {
        true => Ok(()),
        false => Err(StoreError::LeaseLost),
    }
}

pub(super) async fn leave(store: &RedisStore, lease: Lease) -> Result<(), StoreError> {
    store.link.one(on_leases(store, &LEAVE).arg(lease.to_string())).await
}

pub(super) async fn holder(store: &RedisStore, lease: Lease) -> Result<Option<Holder>, StoreError> {
    let json: Option<String> =
        store.link.one(on_leases(store, &HOLDER).arg(lease.to_string())).await?;
    let unreadable = |error| corrupt(REDIS, "a holder", error);
    json.map(|json| serde_json::from_str(&json).map_err(unreadable)).transpose()
}

/// A lease that was seen dead stays so, wherever it is written; so between asking for it and
/// taking its place nothing can go wrong but that somebody else was faster.
pub(super) async fn claim(
    store: &RedisStore,
    id: SessionId,
    lease: Lease,
) -> Result<Record, StoreError> {
    let mut dead = String::new();
    for _ in 0..TURNS {
        let mut call = CLAIM.call(&[&store.keys.row(id)]);
        call.arg(lease.to_string()).arg(&dead);
        let other: String = match store.link.one(&call).await? {
            Value::Nil => return Err(StoreError::Missing),
            row @ (Value::Array(_) | Value::Map(_)) => {
                let row = Row::read(id, answer(row)?)?;
                return row.map(|row| row.record).ok_or(StoreError::Missing);
            }
            other => answer(other)?,
        };
        let unreadable = |error| corrupt(REDIS, "a claim", error);
        if let Some(holder) = holder(store, other.parse().map_err(unreadable)?).await? {
            return Err(StoreError::HeldBy { holder });
        }
        dead = other;
    }
    Err(unavailable(REDIS, "the session changes hands too often"))
}

pub(super) async fn release(
    store: &RedisStore,
    id: SessionId,
    lease: Lease,
) -> Result<(), StoreError> {
    let mut call = RELEASE.call(&[&store.keys.row(id)]);
    store.link.one(call.arg(lease.to_string())).await
}
