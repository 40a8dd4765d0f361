//! Decoding of rows.

use stayput_core::{Holder, Lease, Record, SessionId, StoreError};
use tokio_postgres::{Row, types::FromSql};

use super::STORE;
use crate::{error::corrupt, row};

/// Reads one column.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| corrupt(STORE, "a column", error))
}

/// Reads a counter or a size.
pub(super) fn number(row: &Row, name: &str) -> Result<u64, StoreError> {
    let number: i64 = column(row, name)?;
    u64::try_from(number).map_err(|error| corrupt(STORE, "a number", error))
}

/// Same as [`number`], for a size in memory.
pub(super) fn size(row: &Row, name: &str) -> Result<usize, StoreError> {
    usize::try_from(number(row, name)?).map_err(|error| corrupt(STORE, "a number", error))
}

/// Reads a session id.
pub(super) fn session(row: &Row, name: &str) -> Result<SessionId, StoreError> {
    Ok(SessionId::from_uuid(column(row, name)?))
}

/// Reads the columns of a record.
pub(super) fn record(row: &Row) -> Result<Record, StoreError> {
    let columns = row::Row {
        id: session(row, "id")?,
        owner: column(row, "owner")?,
        agent: column(row, "agent")?,
        key: column(row, "key")?,
        created: column(row, "created")?,
        last_used: column(row, "last_used")?,
        idle: column(row, "idle")?,
        absolute: column(row, "absolute")?,
        generation: column(row, "generation")?,
        provisional: column(row, "provisional")?,
        detail: column(row, "detail")?,
        ended_at: column(row, "ended_at")?,
        ended_reason: column(row, "ended_reason")?,
        holder: column(row, "holder")?,
        revision: column(row, "revision")?,
    };
    columns.into_record(STORE)
}

/// Reads the outcome of a function of the schema.
pub(super) fn outcome(row: &Row) -> Result<(), StoreError> {
    match column(row, "outcome")? {
        "done" => Ok(()),
        "missing" => Err(StoreError::Missing),
        "stale" => Err(StoreError::Stale),
        "not_holder" => Err(StoreError::NotHolder),
        "taken" => {
            let by = session(row, "taken_by")?;
            Err(StoreError::Taken { by })
        }
        "held" => {
            let holder = holder(row)?;
            Err(StoreError::HeldBy { holder })
        }
        other => Err(corrupt(STORE, "an outcome", other.to_owned())),
    }
}

fn holder(row: &Row) -> Result<Holder, StoreError> {
    let lease = column::<&str>(row, "held_by")?.parse::<Lease>();
    let lease = lease.map_err(|error| corrupt(STORE, "a lease", error))?;
    Ok(Holder { id: lease.holder, address: column(row, "address")? })
}
