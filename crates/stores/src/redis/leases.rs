//! Leases, which the server's clock judges, and claims.

use std::time::Duration;

use ::redis::{Cmd, Value};
use stayput_core::{Epoch, Holder, Lease, Record, SessionId, StoreError};

use super::{
    MAX_ATTEMPTS, REDIS, RedisStore,
    connection::decode,
    row::{self, Row},
    scripts::{
        ACQUIRE_LEASE, CLAIM, LEASE_HOLDER, RELEASE_CLAIM, RELEASE_LEASE, RENEW_LEASE, Script,
    },
};
use crate::error::{corrupt, unavailable};

fn lease_command(store: &RedisStore, script: &Script) -> Cmd {
    script.call(&store.keys.leases().each_ref().map(String::as_str))
}

pub(super) async fn acquire_lease(
    store: &RedisStore,
    holder: &Holder,
    ttl: Duration,
) -> Result<Lease, StoreError> {
    let json = serde_json::to_string(holder);
    let json = json.map_err(|error| corrupt(REDIS, "a holder", error))?;
    let mut call = lease_command(store, &ACQUIRE_LEASE);
    call.arg(holder.id.to_string()).arg(json).arg(row::millis(ttl));
    let epoch = Epoch(store.connection.query(&call).await?);
    Ok(Lease { holder: holder.id, epoch })
}

pub(super) async fn renew_lease(
    store: &RedisStore,
    lease: Lease,
    ttl: Duration,
) -> Result<(), StoreError> {
    let mut call = lease_command(store, &RENEW_LEASE);
    call.arg(lease.to_string()).arg(row::millis(ttl));
    match store.connection.query(&call).await? {
        true => Ok(()),
        false => Err(StoreError::LeaseLost),
    }
}

pub(super) async fn release_lease(store: &RedisStore, lease: Lease) -> Result<(), StoreError> {
    store.connection.query(lease_command(store, &RELEASE_LEASE).arg(lease.to_string())).await
}

pub(super) async fn lease_holder(
    store: &RedisStore,
    lease: Lease,
) -> Result<Option<Holder>, StoreError> {
    let json: Option<String> =
        store.connection.query(lease_command(store, &LEASE_HOLDER).arg(lease.to_string())).await?;
    let unreadable = |error| corrupt(REDIS, "a holder", error);
    json.map(|json| serde_json::from_str(&json).map_err(unreadable)).transpose()
}

/// Claims a session. An expired lease never becomes valid again, so between the check of the
/// previous lease and the claim only a faster caller can interfere.
pub(super) async fn claim(
    store: &RedisStore,
    id: SessionId,
    lease: Lease,
) -> Result<Record, StoreError> {
    let mut dead = String::new();
    for _ in 0..MAX_ATTEMPTS {
        let mut call = CLAIM.call(&[&store.keys.row(id)]);
        call.arg(lease.to_string()).arg(&dead);
        let other: String = match store.connection.query(&call).await? {
            Value::Nil => return Err(StoreError::Missing),
            row @ (Value::Array(_) | Value::Map(_)) => {
                let row = Row::read(id, decode(row)?)?;
                return row.map(|row| row.record).ok_or(StoreError::Missing);
            }
            other => decode(other)?,
        };
        let unreadable = |error| corrupt(REDIS, "a claim", error);
        if let Some(holder) = lease_holder(store, other.parse().map_err(unreadable)?).await? {
            return Err(StoreError::HeldBy { holder });
        }
        dead = other;
    }
    Err(unavailable(REDIS, "the claim of the session changes too often"))
}

pub(super) async fn release_claim(
    store: &RedisStore,
    id: SessionId,
    lease: Lease,
) -> Result<(), StoreError> {
    let mut call = RELEASE_CLAIM.call(&[&store.keys.row(id)]);
    store.connection.query(call.arg(lease.to_string())).await
}
