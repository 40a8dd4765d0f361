//! SQLite store.

mod counter;
mod file;
mod statements;
mod worker;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::ErrorCode;
use stayput_core::{
    Agent, Connection, Event, EventLog, ExpectedRevision, ExpectedValue, Generation, HandleHash,
    Holder, Key, Lease, Outage, Owner, Record, Revision, SessionId, StateKey, StateValue,
    StateWrite, Store, StoreError, Timestamp, Topic,
};

pub use self::file::{DatabaseFile, lock_file};
use self::{
    counter::CounterFile,
    statements as sql,
    worker::{Mode, ReadConnections, Worker},
};
use crate::{
    StoreOpenError,
    error::{corrupt, unavailable},
    row::{millis, time},
};

const STORE: &str = "sqlite";

/// Schema that this program writes, in `user_version` of the file.
const SCHEMA: i64 = 4;

/// Oldest schema that can be migrated.
const OLDEST_SCHEMA: i64 = 3;

/// [`Store`] and [`EventLog`] in one SQLite file.
///
/// The file is private to its owner (mode 0600). It is in WAL mode and syncs before it answers:
/// acknowledged writes survive `kill -9` and a loss of power. One thread writes, and queued writes
/// share one sync. A single row is read on the caller's thread, a page of rows on a thread of its
/// own; neither waits for a writer. Other processes may open the same file; a writer waits up to
/// five seconds for another one.
///
/// Writes fail once the file was deleted or replaced, see [`DatabaseFile`]. If the file is an older
/// copy of the database when it is opened, such as a restored backup, all state of its sessions
/// counts as lost. The file `PATH-counter` beside it shows that.
#[derive(Debug)]
pub struct SqliteStore {
    direct: ReadConnections,
    reader: Worker,
    writer: Worker,
    file: Arc<DatabaseFile>,
    counter: CounterFile,
    warnings: Vec<String>,
}

/// Open connections, and facts about the file.
struct Connections {
    writer: rusqlite::Connection,
    reader: rusqlite::Connection,
    direct: ReadConnections,
    file: DatabaseFile,
    counter: CounterFile,
    schema: i64,
    warnings: Vec<String>,
}

impl SqliteStore {
    /// Opens the file, or creates it with its parent folders, and migrates its schema.
    ///
    /// # Errors
    /// [`StoreOpenError::File`] if the file cannot be created or is not a database,
    /// [`StoreOpenError::NewerSchema`] and [`StoreOpenError::OlderSchema`].
    pub async fn open(path: &Path) -> Result<Self, StoreOpenError> {
        let unusable = |problem: String| StoreOpenError::File { path: path.to_owned(), problem };
        let opened = path.to_owned();
        // Opening reads the disk and may wait for another process.
        let opened = tokio::task::spawn_blocking(move || connect(&opened)).await;
        let Connections { writer, reader, direct, file, counter, schema: found, warnings } =
            opened.map_err(|error| unusable(error.to_string()))?.map_err(unusable)?;
        if found > SCHEMA {
            return Err(StoreOpenError::NewerSchema { store: STORE, found, known: SCHEMA });
        }
        if found < OLDEST_SCHEMA {
            let oldest = OLDEST_SCHEMA;
            return Err(StoreOpenError::OlderSchema { store: STORE, found, oldest });
        }
        let file = Arc::new(file);
        let failed = |error: std::io::Error| unusable(error.to_string());
        Ok(Self {
            direct,
            reader: Worker::new(reader, Mode::Read).map_err(failed)?,
            writer: Worker::new(writer, Mode::Write(Some(file.clone()))).map_err(failed)?,
            file,
            counter,
            warnings,
        })
    }

    /// Returns the file of the store.
    pub(crate) fn file(&self) -> &Arc<DatabaseFile> {
        &self.file
    }

    /// Takes the facts that an operator should know.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Reads on this thread if that needs no wait, else on the reader's thread.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.direct.try_read(&read) {
            Some(result) => result,
            None => self.reader.run(move |db| read(db)).await,
        }
    }

    /// Writes, and adds one to the counter.
    async fn counting<T: Send + 'static>(
        &self,
        write: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let both = move |db: &rusqlite::Connection| Ok((write(db)?, sql::count_up(db)?));
        let (result, count) = self.writer.run(both).await?;
        self.counter.write(&count);
        Ok(result)
    }
}

