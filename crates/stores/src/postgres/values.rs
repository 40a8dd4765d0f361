//! Conversion of parameters.

use std::time::Duration;

use stayput_core::{Digest, ExpectedValue, Lease, Owner};
use tokio_postgres::types::ToSql;

use crate::row;

/// Parameters of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Maximum duration of a lease. PostgreSQL's calendar ends in the year 294276.
const MAX_LEASE: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// Hashes an owner for an index.
pub(super) fn owner_digest(owner: &Owner) -> Digest {
    Digest::compute("owner", &[owner.as_str().as_bytes()])
}

/// Converts a writer's lease to the text that the fence compares.
pub(super) fn lease_text(by: Option<Lease>) -> Option<String> {
    by.map(|lease| lease.to_string())
}

/// Converts a number of rows.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Converts the duration of a lease to milliseconds.
pub(super) fn millis(ttl: Duration) -> i64 {
    row::millis(ttl.min(MAX_LEASE))
}

/// Converts a condition: null is any revision, -1 is none. Revisions begin at 1.
pub(super) fn expected_revision(expected: ExpectedValue) -> Option<i64> {
    match expected {
        ExpectedValue::Any => None,
        ExpectedValue::Absent => Some(-1),
        ExpectedValue::At(revision) => Some(row::number(revision.0)),
    }
}
