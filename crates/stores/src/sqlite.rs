//! Sessions in one file.

mod lane;
mod statements;

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use rusqlite::ErrorCode;
use stayput_core::{
    Agent, Connection, Digest, Event, Events, Expect, Generation, HandleHash, Holder, Key, Lease,
    Owner, Put, Record, Revision, Seen, SessionId, StateKey, Store, StoreError, Timestamp, Topic,
    Value, content_digest,
};

use self::{
    lane::{Kind, Lane, Near},
    statements as sql,
};
use crate::{
    OpenError,
    failure::{corrupt, unavailable},
    row::{span, time},
};

const STORE: &str = "sqlite";

/// The schema this program makes and knows, in `user_version` of the file.
const SCHEMA: i64 = 2;

/// A store in one SQLite file.
///
/// The file is made for its owner alone (mode 0600). It is in WAL mode and syncs before it answers:
/// what was acknowledged survives `kill -9` and a loss of power. One thread writes, and writes that
/// wait together share one sync. A single row is read where it is asked for; a page of rows is read
/// on a thread of its own, and neither waits for a writer. Other processes may open the same file; a
/// writer waits up to five seconds for another one.
#[derive(Debug)]
pub struct SqliteStore {
    near: Near,
    reader: Lane,
    writer: Lane,
}

impl SqliteStore {
    /// Opens the file, or makes it with the folders above it, and moves its schema forward.
    ///
    /// # Errors
    /// [`OpenError::File`] if the file cannot be made or is not a database, and
    /// [`OpenError::NewerSchema`].
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let unusable = |problem: String| OpenError::File { path: path.to_owned(), problem };
        let opened = path.to_owned();
        let open = move || {
            let path = lane::create(&opened).map_err(|error| error.to_string())?;
            let said = |error: StoreError| match std::error::Error::source(&error) {
                Some(source) => source.to_string(),
                None => error.to_string(),
            };
            let writer = lane::connect(&path).map_err(said)?;
            let found = sql::migrate(&writer).map_err(said)?;
            if found <= SCHEMA {
                lane::use_wal(&writer).map_err(said)?;
            }
            let reader = lane::connect(&path).map_err(said)?;
            Ok((writer, reader, Near::open(&path).map_err(said)?, found))
        };
        // Opening touches the disk and may wait for another process.
        let opened = tokio::task::spawn_blocking(open).await;
        let (writer, reader, near, found) =
            opened.map_err(|error| unusable(error.to_string()))?.map_err(unusable)?;
        if found > SCHEMA {
            return Err(OpenError::NewerSchema { store: STORE, found, known: SCHEMA });
        }
        let lane = |connection, kind| {
            Lane::new(connection, kind).map_err(|error| unusable(error.to_string()))
        };
        Ok(Self { near, reader: lane(reader, Kind::Read)?, writer: lane(writer, Kind::Write)? })
    }

    /// Reads one thing: here if it can be had at once, else on the lane that may wait for it.
    async fn look<T: Send + 'static>(
        &self,
        look: impl Fn(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.near.look(&look) {
            Some(seen) => seen,
            None => self.reader.run(move |db| look(db)).await,
        }
    }
}

/// What SQLite says, in the words of the contract.
fn fault(error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as E;
    let damaged = match &error {
        E::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        E::FromSqlConversionFailure(..)
        | E::InvalidColumnType(..)
        | E::IntegralValueOutOfRange(..) => true,
        _ => false,
    };
    if damaged { corrupt(STORE, "something", error) } else { unavailable(STORE, error) }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(
        &self,
        record: &Record,
        connection: Option<&Connection>,
    ) -> Result<Generation, StoreError> {
        let (record, connection) = (record.clone(), connection.cloned());
        self.writer.run(move |db| sql::insert(db, record, connection.as_ref())).await
    }

    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError> {
        self.look(move |db| sql::load(db, id)).await
    }

    async fn find(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let name = [owner.as_str(), agent.as_str(), key.as_str()].map(str::to_owned);
        self.look(move |db| sql::find(db, &name)).await
    }

    async fn replace(
        &self,
        record: &Record,
        seen: Seen,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let record = record.clone();
        self.writer.run(move |db| sql::replace(db, record, seen, by)).await
    }

    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        let used = used.to_owned();
        self.writer.run(move |db| sql::touch(db, &used, by)).await
    }

    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::remove(db, id, by)).await
    }

    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let owner = owner.cloned();
        self.reader.run(move |db| sql::list(db, owner.as_ref(), after, limit)).await
    }

    async fn due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.reader.run(move |db| sql::due(db, now, after, limit)).await
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.writer.run(move |db| sql::purge(db, time(ended_before), limit)).await
    }

    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::add_handle(db, id, hash, by)).await
    }

    async fn find_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        self.look(move |db| sql::find_handle(db, hash)).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        unused: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let connection = connection.clone();
        self.writer.run(move |db| sql::put_connection(db, &connection, unused, by)).await
    }

    async fn connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        self.look(move |db| sql::connection(db, name)).await
    }

    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        let used = used.to_vec();
        self.writer.run(move |db| sql::touch_connections(db, &used, by)).await
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::remove_connection(db, name, by)).await
    }

    async fn state(&self, id: SessionId, key: &str) -> Result<Option<Value>, StoreError> {
        let key = key.to_owned();
        self.look(move |db| sql::state(db, id, &key)).await
    }

    async fn state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        self.reader.run(move |db| sql::state_keys(db, id)).await
    }

    async fn put_state(
        &self,
        id: SessionId,
        put: Put<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let (key, bytes, expect, limits) =
            (put.key.to_owned(), put.bytes.to_owned(), put.expect, put.limits);
        let put = move |db: &_| {
            sql::put_state(db, id, Put { key: &key, bytes: &bytes, expect, limits }, by)
        };
        self.writer.run(put).await
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expect: Expect,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.writer.run(move |db| sql::remove_state(db, id, &key, expect, by)).await
    }

    async fn put_content(&self, content: &[u8]) -> Result<Digest, StoreError> {
        let (digest, content) = (content_digest(content), content.to_owned());
        self.writer.run(move |db| sql::put_content(db, digest, &content)).await
    }

    async fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.reader.run(move |db| sql::content(db, digest)).await
    }

    async fn hold(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        let holder = holder.clone();
        self.writer.run(move |db| sql::hold(db, &holder, span(ttl))).await
    }

    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::renew(db, lease, span(ttl))).await
    }

    async fn leave(&self, lease: Lease) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::leave(db, lease)).await
    }

    async fn holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        self.look(move |db| sql::holder(db, lease)).await
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        self.writer.run(move |db| sql::claim(db, id, lease)).await
    }

    async fn release(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::release(db, id, lease)).await
    }
}

#[async_trait]
impl Events for SqliteStore {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        let (topic, body) = (topic.clone(), body.to_owned());
        self.writer.run(move |db| sql::append(db, &topic, &body)).await
    }

    async fn after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let topic = topic.clone();
        self.reader.run(move |db| sql::after(db, &topic, after, limit)).await
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        let topic = topic.clone();
        self.writer.run(move |db| sql::trim(db, &topic, through)).await
    }

    async fn forget(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        let owner = owner.clone();
        self.writer.run(move |db| sql::forget(db, &owner, session)).await
    }
}
