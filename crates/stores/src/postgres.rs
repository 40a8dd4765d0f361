//! PostgreSQL store.

mod decode;
mod events;
mod migrate;
mod pool;
mod statements;
mod values;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use deadpool_postgres::Pool;
use stayput_core::{
    Agent, Connection, Epoch, ExpectedRevision, ExpectedValue, Generation, HandleHash, Holder, Key,
    Lease, MAX_HANDLES_PER_SESSION, Owner, RETAINED_CONNECTIONS_PER_SESSION, Record, Revision,
    SessionId, StateKey, StateValue, StateWrite, Store, StoreError, Timestamp,
};
use tokio_postgres::Row;

use self::{
    decode::{column, number, outcome, record, session, size},
    statements as sql,
    values::{Values, expected_revision, lease_text, millis, owner_digest, sql_limit},
};
use crate::{
    PostgresAddress, StoreOpenError,
    error::corrupt,
    row::{self, time},
};

const STORE: &str = "postgres";

/// [`Store`] and [`EventLog`](stayput_core::EventLog) in a PostgreSQL database, for any number of
/// processes on any number of machines.
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
/// Without `sslmode`, or with `disable`, the connection is not encrypted: right for this machine
/// and for an encrypted network. With `require`, `verify-ca` or `verify-full`, which all mean the
/// same here, it is encrypted, and the server's certificate for the host's name must be signed by a
/// public authority. With `sslrootcert=FILE`, also without `sslmode`, it must be signed by an
/// authority in that PEM file. There is no encryption without verification, and no fallback to
/// none.
///
/// # Effects on the database
///
/// Opening creates or migrates the tables and functions, all named `stayput_…`; several processes
/// may open at once. The role needs `CREATE` on the schema for that. If the schema exists,
/// `SELECT`, `INSERT`, `UPDATE` and `DELETE` on these tables and `EXECUTE` on these functions
/// suffice.
///
/// A process has up to 17 connections, one of them for its lease. They set `statement_timeout`,
/// `idle_in_transaction_session_timeout`, `default_transaction_isolation` and `plan_cache_mode` of
/// their session, and keep their statements prepared. PgBouncer works in session mode. In
/// transaction mode it must be 1.21 or newer with `max_prepared_statements` above zero; because its
/// connections are shared, give the store a role of its own with `default_transaction_isolation`
/// set to `read committed`, which is the default.
///
/// # Failures
///
/// A call takes at most five seconds: after that, and when the server is gone or refuses more
/// connections, it fails with [`StoreError::Unavailable`]. No write is ever repeated. When the
/// server is back, the next call works. Acknowledged writes are as durable as PostgreSQL; with
/// `synchronous_commit = off`, or after a failover to a replica that lags, the last moments may be
/// missing.
///
/// The clock of the database server judges leases.
pub struct PostgresStore {
    pool: Pool,
    /// Connection for calls on leases.
    leases: Pool,
}

impl PostgresStore {
    /// Connects, and creates or migrates the schema.
    ///
    /// # Errors
    /// [`StoreOpenError::Unreachable`] if the server cannot be reached or refuses the credentials,
    /// [`StoreOpenError::File`] if the authority's certificate cannot be read,
    /// [`StoreOpenError::NewerSchema`] and [`StoreOpenError::OlderSchema`].
    pub async fn open(address: &PostgresAddress) -> Result<Self, StoreOpenError> {
        let pool = pool::pool(address, pool::MAX_CONNECTIONS)?;
        let leases = pool::pool(address, pool::MAX_LEASE_CONNECTIONS)?;
        migrate::migrate(&pool).await?;
        Ok(Self { pool, leases })
    }

    async fn rows(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreError> {
        pool::rows(&self.pool, sql, values).await
    }

    /// Returns the first row of a statement that has one or none.
    async fn row(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Returns the row of a statement that always has one.
    async fn answer(&self, sql: &str, values: Values<'_>) -> Result<Row, StoreError> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| corrupt(STORE, "no answer", "a row was expected"))
    }

    /// Calls a function of the schema, and converts its outcome.
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

/// Accepts a missing session or connection.
fn missing_is_ok(result: Result<Row, StoreError>) -> Result<(), StoreError> {
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
        let it = row::Row::new(record);
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
            &connection.map(|it| time(it.last_used)),
        ];
        let row = self.call(sql::INSERT, values).await?;
        Ok(Generation(number(&row, "generation")?))
    }

    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError> {
        self.record(sql::LOAD, &[&id.as_uuid()]).await
    }

    async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let digest = key.digest(owner, agent);
        self.record(sql::FIND_BY_KEY, &[&digest.as_bytes().as_slice()]).await
    }

