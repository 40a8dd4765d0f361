//! Sessions on a Redis or Valkey server.

mod events;
mod index;
mod keys;
mod leases;
mod link;
mod lists;
mod names;
mod open;
mod records;
mod row;
mod scripts;
mod state;

use std::{fmt, time::Duration};

use ::redis::cmd;
use async_trait::async_trait;
use stayput_core::{
    Agent, Connection, Digest, Expect, Generation, HandleHash, Holder, Key, Lease, Owner, Put,
    Record, Revision, Seen, SessionId, StateKey, Store, StoreError, Timestamp, Value,
    content_digest,
};

use self::{keys::Keys, link::Link};
use crate::{OpenError, RedisAddress};

const REDIS: &str = "redis";

/// The layout of keys this program knows.
const SCHEMA: i64 = 2;

/// How many rows are asked for at once: enough to hide the round trip, and not so many that the
/// server has no time for others.
const BATCH: usize = 256;

/// How often a step is tried that others got in the way of. Each time one of them went on.
const TURNS: usize = 256;

/// What the scripts say no with, as in `guard.lua`.
const MISSING: i64 = -1;
const HELD: i64 = -2;
const STALE: i64 = -3;
const LARGE: i64 = -4;
const SEALED: i64 = -5;

/// A [`Store`] and [`Events`](stayput_core::Events) on a Redis server or Valkey; tested with Redis 7.0.
///
/// # URL
///
/// `redis://USER:PASSWORD@HOST:PORT/NUMBER`, where all but the host can be left out. With
/// `?prefix=WORD` all keys begin with that word instead of `stayput`, so several programs can share a
/// server.
///
/// With `rediss://…` the connection is encrypted, and the server must show a certificate for the host's
/// name that a public authority signed; with `?sslrootcert=FILE`, one that an authority in that PEM file
/// signed, and no other. There is no encryption without verification. The cryptography is the default
/// provider that the program has installed for rustls, and ring if it has none.
///
/// # What survives
///
/// This store is as durable as the server's own persistence. What was acknowledged is lost
///
/// | persistence of the server | when it ends or crashes |
/// |---|---|
/// | none (`save ""`, `appendonly no`) | entirely |
/// | RDB snapshots (the default of Redis) | since the last snapshot: minutes |
/// | `appendonly yes`, `appendfsync everysec` | of the last second or two |
/// | `appendonly yes`, `appendfsync always` | not at all |
///
/// - **Replication** is asynchronous: when a replica takes over, writes that had not reached it yet
///   are lost, whatever is persisted.
/// - **`maxmemory-policy` must be `noeviction`.** Under any other policy a full server throws parts of
///   sessions away. No key of this store expires by itself; [`Store::purge`] and [`Store::remove`]
///   delete what is over.
/// - A lease that the server lost is dead: others can claim what it held, and its holder is told when
///   it renews.
///
/// # One server or a cluster
///
/// All keys of one session are in one slot of a cluster, and no script or command touches two slots,
/// so the layout fits a cluster. The client speaks to the one address it is given: that can be a single
/// server or a cluster of one node. A cluster of several nodes is refused when it is opened, because
/// this client does not follow its redirections.
///
/// # Without a transaction over several slots
///
/// What leads to sessions (keys, handles, lists, deadlines) is in other slots than the sessions, and
/// no step changes both. So no index is trusted: the row of a session decides whether it lives and
/// what its name is, rows are changed by scripts of one step each, and a process that dies between
/// two steps leaves only what the next one finds and repairs. Two things are not repaired, and in
/// nobody's way: if it dies while it makes a session with a key, before the key leads to it, a session
/// without a name is left, which ends at its deadline, or is listed until somebody removes it if it has
/// none; if it dies while it forgets a name, one that leads nowhere.
///
/// # When the server is away
///
/// A question that gets no answer fails within about five seconds, with [`StoreError::Unavailable`],
/// and no write is ever repeated here. When the server is back the next call finds it.
pub struct RedisStore {
    link: Link,
    keys: Keys,
}

impl RedisStore {
    /// Connects to a server and makes sure that its schema is known.
    ///
    /// # Errors
    /// [`OpenError`] if the server cannot be reached or does not let us in, if it is a cluster of
    /// several nodes, if a certificate cannot be used, or if a newer version has been there.
    pub async fn open(address: &RedisAddress) -> Result<Self, OpenError> {
        let keys = Keys::new(&address.prefix);
        let link = Link::new(open::client(address)?);
        open::one_node(&link).await?;
        open::known_schema(&link, &keys).await?;
        Ok(Self { link, keys })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Turns the no of a script into an error.
fn allowed(code: i64) -> Result<i64, StoreError> {
    match code {
        MISSING => Err(StoreError::Missing),
        HELD => Err(StoreError::NotHolder),
        STALE => Err(StoreError::Stale),
        code => Ok(code),
    }
}

/// How a lease is written in a row; nobody's is empty.
fn lease_text(lease: Option<Lease>) -> String {
    lease.map(|lease| lease.to_string()).unwrap_or_default()
}

/// A limit as the server takes it.
fn count(limit: usize) -> i64 {
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

    async fn find(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let Some(place) = self.place(&self.keys.key(key.digest(owner, agent))).await? else {
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
        seen: Seen,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        records::replace(self, record, seen, by).await
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

    async fn due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        lists::due(self, now, after, limit).await
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
        names::add_handle(self, id, hash, by).await
    }

    async fn find_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        names::find_handle(self, hash).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        unused: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        names::put_connection(self, connection, unused, by).await
    }

    async fn connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        names::connection(self, name).await
    }

    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        names::touch_connections(self, used, by).await
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        names::remove_connection(self, name, by).await
    }

    async fn state(&self, id: SessionId, key: &str) -> Result<Option<Value>, StoreError> {
        state::state(self, id, key).await
    }

    async fn state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        state::state_keys(self, id).await
    }

    async fn put_state(
        &self,
        id: SessionId,
        put: Put<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        state::put_state(self, id, put, by).await
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expect: Expect,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        state::remove_state(self, id, key, expect, by).await
    }

    async fn put_content(&self, content: &[u8]) -> Result<Digest, StoreError> {
        let digest = content_digest(content);
        let mut set = cmd("SET");
        set.arg(self.keys.content(digest)).arg(content).arg("NX");
        self.link.one::<()>(&set).await?;
        Ok(digest)
    }

    async fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.link.one(cmd("GET").arg(self.keys.content(digest))).await
    }

    async fn hold(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        leases::hold(self, holder, ttl).await
    }

    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        leases::renew(self, lease, ttl).await
    }

    async fn leave(&self, lease: Lease) -> Result<(), StoreError> {
        leases::leave(self, lease).await
    }

    async fn holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        leases::holder(self, lease).await
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        leases::claim(self, id, lease).await
    }

    async fn release(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        leases::release(self, id, lease).await
    }
}
