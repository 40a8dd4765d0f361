//! Sessions in PostgreSQL.

mod answer;
mod events;
mod migrate;
mod pool;
mod statements;
mod values;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use deadpool_postgres::Pool;
use stayput_core::{
    Agent, CONNECTIONS_PER_SESSION, Connection, Digest, Epoch, Expect, Generation,
    HANDLES_PER_SESSION, HandleHash, Holder, Key, Lease, Owner, Put, Record, Revision, Seen,
    SessionId, StateKey, Store, StoreError, Timestamp, Value, content_digest,
};
use tokio_postgres::Row;

use self::{
    answer::{column, number, outcome, record, session, size},
    statements as sql,
    values::{Values, expected, millis, owner_digest, page, text},
};
use crate::{
    OpenError, PostgresAddress,
    failure::corrupt,
    row::{self, time},
};

const STORE: &str = "postgres";

/// A store in a PostgreSQL database, for any number of processes on any number of machines.
///
/// # URL
///
/// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `postgresql://…`, with the parameters of
/// [libpq](https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS) behind a
/// `?`: `application_name`, `channel_binding`, `connect_timeout`, `hostaddr`, `options`,
/// `sslnegotiation`, `sslmode` and `sslrootcert`. For a schema other than `public` write
/// `?options=-c%20search_path%3DNAME`. The encoding of the database must be UTF8.
///
/// # TLS
///
/// Without `sslmode`, or with `disable`, the connection is not encrypted: right for this machine and
/// for a network that encrypts by itself. With `require`, `verify-ca` or `verify-full`, which all mean
/// the same here, it is encrypted, and the server must show a certificate for the host's name that a
/// public authority signed; with `sslrootcert=FILE`, which also stands alone, one that an authority
/// in that PEM file signed, and no other. There is no encryption without verification, and no falling
/// back to none.
///
/// # What it does to the database
///
/// Opening makes the tables and functions, all called `stayput_…`, or moves them forward; any number
/// of processes may open at once. The role needs `CREATE` on the schema for that. If a schema is
/// already there, it is enough that the role may `SELECT`, `INSERT`, `UPDATE` and `DELETE` on these
/// tables and `EXECUTE` these functions.
///
/// A process has up to 16 connections. They set `statement_timeout`,
/// `idle_in_transaction_session_timeout`, `default_transaction_isolation` and `plan_cache_mode` of their
/// session, and keep their statements prepared. PgBouncer in session mode suits that. In transaction
/// mode it must be 1.21 or newer with `max_prepared_statements` above zero; and as its connections are
/// shared, give the store a role of its own, for which `default_transaction_isolation` is
/// `read committed`, as it is by default.
///
/// # Failure
///
/// Nothing takes longer than five seconds: then, and when the server goes away or refuses more
/// connections, a call fails with [`StoreError::Unavailable`], and no write is ever repeated here. When
/// the server is back the next call finds it. What was acknowledged survives what PostgreSQL survives;
/// with `synchronous_commit = off`, or after a failover to a replica that lags, the last moments may be
/// missing.
///
/// Leases are judged by the clock of the database server.
pub struct PostgresStore {
    pool: Pool,
}

impl PostgresStore {
    /// Connects, and makes the schema or moves it forward.
    ///
    /// # Errors
    /// [`OpenError::Unreachable`] if there is no such server or it does not let us in,
    /// [`OpenError::File`] if the authority's certificate cannot be read, and
    /// [`OpenError::NewerSchema`].
    pub async fn open(address: &PostgresAddress) -> Result<Self, OpenError> {
        let pool = pool::pool(address)?;
        migrate::migrate(&pool).await?;
        Ok(Self { pool })
    }

