//! What goes into a statement.

use std::time::Duration;

use stayput_core::{Digest, Expect, Lease, Owner};
use tokio_postgres::types::ToSql;

use crate::row;

/// The parameters of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A lease over more is one for ever. PostgreSQL's own calendar ends in the year 294276.
const LONGEST_LEASE: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// How an index knows an owner.
pub(super) fn owner_digest(owner: &Owner) -> Digest {
    Digest::of("owner", &[owner.as_str().as_bytes()])
}

/// A writer, as the fence knows it.
pub(super) fn text(by: Option<Lease>) -> Option<String> {
    by.map(|lease| lease.to_string())
}

/// How many rows are wanted.
pub(super) fn page(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// How long a lease is to run.
pub(super) fn millis(ttl: Duration) -> i64 {
    row::span(ttl.min(LONGEST_LEASE))
}

/// Any revision, none, or this one. Revisions begin at one.
pub(super) fn expected(expect: Expect) -> Option<i64> {
    match expect {
        Expect::Any => None,
        Expect::Absent => Some(-1),
        Expect::At(revision) => Some(row::number(revision.0)),
    }
}
