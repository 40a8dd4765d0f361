//! Indexes of sessions, which are in other slots than the sessions.
//!
//! No index is trusted: the row of the session decides. So an index may have a wrong entry, but a
//! session must never be missing in it. A change of a row therefore adds entries *before*, removes
//! others *after*, and then checks once more whether the row is unchanged: nothing is atomic across
//! two slots.

use ::redis::{Cmd, Pipeline, Value, cmd};
use stayput_core::{Generation, HandleHash, Owner, Record, SessionId, StoreError};

use super::{
    MAX_ATTEMPTS, REDIS, RedisStore,
    connection::decode,
    row::{Fields, Row},
    scripts::{DELETE_INDEX, DELETE_REMOVED_ROW, MOVE_KEY, SEAL},
};
use crate::error::{corrupt, unavailable};

/// Index entry of a key.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) id: SessionId,
    /// Highest generation of the sessions that lost the key to a revival. It stays even if the
    /// revival fails: the next session with the key must be above it.
    pub(super) floor: Generation,
    /// Text of the entry. It differs after every move, so that a mover detects a concurrent one.
    text: String,
}

impl KeyEntry {
    fn read(text: String) -> Option<Self> {
        let mut parts = text.split(':');
        let (id, floor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { id, floor: Generation(floor), text })
    }
}

/// State of the session behind a key.
pub(super) enum SessionState {
    Missing,
    Live,
    Ended(Generation),
}

impl RedisStore {
    /// Reads the index entry of a key.
    pub(super) async fn load_key_entry(&self, key: &str) -> Result<Option<KeyEntry>, StoreError> {
        let text: Option<String> = self.connection.query(cmd("GET").arg(key)).await?;
        let Some(text) = text else { return Ok(None) };
        let unreadable = || corrupt(REDIS, "the index of a key", "it leads to no session");
        KeyEntry::read(text).map(Some).ok_or_else(unreadable)
    }

    /// Points a key to another session, or confirms the current one. Returns false if the entry
    /// changed since it was read.
    pub(super) async fn move_key(
        &self,
        key: &str,
        seen: Option<&KeyEntry>,
        (id, floor): (SessionId, Generation),
    ) -> Result<bool, StoreError> {
        let mut call = MOVE_KEY.call(&[key]);
        let seen = seen.map_or("", |seen| &seen.text);
        call.arg((seen, id.to_string(), floor.0));
        self.connection.query(&call).await
    }

    /// Seals an ended session: a revival that is in progress fails and starts again.
    pub(super) async fn seal(&self, id: SessionId) -> Result<SessionState, StoreError> {
        let call = SEAL.call(&[&self.keys.row(id)]);
        let (state, generation): (u8, String) = self.connection.query(&call).await?;
        match state {
            0 => Ok(SessionState::Missing),
            1 => Ok(SessionState::Live),
            _ => {
                let unreadable = |error| corrupt(REDIS, "a record", error);
                generation.parse().map(|n| SessionState::Ended(Generation(n))).map_err(unreadable)
            }
        }
    }

    /// Takes the key of a session back before it is revived.
    ///
    /// This alone does not exclude others: they seal the session before they take its key, and the
    /// script that revives a session fails if it was sealed since.
    pub(super) async fn take_key_back(&self, record: &Record) -> Result<(), StoreError> {
        let Some(key) = self.keys.key_of(record) else {
            return Ok(());
        };
        for _ in 0..MAX_ATTEMPTS {
            let seen = self.load_key_entry(&key).await?;
            let mut floor = seen.as_ref().map_or(Generation(0), |seen| seen.floor);
            if let Some(seen) = seen.as_ref().filter(|seen| seen.id != record.id) {
                match self.seal(seen.id).await? {
                    SessionState::Missing => {}
                    SessionState::Live => return Err(StoreError::Taken { by: seen.id }),
                    SessionState::Ended(generation) => floor = floor.max(generation),
                }
            }
            if self.move_key(&key, seen.as_ref(), (record.id, floor)).await? {
                return Ok(());
            }
        }
        Err(unavailable(REDIS, "too many concurrent calls with the same key"))
    }

    /// Adds a live session to the indexes of live ones. Its deadline there may be too early, and is
    /// then corrected when it is read; it is never too late.
    pub(super) fn add_to_indexes(&self, pipe: &mut Pipeline, record: &Record) {
        let id = record.id.to_string();
        for index in [self.keys.all(), self.keys.owner(&record.owner)] {
            pipe.cmd("ZADD").arg((index, 0, &id)).ignore();
        }
        self.add_deadline(pipe, record);
    }

    /// Adds a live session to the index of deadlines.
    pub(super) fn add_deadline(&self, pipe: &mut Pipeline, record: &Record) {
        if let Some(deadline) = record.deadline() {
            let (at, id) = (deadline.as_millis(), record.id.to_string());
            pipe.cmd("ZADD").arg((self.keys.due(), "LT", at, id)).ignore();
        }
    }

