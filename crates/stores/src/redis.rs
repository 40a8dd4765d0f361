//! Redis and Valkey store.

mod connect;
mod connection;
mod events;
mod handles;
mod index;
mod keys;
mod leases;
mod lists;
mod records;
mod row;
mod scripts;
mod state;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use stayput_core::{
    Agent, Connection, ExpectedRevision, ExpectedValue, Generation, HandleHash, Holder, Key, Lease,
    Owner, Record, Revision, SessionId, StateKey, StateValue, StateWrite, Store, StoreError,
    Timestamp,
};

use self::{connection::SharedConnection, keys::Keys};
use crate::{RedisAddress, StoreOpenError};

const REDIS: &str = "redis";

/// Layout of keys that this program writes.
const SCHEMA: i64 = 3;

/// Oldest layout that can be used.
const OLDEST_SCHEMA: i64 = 3;

/// Maximum rows in one request: enough to hide the round trip, and not so many that the server
/// blocks other clients.
const BATCH_SIZE: usize = 256;

/// Maximum attempts of a step that lost a race. In each attempt another caller made progress.
const MAX_ATTEMPTS: usize = 256;

/// Refusals of the scripts, as in `fence.lua`.
const MISSING: i64 = -1;
const NOT_HOLDER: i64 = -2;
const STALE: i64 = -3;
const TOO_LARGE: i64 = -4;
const SEALED: i64 = -5;

/// [`Store`] and [`EventLog`](stayput_core::EventLog) on a Redis or Valkey server; tested with
/// Redis 7.0.
///
/// # URL
///
/// `redis://USER:PASSWORD@HOST:PORT/NUMBER`, where all but the host is optional. With
/// `?prefix=WORD` all keys begin with that word instead of `stayput`, so that several programs can
/// share a server.
///
/// With `rediss://…` the connection is encrypted, and the server's certificate for the host's name
/// must be signed by a public authority. With `?sslrootcert=FILE` it must be signed by an authority
/// in that PEM file. There is no encryption without verification. The cryptography is the provider
/// that the program has installed for rustls, or ring if it has none.
///
/// # Durability
///
/// This store is as durable as the server's own persistence. Acknowledged writes are lost
///
/// | persistence of the server | when it ends or crashes |
/// |---|---|
/// | none (`save ""`, `appendonly no`) | entirely |
/// | RDB snapshots (the default of Redis) | since the last snapshot: minutes |
/// | `appendonly yes`, `appendfsync everysec` | of the last second or two |
/// | `appendonly yes`, `appendfsync always` | not at all |
///
/// - **Replication** is asynchronous: when a replica takes over, writes that had not reached it are
///   lost, with any persistence.
/// - **`maxmemory-policy` must be `noeviction`.** Under any other policy a full server evicts parts
///   of sessions. No key of this store expires by itself; [`Store::purge`] and [`Store::remove`]
///   delete ended sessions.
/// - A lease that the server lost has expired: other processes can claim its sessions, and its
///   holder gets an error at its next renewal.
///
/// # Clusters
///
/// All keys of one session are in one slot of a cluster, and no script or command touches two
/// slots, so the layout fits a cluster. The client uses the one address it is given: a single
/// server or a cluster of one node. A cluster of several nodes is refused, because this client does
/// not follow redirections.
///
/// # Consistency without transactions over slots
///
/// The indexes (keys, handles, lists, deadlines) are in other slots than the sessions, and no step
/// changes both. So no index is trusted: the row of a session decides whether it is live and which
/// key it has. Rows are changed by scripts of one step each, and a process that dies between two
/// steps leaves only entries that the next call finds and repairs. Two leftovers are not repaired
/// and harmless: a process that dies while it creates a session, before the key leads to it, leaves
/// a session without a key, which ends at its deadline, or is listed until it is removed if it has
/// none; a process that dies while it removes a name may leave an index entry that leads nowhere.
///
/// # Failures
///
/// A request without an answer fails within about five seconds with [`StoreError::Unavailable`]. No
/// write is ever repeated. When the server is back, the next call works.
pub struct RedisStore {
    connection: SharedConnection,
    keys: Keys,
}

