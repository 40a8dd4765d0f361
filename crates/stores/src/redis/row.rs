//! A record as a hash of texts: scripts read and change single fields of it.

use std::{collections::HashMap, error::Error, str::FromStr, time::Duration};

use ::redis::{Cmd, Pipeline, cmd};
use stayput_core::{
    Attachments, Ended, Expiry, Generation, Record, Revision, SessionId, StoreError, Timestamp,
};

use super::{BATCH, REDIS, RedisStore, lease_text};
use crate::failure::corrupt;

/// What is read of a session. What is not set is an empty text, so every row has every field.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) record: Record,
    /// Counts how often others took the key of this session, see `seal.lua`.
    pub(super) seal: String,
}

/// The fields of a hash.
pub(super) type Fields = HashMap<String, String>;

impl Row {
    /// Reads all fields of a row; none at all means that there is no such session.
    pub(super) fn read(id: SessionId, mut fields: Fields) -> Result<Option<Self>, StoreError> {
        if fields.is_empty() {
            return Ok(None);
        }
        let fields = &mut fields;
        let ended = match optional(fields, "ended_at")? {
            None => None,
            Some(at) => Some(Ended {
                at: Timestamp::from_millis(at),
                reason: parsed(fields, "ended_reason")?,
            }),
        };
        let detail = taken(fields, "detail")?;
        let mut record = Record {
            id,
            owner: parsed(fields, "owner")?,
            agent: parsed(fields, "agent")?,
            key: optional(fields, "key")?,
            created: Timestamp::from_millis(parsed(fields, "created")?),
            last_used: Timestamp::from_millis(parsed(fields, "last_used")?),
            expiry: Expiry {
                idle: optional(fields, "idle")?.map(Duration::from_millis),
                absolute: optional(fields, "absolute")?.map(Duration::from_millis),
            },
            generation: Generation(parsed(fields, "generation")?),
            provisional: parsed(fields, "provisional")?,
            attachments: Attachments::new(),
            told: Generation::default(),
            wanted: None,
            life: 0,
            named: false,
            ended,
            holder: optional(fields, "holder")?,
            revision: Revision(parsed(fields, "revision")?),
        };
        record.set_detail(&detail).map_err(unreadable)?;
        let seal = taken(fields, "seal")?;
        Ok(Some(Self { record, seal }))
    }
}

impl RedisStore {
    /// Reads one row.
    pub(super) async fn row(&self, id: SessionId) -> Result<Option<Row>, StoreError> {
        let fields = self.link.one(cmd("HGETALL").arg(self.keys.row(id))).await?;
        Row::read(id, fields)
    }

    /// Reads several records, many in one round trip.
    pub(super) async fn records(
        &self,
        ids: &[SessionId],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.each_record(ids).await?.into_iter().collect()
    }

    /// The same, where one that cannot be read does not spoil the others.
    pub(super) async fn each_record(
        &self,
        ids: &[SessionId],
    ) -> Result<Vec<Result<Option<Record>, StoreError>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH) {
            let mut pipe = Pipeline::new();
            for id in ids {
                pipe.cmd("HGETALL").arg(self.keys.row(*id));
            }
            let rows: Vec<Fields> = self.link.many(&pipe).await?;
            for (id, fields) in ids.iter().zip(rows) {
                records.push(Row::read(*id, fields).map(|row| row.map(|row| row.record)));
            }
        }
        Ok(records)
    }
}

/// Adds all fields of a new row to a command.
pub(super) fn write_new(command: &mut Cmd, record: &Record) -> Result<(), StoreError> {
    let key = record.key.as_ref().map_or("", |key| key.as_str());
    let owner = record.owner.as_str();
    command.arg(("owner", owner, "agent", record.agent.as_str(), "key", key));
    command.arg(("last_used", record.last_used.as_millis()));
    command.arg(("ended_at", end(record), "holder", lease_text(record.holder)));
    command.arg(("seal", 0, "state_revision", 0, "state_bytes", 0));
    write_changing(command, record)
}

/// Adds those fields to a command that a replace changes just so.
pub(super) fn write_changing(command: &mut Cmd, record: &Record) -> Result<(), StoreError> {
    let span = |span: Option<Duration>| span.map(millis).unwrap_or_default();
    let reason = record.ended.map_or("", |ended| ended.reason.as_str());
    command.arg(("created", record.created.as_millis()));
    command.arg(("idle", span(record.expiry.idle)));
    command.arg(("absolute", span(record.expiry.absolute)));
    command.arg(("generation", record.generation.0, "revision", record.revision.0));
    command.arg(("provisional", record.provisional.to_string()));
    command.arg(("detail", record.detail(), "ended_reason", reason));
    Ok(())
}

/// When a record ended; empty while it lives.
pub(super) fn end(record: &Record) -> String {
    record.ended.map(|ended| ended.at.as_millis().to_string()).unwrap_or_default()
}

/// A span as whole milliseconds, as far as a moment can be away.
pub(super) fn millis(span: Duration) -> String {
    let most = u128::from(Timestamp::MAX.as_millis());
    span.as_millis().min(most).to_string()
}

fn taken(fields: &mut Fields, name: &str) -> Result<String, StoreError> {
    fields.remove(name).ok_or_else(|| unreadable(format!("it has no field '{name}'")))
}

fn parsed<T: FromStr>(fields: &mut Fields, name: &str) -> Result<T, StoreError>
where
    T::Err: Error + Send + Sync + 'static,
{
    taken(fields, name)?.parse().map_err(unreadable)
}

fn optional<T: FromStr>(fields: &mut Fields, name: &str) -> Result<Option<T>, StoreError>
where
    T::Err: Error + Send + Sync + 'static,
{
    match taken(fields, name)? {
        text if text.is_empty() => Ok(None),
        text => text.parse().map(Some).map_err(unreadable),
    }
}

fn unreadable(problem: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    corrupt(REDIS, "a record", problem)
}