    async fn replace(
        &self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let it = row::Row::new(record);
        let id = record.id.as_uuid();
        let values: Values<'_> = &[
            &id,
            &lease_text(by),
            &row::number(expected.revision.0),
            &expected.last_used.map(time),
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
        let values: Values<'_> = &[&ids, &times, &lease_text(by)];
        let row = self.answer(sql::TOUCH, values).await?;
        number(&row, "touched")
    }

    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &lease_text(by)];
        missing_is_ok(self.call(sql::REMOVE, values).await)
    }

    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (after, limit) = (after.map(|id| id.as_uuid()), sql_limit(limit));
        match owner.map(owner_digest) {
            None => self.records(sql::LIST, &[&after, &limit]).await,
            Some(owner) => {
                let values: Values<'_> = &[&after, &limit, &owner.as_bytes().as_slice()];
                self.records(sql::LIST_OF_OWNER, values).await
            }
        }
    }

    async fn list_due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (after, id) =
            after.map_or((-1, uuid::Uuid::nil()), |(at, id)| (time(at), id.as_uuid()));
        let values: Values<'_> = &[&time(now), &after, &id, &sql_limit(limit)];
        let rows = self.rows(sql::LIST_DUE, values).await?;
        Ok(rows.iter().filter_map(|row| record(row).ok()).collect())
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let values: Values<'_> = &[&time(ended_before), &sql_limit(limit)];
        let row = self.answer(sql::PURGE, values).await?;
        number(&row, "count")
    }

    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[
            &id.as_uuid(),
            &lease_text(by),
            &hash.as_bytes().as_slice(),
            &sql_limit(MAX_HANDLES_PER_SESSION),
        ];
        self.call(sql::ADD_HANDLE, values).await.map(drop)
    }

    async fn find_by_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        self.record(sql::FIND_BY_HANDLE, &[&hash.as_bytes().as_slice()]).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[
            &connection.session.as_uuid(),
            &lease_text(by),
            &connection.name.as_bytes().as_slice(),
            &connection.body,
            &time(connection.last_used),
            &time(stale_before),
            &sql_limit(RETAINED_CONNECTIONS_PER_SESSION),
        ];
        self.call(sql::PUT_CONNECTION, values).await.map(drop)
    }

    async fn load_connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        let values: Values<'_> = &[&name.as_bytes().as_slice()];
        let Some(row) = self.row(sql::LOAD_CONNECTION, values).await? else {
            return Ok(None);
        };
        Ok(Some(Connection {
            name,
            session: session(&row, "session")?,
            last_used: Timestamp::from_millis(number(&row, "last_used")?),
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
        let values: Values<'_> = &[&names, &times, &lease_text(by)];
        let row = self.answer(sql::TOUCH_CONNECTIONS, values).await?;
        number(&row, "touched")
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> = &[&name.as_bytes().as_slice(), &lease_text(by)];
        missing_is_ok(self.call(sql::REMOVE_CONNECTION, values).await)
    }

    async fn load_state(&self, id: SessionId, key: &str) -> Result<Option<StateValue>, StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &key.as_bytes()];
        let Some(row) = self.row(sql::LOAD_STATE, values).await? else {
            return Ok(None);
        };
        Ok(Some(StateValue {
            revision: Revision(number(&row, "revision")?),
            bytes: column(&row, "value")?,
        }))
    }

    async fn list_state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        let key = |row: &Row| {
            let key = String::from_utf8(column(row, "key")?);
            Ok(StateKey {
                key: key.map_err(|error| corrupt(STORE, "a key", error))?,
                revision: Revision(number(row, "revision")?),
                size: size(row, "size")?,
            })
        };
        let rows = self.rows(sql::LIST_STATE_KEYS, &[&id.as_uuid()]).await?;
        rows.iter().map(key).collect()
    }

    async fn put_state(
        &self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        // Bytes left for the other values; -1 if this value alone is too large.
        let max_other_bytes = match write.check(0, 0) {
            Ok(()) => sql_limit(write.limits.session - write.size()),
            Err(_) => -1,
        };
        let values: Values<'_> = &[
            &id.as_uuid(),
            &lease_text(by),
            &write.key.as_bytes(),
            &write.bytes,
            &expected_revision(write.expected),
            &max_other_bytes,
            &sql_limit(write.limits.keys.saturating_sub(1)),
        ];
        let row = self.answer(sql::PUT_STATE, values).await?;
        if column::<&str>(&row, "outcome")? == "too_large" {
            write.check(size(&row, "others")?, size(&row, "count")?)?;
        }
        outcome(&row)?;
        Ok(Revision(number(&row, "revision")?))
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expected: ExpectedValue,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let values: Values<'_> =
            &[&id.as_uuid(), &lease_text(by), &key.as_bytes(), &expected_revision(expected)];
        self.call(sql::REMOVE_STATE, values).await.map(drop)
    }

    async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        let values: Values<'_> = &[&holder.id.to_string(), &holder.address, &millis(ttl)];
        let rows = pool::rows(&self.leases, sql::ACQUIRE_LEASE, values).await?;
        let row = rows.first().ok_or_else(|| corrupt(STORE, "no answer", "a row was expected"))?;
        Ok(Lease { holder: holder.id, epoch: Epoch(number(row, "epoch")?) })
    }

    async fn renew_lease(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        let values: Values<'_> = &[&lease.to_string(), &millis(ttl)];
        match pool::rows(&self.leases, sql::RENEW_LEASE, values).await?.is_empty() {
            false => Ok(()),
            true => Err(StoreError::LeaseLost),
        }
    }

    async fn release_lease(&self, lease: Lease) -> Result<(), StoreError> {
        let values: Values<'_> = &[&lease.to_string()];
        pool::rows(&self.leases, sql::RELEASE_LEASE, values).await.map(drop)
    }

    async fn lease_holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        let values: Values<'_> = &[&lease.to_string()];
        let row = self.answer(sql::LEASE_HOLDER, values).await?;
        let address: Option<String> = column(&row, "stayput_lease_address")?;
        Ok(address.map(|address| Holder { id: lease.holder, address }))
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &lease.to_string()];
        record(&self.call(sql::CLAIM, values).await?)
    }

    async fn release_claim(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        let values: Values<'_> = &[&id.as_uuid(), &lease.to_string()];
        self.rows(sql::RELEASE_CLAIM, values).await.map(drop)
    }
}