impl RedisStore {
    /// Connects to a server and checks its schema.
    ///
    /// # Errors
    /// [`StoreOpenError`] if the server cannot be reached or refuses the credentials, if it is a
    /// cluster of several nodes, if a certificate cannot be used, or if a newer or too old version
    /// wrote the store.
    pub async fn open(address: &RedisAddress) -> Result<Self, StoreOpenError> {
        let keys = Keys::new(&address.prefix);
        let connection = SharedConnection::new(connect::client(address)?);
        connect::check_single_node(&connection).await?;
        connect::check_schema(&connection, &keys).await?;
        Ok(Self { connection, keys })
    }
}

impl RedisStore {
    /// Returns a warning if the server loses all sessions when it ends. Without the right to read
    /// the server's settings there is no warning.
    pub(crate) async fn persistence_warning(&self) -> Option<String> {
        connect::persists(&self.connection).await.filter(|persists| !persists).map(|_| {
            "the Redis server does not persist (`save` is empty, `appendonly` is no): when it ends, \
             all sessions are lost"
                .to_owned()
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Converts the refusal of a script to an error.
fn check_code(code: i64) -> Result<i64, StoreError> {
    match code {
        MISSING => Err(StoreError::Missing),
        NOT_HOLDER => Err(StoreError::NotHolder),
        STALE => Err(StoreError::Stale),
        code => Ok(code),
    }
}

/// Formats a lease for a row; no lease is empty.
fn lease_text(lease: Option<Lease>) -> String {
    lease.map(|lease| lease.to_string()).unwrap_or_default()
}

/// Converts a limit for the server.
fn redis_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Store for RedisStore {
    async fn insert(
        &self,
        record: &Record,
        connection: Option<&Connection>,
    ) -> Result<Generation, StoreError> {
        records::insert(self, record, connection).await
    }

    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError> {
        Ok(self.row(id).await?.map(|row| row.record))
    }

    async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let Some(place) = self.load_key_entry(&self.keys.key(key.digest(owner, agent))).await?
        else {
            return Ok(None);
        };
        let named = |record: &Record| {
            record.is_live()
                && record.key.as_ref() == Some(key)
                && (&record.owner, &record.agent) == (owner, agent)
        };
        Ok(self.load(place.id).await?.filter(named))
    }

    async fn replace(
        &self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        records::replace(self, record, expected, by).await
    }

    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        records::touch(self, used, by).await
    }

    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError> {
        records::remove(self, id, by).await
    }

    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        lists::list(self, owner, after, limit).await
    }

    async fn list_due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        lists::list_due(self, now, after, limit).await
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        lists::purge(self, ended_before, limit).await
    }

    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        handles::add_handle(self, id, hash, by).await
    }

    async fn find_by_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        handles::find_by_handle(self, hash).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        handles::put_connection(self, connection, stale_before, by).await
    }

    async fn load_connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        handles::load_connection(self, name).await
    }

    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        handles::touch_connections(self, used, by).await
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        handles::remove_connection(self, name, by).await
    }

    async fn load_state(&self, id: SessionId, key: &str) -> Result<Option<StateValue>, StoreError> {
        state::load_state(self, id, key).await
    }

    async fn list_state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        state::list_state_keys(self, id).await
    }

    async fn put_state(
        &self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        state::put_state(self, id, write, by).await
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expected: ExpectedValue,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        state::remove_state(self, id, key, expected, by).await
    }

    async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        leases::acquire_lease(self, holder, ttl).await
    }

    async fn renew_lease(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        leases::renew_lease(self, lease, ttl).await
    }

    async fn release_lease(&self, lease: Lease) -> Result<(), StoreError> {
        leases::release_lease(self, lease).await
    }

    async fn lease_holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        leases::lease_holder(self, lease).await
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        leases::claim(self, id, lease).await
    }

    async fn release_claim(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        leases::release_claim(self, id, lease).await
    }
}