    async fn rows(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreError> {
        pool::rows(&self.pool, sql, values).await
    }

    /// The first row, for a statement that has one or none.
    async fn row(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// The row of a statement that always has one.
    async fn answer(&self, sql: &str, values: Values<'_>) -> Result<Row, StoreError> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| corrupt(STORE, "no answer", "a row was expected"))
    }

    /// The answer of a function of the schema, if it did what it was asked to.
    async fn call(&self, sql: &str, values: Values<'_>) -> Result<Row, StoreError> {
        let row = self.answer(sql, values).await?;
        outcome(&row)?;
        Ok(row)
    }

    async fn record(&self, sql: &str, values: Values<'_>) -> Result<Option<Record>, StoreError> {
        self.row(sql, values).await?.as_ref().map(record).transpose()
    }

    async fn records(&self, sql: &str, values: Values<'_>) -> Result<Vec<Record>, StoreError> {
        self.rows(sql, values).await?.iter().map(record).collect()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({:?})", self.pool.status())
    }
}

/// What is forgotten already need not be forgotten.
fn forgotten(result: Result<Row, StoreError>) -> Result<(), StoreError> {
    match result {
        Ok(_) | Err(StoreError::Missing) => Ok(()),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn insert(
        &self,
        record: &Record,
        connection: Option<&Connection>,
    ) -> Result<Generation, StoreError> {
        let it = row::Row::of(record);
        let id = record.id.as_uuid();
        let key = record.key.as_ref();
        let digest = key.map(|key| key.digest(&record.owner, &record.agent));
        let digest = digest.as_ref().map(|digest| digest.as_bytes().as_slice());
        let owner = owner_digest(&record.owner);
        let values: Values<'_> = &[
            &id,
            &it.owner,
            &owner.as_bytes().as_slice(),
            &it.agent,
            &it.key,
            &digest,
            &it.created,
            &it.last_used,
            &it.idle,
            &it.absolute,
            &it.generation,
            &it.provisional,
            &it.detail,
            &it.holder,
            &it.revision,
            &connection.map(|it| it.name.as_bytes().as_slice()),
            &connection.map(|it| it.body.as_slice()),
            &connection.map(|it| time(it.used)),
        ];
        let row = self.call(sql::INSERT, values).await?;
        Ok(Generation(number(&row, "generation")?))
    }

    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError> {
        self.record(sql::LOAD, &[&id.as_uuid()]).await
    }

    async fn find(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let digest = key.digest(owner, agent);
        self.record(sql::FIND, &[&digest.as_bytes().as_slice()]).await
    }

    async fn replace(
        &self,
        record: &Record,
        seen: Seen,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let it = row::Row::of(record);
        let id = record.id.as_uuid();
        let values: Values<'_> = &[
            &id,
            &text(by),
            &row::number(seen.revision.0),
            &seen.last_used.map(time),
            &it.created,
            &it.last_used,
            &it.idle,
            &it.absolute,
            &it.generation,
            &it.provisional,
            &it.detail,
            &it.ended_at,
            &it.ended_reason,
        ];
        let row = self.call(sql::REPLACE, values).await?;
        Ok(Revision(number(&row, "revision")?))
    }

    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        let ids: Vec<_> = used.iter().map(|(id, _)| id.as_uuid()).collect();
        let times: Vec<_> = used.iter().map(|(_, at)| time(*at)).collect();
        let values: Values<'_> = &[&ids, &times, &text(by)];
        let row = self.answer(sql::TOUCH, values).await?;
        number(&row, "noted")
    }

    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &text(by)];
        forgotten(self.call(sql::REMOVE, values).await)
    }

    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (after, limit) = (after.map(|id| id.as_uuid()), page(limit));
        match owner.map(owner_digest) {
            None => self.records(sql::LIST, &[&after, &limit]).await,
            Some(owner) => {
                let values: Values<'_> = &[&after, &limit, &owner.as_bytes().as_slice()];
                self.records(sql::LIST_OF_OWNER, values).await
            }
        }
    }

    async fn due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (after, id) =
            after.map_or((-1, uuid::Uuid::nil()), |(at, id)| (time(at), id.as_uuid()));
        let values: Values<'_> = &[&time(now), &after, &id, &page(limit)];
        let rows = self.rows(sql::DUE, values).await?;
        Ok(rows.iter().filter_map(|row| record(row).ok()).collect())
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let values: Values<'_> = &[&time(ended_before), &page(limit)];
        let row = self.answer(sql::PURGE, values).await?;
        number(&row, "count")
    }

    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> =
            &[&id.as_uuid(), &text(by), &hash.as_bytes().as_slice(), &page(HANDLES_PER_SESSION)];
        self.call(sql::ADD_HANDLE, values).await.map(drop)
    }

    async fn find_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        self.record(sql::FIND_HANDLE, &[&hash.as_bytes().as_slice()]).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        unused: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[
            &connection.session.as_uuid(),
            &text(by),
            &connection.name.as_bytes().as_slice(),
            &connection.body,
            &time(connection.used),
            &time(unused),
            &page(CONNECTIONS_PER_SESSION),
        ];
        self.call(sql::PUT_CONNECTION, values).await.map(drop)
    }

    async fn connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        let values: Values<'_> = &[&name.as_bytes().as_slice()];
        let Some(row) = self.row(sql::CONNECTION, values).await? else {
            return Ok(None);
        };
        Ok(Some(Connection {
            name,
            session: session(&row, "session")?,
            used: Timestamp::from_millis(number(&row, "used")?),
            body: column(&row, "body")?,
        }))
    }

    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        let names: Vec<_> = used.iter().map(|(name, _)| name.as_bytes().as_slice()).collect();
        let times: Vec<_> = used.iter().map(|(_, at)| time(*at)).collect();
        let values: Values<'_> = &[&names, &times, &text(by)];
        let row = self.answer(sql::TOUCH_CONNECTIONS, values).await?;
        number(&row, "noted")
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[&name.as_bytes().as_slice(), &text(by)];
        forgotten(self.call(sql::REMOVE_CONNECTION, values).await)
    }

    async fn state(&self, id: SessionId, key: &str) -> Result<Option<Value>, StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &key.as_bytes()];
        let Some(row) = self.row(sql::STATE, values).await? else {
            return Ok(None);
        };
        Ok(Some(Value {
            revision: Revision(number(&row, "revision")?),
            bytes: column(&row, "value")?,
        }))
    }

    async fn state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        let key = |row: &Row| {
            let key = String::from_utf8(column(row, "key")?);
            Ok(StateKey {
                key: key.map_err(|error| corrupt(STORE, "a key", error))?,
                revision: Revision(number(row, "revision")?),
                size: size(row, "size")?,
            })
        };
        let rows = self.rows(sql::STATE_KEYS, &[&id.as_uuid()]).await?;
        rows.iter().map(key).collect()
    }

    async fn put_state(
        &self,
        id: SessionId,
        put: Put<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        // What the others may have beside this one; less than nothing if it is too large by itself.
        let room = match put.check(0, 0) {
            Ok(()) => page(put.limits.session - put.size()),
            Err(_) => -1,
        };
        let values: Values<'_> = &[
            &id.as_uuid(),
            &text(by),
            &put.key.as_bytes(),
            &put.bytes,
            &expected(put.expect),
            &room,
            &page(put.limits.keys.saturating_sub(1)),
        ];
        let row = self.answer(sql::PUT_STATE, values).await?;
        if column::<&str>(&row, "outcome")? == "too_large" {
            put.check(size(&row, "others")?, size(&row, "count")?)?;
        }
        outcome(&row)?;
        Ok(Revision(number(&row, "revision")?))
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expect: Expect,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &text(by), &key.as_bytes(), &expected(expect)];
        self.call(sql::REMOVE_STATE, values).await.map(drop)
    }

    async fn put_content(&self, content: &[u8]) -> Result<Digest, StoreError> {
        let digest = content_digest(content);
        let values: Values<'_> = &[&digest.as_bytes().as_slice(), &content];
        self.rows(sql::PUT_CONTENT, values).await?;
        Ok(digest)
    }

    async fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.row(sql::CONTENT, &[&digest.as_bytes().as_slice()]).await?;
        row.map(|row| column(&row, "content")).transpose()
    }

    async fn hold(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        let values: Values<'_> = &[&holder.id.to_string(), &holder.address, &millis(ttl)];
        let row = self.answer(sql::HOLD, values).await?;
        Ok(Lease { holder: holder.id, epoch: Epoch(number(&row, "epoch")?) })
    }

    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        let values: Values<'_> = &[&lease.to_string(), &millis(ttl)];
        match self.row(sql::RENEW, values).await? {
            Some(_) => Ok(()),
            None => Err(StoreError::LeaseLost),
        }
    }

    async fn leave(&self, lease: Lease) -> Result<(), StoreError> {
        let values: Values<'_> = &[&lease.to_string()];
        self.rows(sql::LEAVE, values).await.map(drop)
    }

    async fn holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        let values: Values<'_> = &[&lease.to_string()];
        let row = self.answer(sql::HOLDER, values).await?;
        let address: Option<String> = column(&row, "stayput_alive")?;
        Ok(address.map(|address| Holder { id: lease.holder, address }))
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &lease.to_string()];
        record(&self.call(sql::CLAIM, values).await?)
    }

    async fn release(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &lease.to_string()];
        self.rows(sql::RELEASE, values).await.map(drop)
    }
}