    fn remove_from_indexes(&self, pipe: &mut Pipeline, id: SessionId, owner: Option<&Owner>) {
        let owner = owner.map(|owner| self.keys.owner(owner));
        for index in [self.keys.all(), self.keys.due()].into_iter().chain(owner) {
            pipe.cmd("ZREM").arg((index, id.to_string())).ignore();
        }
    }

    /// Updates the indexes after a session was created, ended, revived or removed. Repeats until
    /// the row stays unchanged, because of concurrent callers.
    pub(super) async fn repair_indexes(&self, id: SessionId) -> Result<(), StoreError> {
        let mut settled = None;
        for _ in 0..MAX_ATTEMPTS {
            let row = self.row(id).await?;
            let now = row.as_ref().map(|row| row.record.ended);
            if settled == Some(now) {
                return Ok(());
            }
            match row.map(|row| row.record) {
                None => self.clean_up_removed(&[id]).await?,
                Some(record) => {
                    let (mut pipe, id) = (Pipeline::new(), record.id.to_string());
                    if let Some(ended) = record.ended {
                        let at = ended.at.as_millis();
                        pipe.cmd("ZADD").arg((self.keys.ended(), at, id)).ignore();
                        self.remove_from_indexes(&mut pipe, record.id, Some(&record.owner));
                    } else {
                        self.add_to_indexes(&mut pipe, &record);
                        pipe.cmd("ZREM").arg((self.keys.ended(), id)).ignore();
                    }
                    self.connection.query_pipeline::<()>(&pipe).await?;
                }
            }
            settled = Some(now);
        }
        Ok(())
    }

    /// Undoes the index entries of a revival that failed.
    pub(super) async fn undo_revival(&self, record: &Record) -> Result<(), StoreError> {
        if self.row(record.id).await?.is_none() {
            let mut pipe = Pipeline::new();
            if let Some(key) = self.keys.key_of(record) {
                pipe.add_command(delete_index(&key, record.id)).ignore();
            }
            self.remove_from_indexes(&mut pipe, record.id, Some(&record.owner));
            self.connection.query_pipeline::<()>(&pipe).await?;
        }
        self.repair_indexes(record.id).await
    }

    /// Deletes the names and keys of removed sessions, then the removed rows, and the entries in
    /// the lists last: by these a later call finds what an interrupted one left.
    pub(super) async fn clean_up_removed(&self, ids: &[SessionId]) -> Result<(), StoreError> {
        let mut pipe = Pipeline::new();
        for id in ids {
            pipe.cmd("HGETALL").arg(self.keys.removed_row(*id));
            pipe.cmd("LRANGE").arg((self.keys.handles(*id), 0, -1));
            pipe.cmd("HKEYS").arg(self.keys.connections(*id));
        }
        let mut left = self.connection.query_pipeline::<Vec<Value>>(&pipe).await?.into_iter();
        let (mut names, mut rest) = (Pipeline::new(), Pipeline::new());
        for id in ids {
            let mut next = || left.next().unwrap_or(Value::Nil);
            let removed: Fields = decode(next())?;
            for some in [next(), next()] {
                for name in decode::<Vec<Vec<u8>>>(some)? {
                    let name = read_name(&name)?;
                    names.add_command(self.delete_name(name, *id)).ignore();
                }
            }
            // A row that cannot be decoded can still be removed.
            let record = Row::read(*id, removed).ok().flatten().map(|row| row.record);
            if let Some(key) = record.as_ref().and_then(|record| self.keys.key_of(record)) {
                names.add_command(delete_index(&key, *id)).ignore();
            }
            rest.add_command(self.delete_removed_row(*id)).ignore();
            self.remove_from_indexes(&mut rest, *id, record.as_ref().map(|record| &record.owner));
            rest.cmd("ZREM").arg((self.keys.ended(), id.to_string())).ignore();
        }
        self.connection.query_pipeline::<()>(&names).await?;
        self.connection.query_pipeline(&rest).await
    }

    fn delete_removed_row(&self, id: SessionId) -> Cmd {
        let (row, removed) = (self.keys.row(id), self.keys.removed_row(id));
        let (handles, connections) = (self.keys.handles(id), self.keys.connections(id));
        DELETE_REMOVED_ROW.call(&[&row, &removed, &handles, &connections, &self.keys.uses(id)])
    }

    /// Builds the command that deletes the index entry of a name.
    pub(super) fn delete_name(&self, name: HandleHash, id: SessionId) -> Cmd {
        delete_index(&self.keys.name(name), id)
    }
}

fn delete_index(index: &str, id: SessionId) -> Cmd {
    let mut call = DELETE_INDEX.call(&[index]);
    call.arg(id.to_string());
    call
}

/// Decodes the hash of a handle or of a connection's name.
pub(super) fn read_name(bytes: &[u8]) -> Result<HandleHash, StoreError> {
    let unreadable = |error| corrupt(REDIS, "a name", error);
    bytes.try_into().map(HandleHash::from_bytes).map_err(unreadable)
}
