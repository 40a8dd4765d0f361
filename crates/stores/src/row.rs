//! Columns of a record, for SQL stores.

use std::time::Duration;

use stayput_core::{
    Attachments, Expiry, Generation, Record, Revision, SessionEnd, SessionId, StoreError, Timestamp,
};

use crate::error::corrupt;

/// Columns of a record in database types: signed integers and text.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: SessionId,
    pub(crate) owner: String,
    pub(crate) agent: String,
    pub(crate) key: Option<String>,
    pub(crate) created: i64,
    pub(crate) last_used: i64,
    pub(crate) idle: Option<i64>,
    pub(crate) absolute: Option<i64>,
    pub(crate) generation: i64,
    pub(crate) provisional: bool,
    /// JSON that no store reads, see `Record::detail`.
    pub(crate) detail: String,
    pub(crate) ended_at: Option<i64>,
    pub(crate) ended_reason: Option<String>,
    pub(crate) holder: Option<String>,
    pub(crate) revision: i64,
}

impl Row {
    /// Converts a record to columns.
    pub(crate) fn new(record: &Record) -> Self {
        Self {
            id: record.id,
            owner: record.owner.as_str().to_owned(),
            agent: record.agent.as_str().to_owned(),
            key: record.key.as_ref().map(|key| key.as_str().to_owned()),
            created: time(record.created),
            last_used: time(record.last_used),
            idle: record.expiry.idle.map(millis),
            absolute: record.expiry.absolute.map(millis),
            generation: number(record.generation.0),
            provisional: record.provisional,
            detail: record.detail(),
            ended_at: record.ended.map(|ended| time(ended.at)),
            ended_reason: record.ended.map(|ended| ended.reason.as_str().to_owned()),
            holder: record.holder.map(|lease| lease.to_string()),
            revision: number(record.revision.0),
        }
    }

    /// Converts columns of `store` to a record.
    pub(crate) fn into_record(self, store: &'static str) -> Result<Record, StoreError> {
        let unreadable = |problem: Box<dyn std::error::Error + Send + Sync>| {
            corrupt(store, "a session", problem)
        };
        let ended = match (self.ended_at, self.ended_reason) {
            (Some(at), Some(reason)) => {
                let reason = reason.parse().map_err(|error| unreadable(Box::new(error)))?;
                Some(SessionEnd { at: timestamp(at), reason })
            }
            _ => None,
        };
        let mut record = Record {
            id: self.id,
            owner: self.owner.parse().map_err(|error| unreadable(Box::new(error)))?,
            agent: self.agent.parse().map_err(|error| unreadable(Box::new(error)))?,
            key: self
                .key
                .map(|key| key.parse())
                .transpose()
                .map_err(|error| unreadable(Box::new(error)))?,
            created: timestamp(self.created),
            last_used: timestamp(self.last_used),
            expiry: Expiry { idle: self.idle.map(duration), absolute: self.absolute.map(duration) },
            generation: Generation(unsigned(self.generation)),
            provisional: self.provisional,
            attachments: Attachments::new(),
            acknowledged: Generation::default(),
            confirmed_expiry: None,
            incarnation: 0,
            handle_used: false,
            ended,
            holder: self
                .holder
                .map(|it| it.parse())
                .transpose()
                .map_err(|error| unreadable(Box::new(error)))?,
            revision: Revision(unsigned(self.revision)),
        };
        record.set_detail(&self.detail).map_err(|error| unreadable(Box::new(error)))?;
        Ok(record)
    }
}

/// Longest stored duration. Longer ones are practically infinite, and a timestamp plus this
/// duration still fits a signed integer.
const MAX_DURATION_MILLIS: i64 = i64::MAX / 4;

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(MAX_DURATION_MILLIS).min(MAX_DURATION_MILLIS)
}

pub(crate) fn time(at: Timestamp) -> i64 {
    number(at.as_millis())
}

pub(crate) fn timestamp(at: i64) -> Timestamp {
    Timestamp::from_millis(unsigned(at))
}

pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(unsigned(millis))
}