/// Creates and migrates the file, and opens all connections to it. Returns the problem in words.
fn connect(path: &Path) -> Result<Connections, String> {
    let path = file::create(path).map_err(|error| error.to_string())?;
    let cause = |error: StoreError| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    let (writer, counter) = (worker::connect(&path).map_err(cause)?, CounterFile::beside(&path));
    let schema = sql::migrate(&writer).map_err(cause)?;
    let mut warnings = Vec::new();
    if schema == SCHEMA {
        worker::use_wal(&writer).map_err(cause)?;
        if let Some(seen) = counter.read()
            && let Some(lost) = sql::lose_state_if_behind(&writer, &seen).map_err(cause)?
        {
            warnings.push(format!(
                "{} is older than when it was last used, like a restored backup: {lost} sessions \
                 in it are reported as lost, and later ones are unknown",
                path.display()
            ));
        }
    }
    let reader = worker::connect(&path).map_err(cause)?;
    let direct = ReadConnections::open(&path).map_err(cause)?;
    let file = DatabaseFile::new(path).map_err(|error| error.to_string())?;
    Ok(Connections { writer, reader, direct, file, counter, schema, warnings })
}

/// Returns the reason why SQLite failed, if it is a known one.
fn outage(error: &rusqlite::Error) -> Option<Outage> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(Outage::DiskFull),
        ErrorCode::SystemIoFailure => Some(Outage::DiskFailed),
        _ => None,
    }
}

/// Converts an error of SQLite.
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
    match outage(&error) {
        Some(outage) => unavailable(STORE, outage),
        None if damaged => corrupt(STORE, "something", error),
        None => unavailable(STORE, error),
    }
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
        self.read(move |db| sql::load(db, id)).await
    }

    async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let name = [owner.as_str(), agent.as_str(), key.as_str()].map(str::to_owned);
        self.read(move |db| sql::find_by_key(db, &name)).await
    }

    async fn replace(
        &self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let record = record.clone();
        self.writer.run(move |db| sql::replace(db, record, expected, by)).await
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

    async fn list_due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.reader.run(move |db| sql::list_due(db, now, after, limit)).await
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

    async fn find_by_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        self.read(move |db| sql::find_by_handle(db, hash)).await
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let connection = connection.clone();
        self.writer.run(move |db| sql::put_connection(db, &connection, stale_before, by)).await
    }

    async fn load_connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        self.read(move |db| sql::load_connection(db, name)).await
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

    async fn load_state(&self, id: SessionId, key: &str) -> Result<Option<StateValue>, StoreError> {
        let key = key.to_owned();
        self.read(move |db| sql::load_state(db, id, &key)).await
    }

    async fn list_state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        self.reader.run(move |db| sql::list_state_keys(db, id)).await
    }

    async fn put_state(
        &self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let (key, bytes, expected, limits) =
            (write.key.to_owned(), write.bytes.to_owned(), write.expected, write.limits);
        let write = move |db: &_| {
            sql::put_state(db, id, StateWrite { key: &key, bytes: &bytes, expected, limits }, by)
        };
        self.writer.run(write).await
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expected: ExpectedValue,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.writer.run(move |db| sql::remove_state(db, id, &key, expected, by)).await
    }

    async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        let holder = holder.clone();
        self.counting(move |db| sql::acquire_lease(db, &holder, millis(ttl))).await
    }

    async fn renew_lease(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        self.counting(move |db| sql::renew_lease(db, lease, millis(ttl))).await
    }

    async fn release_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.counting(move |db| sql::release_lease(db, lease)).await
    }

    async fn lease_holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        self.read(move |db| sql::lease_holder(db, lease)).await
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        self.writer.run(move |db| sql::claim(db, id, lease)).await
    }

    async fn release_claim(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        self.writer.run(move |db| sql::release_claim(db, id, lease)).await
    }
}

#[async_trait]
impl EventLog for SqliteStore {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        let (topic, body) = (topic.clone(), body.to_owned());
        self.writer.run(move |db| sql::append(db, &topic, &body)).await
    }

    async fn read_after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let topic = topic.clone();
        self.reader.run(move |db| sql::read_after(db, &topic, after, limit)).await
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        let topic = topic.clone();
        self.writer.run(move |db| sql::trim(db, &topic, through)).await
    }

    async fn remove_session(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        let owner = owner.clone();
        self.writer.run(move |db| sql::remove_session(db, &owner, session)).await
    }
}
