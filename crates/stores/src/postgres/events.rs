//! Event log in PostgreSQL.

use async_trait::async_trait;
use stayput_core::{Event, EventLog, Owner, SessionId, StoreError, Topic};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    decode::{column, number},
    statements as sql,
    values::{Values, owner_digest, sql_limit},
};
use crate::row;

/// Same 64 bits as a signed number, because PostgreSQL has no unsigned ones. Streams are never
/// ordered.
fn stream(topic: &Topic) -> i64 {
    topic.stream.cast_signed()
}

fn event(row: &Row) -> Result<Event, StoreError> {
    Ok(Event { number: number(row, "number")?, body: column(row, "body")? })
}

#[async_trait]
impl EventLog for PostgresStore {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        let owner = owner_digest(&topic.owner);
        let values: Values<'_> =
            &[&owner.as_bytes().as_slice(), &topic.session.as_uuid(), &stream(topic), &body];
        number(&self.answer(sql::APPEND, values).await?, "number")
    }

    async fn read_after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let owner = owner_digest(&topic.owner);
        let values: Values<'_> = &[
            &owner.as_bytes().as_slice(),
            &topic.session.as_uuid(),
            &stream(topic),
            &row::number(after),
            &sql_limit(limit),
        ];
        self.rows(sql::READ_AFTER, values).await?.iter().map(event).collect()
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        let owner = owner_digest(&topic.owner);
        let values: Values<'_> = &[
            &owner.as_bytes().as_slice(),
            &topic.session.as_uuid(),
            &stream(topic),
            &row::number(through),
        ];
        self.rows(sql::TRIM, values).await.map(drop)
    }

    async fn remove_session(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        let digest = owner_digest(owner);
        let values: Values<'_> = &[&digest.as_bytes().as_slice(), &session.as_uuid()];
        self.rows(sql::REMOVE_SESSION, values).await.map(drop)
    }
}
