//! Record as a hash of strings, of which scripts read and change single fields.

use std::{collections::HashMap, error::Error, str::FromStr, time::Duration};

use ::redis::{Cmd, Pipeline, cmd};
use stayput_core::{
    Attachments, Expiry, Generation, Record, Revision, SessionEnd, SessionId, StoreError, Timestamp,
};

use super::{BATCH_SIZE, REDIS, RedisStore, lease_text};
use crate::error::corrupt;

/// StateValue session. An unset field is an empty string, so that every row has every field.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) record: Record,
    /// Number of times that another session took the key, see `seal.lua`.
    pub(super) seal: String,
}

/// Fields of a hash.
pub(super) type Fields = HashMap<String, String>;

impl Row {
    /// Decodes the fields of a row; no field at all means that the session does not exist.
    pub(super) fn read(id: SessionId, mut fields: Fields) -> Result<Option<Self>, StoreError> {
        if fields.is_empty() {
            return Ok(None);
        }
        let fields = &mut fields;
        let ended = match parse_optional(fields, "ended_at")? {
            None => None,
            Some(at) => Some(SessionEnd {
                at: Timestamp::from_millis(at),
                reason: parse_field(fields, "ended_reason")?,
            }),
        };
        let detail = take_field(fields, "detail")?;
        let mut record = Record {
            id,
            owner: parse_field(fields, "owner")?,
            agent: parse_field(fields, "agent")?,
            key: parse_optional(fields, "key")?,
            created: Timestamp::from_millis(parse_field(fields, "created")?),
            last_used: Timestamp::from_millis(parse_field(fields, "last_used")?),
            expiry: Expiry {
                idle: parse_optional(fields, "idle")?.map(Duration::from_millis),
                absolute: parse_optional(fields, "absolute")?.map(Duration::from_millis),
            },
            generation: Generation(parse_field(fields, "generation")?),
            provisional: parse_field(fields, "provisional")?,
            attachments: Attachments::new(),
            acknowledged: Generation::default(),
            confirmed_expiry: None,
            incarnation: 0,
            handle_used: false,
            ended,
            holder: parse_optional(fields, "holder")?,
            revision: Revision(parse_field(fields, "revision")?),
        };
        record.set_detail(&detail).map_err(unreadable)?;
        let seal = take_field(fields, "seal")?;
        Ok(Some(Self { record, seal }))
    }
}

impl RedisStore {
    /// Reads one row.
    pub(super) async fn row(&self, id: SessionId) -> Result<Option<Row>, StoreError> {
        let fields = self.connection.query(cmd("HGETALL").arg(self.keys.row(id))).await?;
        Row::read(id, fields)
    }

    /// Reads several records, many per round trip.
    pub(super) async fn records(
        &self,
        ids: &[SessionId],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.each_record(ids).await?.into_iter().collect()
    }

    /// Same as [`RedisStore::records`], with an error per record.
    pub(super) async fn each_record(
        &self,
        ids: &[SessionId],
    ) -> Result<Vec<Result<Option<Record>, StoreError>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH_SIZE) {
            let mut pipe = Pipeline::new();
            for id in ids {
                pipe.cmd("HGETALL").arg(self.keys.row(*id));
            }
            let rows: Vec<Fields> = self.connection.query_pipeline(&pipe).await?;
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

/// Adds the fields to a command that a replace sets unconditionally.
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

/// Formats the time of the end; empty for a live record.
pub(super) fn end(record: &Record) -> String {
    record.ended.map(|ended| ended.at.as_millis().to_string()).unwrap_or_default()
}

/// Formats a duration in whole milliseconds, at most [`Timestamp::MAX`].
pub(super) fn millis(span: Duration) -> String {
    let most = u128::from(Timestamp::MAX.as_millis());
    span.as_millis().min(most).to_string()
}

fn take_field(fields: &mut Fields, name: &str) -> Result<String, StoreError> {
    fields.remove(name).ok_or_else(|| unreadable(format!("it has no field '{name}'")))
}

fn parse_field<T: FromStr>(fields: &mut Fields, name: &str) -> Result<T, StoreError>
where
    T::Err: Error + Send + Sync + 'static,
{
    take_field(fields, name)?.parse().map_err(unreadable)
}

fn parse_optional<T: FromStr>(fields: &mut Fields, name: &str) -> Result<Option<T>, StoreError>
where
    T::Err: Error + Send + Sync + 'static,
{
    match take_field(fields, name)? {
        text if text.is_empty() => Ok(None),
        text => text.parse().map(Some).map_err(unreadable),
    }
}

fn unreadable(problem: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    corrupt(REDIS, "a record", problem)
}
