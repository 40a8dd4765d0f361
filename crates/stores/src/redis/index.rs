//! The indexes: what leads to sessions and is in other slots than they are.
//!
//! No index is trusted: the row of the session decides. So an index may lead to a session that is not
//! what it says, but a session must never be in none. Whoever changes a row therefore enters it into
//! the indexes *before*, takes it out of others *after*, and then looks once more whether the row is
//! still as it was: between two slots nothing is atomic.

use ::redis::{Cmd, Pipeline, Value, cmd};
use stayput_core::{Generation, HandleHash, Owner, Record, SessionId, StoreError};

use super::{
    REDIS, RedisStore, TURNS,
    link::answer,
    row::{Fields, Row},
    scripts::{BURY, DROP, MOVE, SEAL},
};
use crate::failure::{corrupt, unavailable};

/// Which session a key leads to.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: SessionId,
    /// The highest generation of sessions that lost the key to a revival. It stays even if the revival
    /// comes to nothing: whoever inherits the key must be above it.
    pub(super) floor: Generation,
    /// All that the index says. It is another text after every move, so whoever moves a key knows
    /// that nobody else did.
    text: String,
}

impl Place {
    fn read(text: String) -> Option<Self> {
        let mut parts = text.split(':');
        let (id, floor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { id, floor: Generation(floor), text })
    }
}

/// What became of the session that a key leads to.
pub(super) enum Last {
    Gone,
    Live,
    Over(Generation),
}

impl RedisStore {
    /// Reads the index of a key.
    pub(super) async fn place(&self, key: &str) -> Result<Option<Place>, StoreError> {
        let text: Option<String> = self.link.one(cmd("GET").arg(key)).await?;
        let Some(text) = text else { return Ok(None) };
        let unreadable = || corrupt(REDIS, "the index of a key", "it leads to no session");
        Place::read(text).map(Some).ok_or_else(unreadable)
    }

    /// Points a key to another session, or confirms the one it leads to; false if somebody else did
    /// since it was read.
    pub(super) async fn move_place(
        &self,
        key: &str,
        seen: Option<&Place>,
        (id, floor): (SessionId, Generation),
    ) -> Result<bool, StoreError> {
        let mut call = MOVE.call(&[key]);
        let seen = seen.map_or("", |seen| &seen.text);
        call.arg((seen, id.to_string(), floor.0));
        self.link.one(&call).await
    }

    /// Makes sure that a session which is over stays so, until its revival begins anew.
    pub(super) async fn seal(&self, id: SessionId) -> Result<Last, StoreError> {
        let call = SEAL.call(&[&self.keys.row(id)]);
        let (state, generation): (u8, String) = self.link.one(&call).await?;
        match state {
            0 => Ok(Last::Gone),
            1 => Ok(Last::Live),
            _ => {
                let unreadable = |error| corrupt(REDIS, "a record", error);
                generation.parse().map(|n| Last::Over(Generation(n))).map_err(unreadable)
            }
        }
    }

    /// Takes the key of a session back before it is revived.
    ///
    /// That alone does not keep others from it: they seal the session before they take its key, and
    /// the script that revives a session fails if it was sealed since.
    pub(super) async fn take_place(&self, record: &Record) -> Result<(), StoreError> {
        let Some(key) = self.keys.key_of(record) else {
            return Ok(());
        };
        for _ in 0..TURNS {
            let seen = self.place(&key).await?;
            let mut floor = seen.as_ref().map_or(Generation(0), |seen| seen.floor);
            if let Some(seen) = seen.as_ref().filter(|seen| seen.id != record.id) {
                match self.seal(seen.id).await? {
                    Last::Gone => {}
                    Last::Live => return Err(StoreError::Taken { by: seen.id }),
                    Last::Over(generation) => floor = floor.max(generation),
                }
            }
            if self.move_place(&key, seen.as_ref(), (record.id, floor)).await? {
                return Ok(());
            }
        }
        Err(unavailable(REDIS, "too many want the same key at once"))
    }

    /// Enters a live session into the indexes of live ones. Its deadline there may be too early: then
    /// it is looked at and put off; but never too late.
    pub(super) fn enter(&self, pipe: &mut Pipeline, record: &Record) {
        let id = record.id.to_string();
        for index in [self.keys.all(), self.keys.owner(&record.owner)] {
            pipe.cmd("ZADD").arg((index, 0, &id)).ignore();
        }
        self.enter_due(pipe, record);
    }

    /// Enters a live session into the index of deadlines alone.
    pub(super) fn enter_due(&self, pipe: &mut Pipeline, record: &Record) {
        if let Some(deadline) = record.deadline() {
            let (at, id) = (deadline.as_millis(), record.id.to_string());
            pipe.cmd("ZADD").arg((self.keys.due(), "LT", at, id)).ignore();
        }
    }

    fn leave(&self, pipe: &mut Pipeline, id: SessionId, owner: Option<&Owner>) {
        let owner = owner.map(|owner| self.keys.owner(owner));
        for index in [self.keys.all(), self.keys.due()].into_iter().chain(owner) {
            pipe.cmd("ZREM").arg((index, id.to_string())).ignore();
        }
    }

    /// Brings the indexes in line with a session that began, ended, was revived or forgotten, however
    /// many others are at it.
    pub(super) async fn settle(&self, id: SessionId) -> Result<(), StoreError> {
        let mut settled = None;
        for _ in 0..TURNS {
            let row = self.row(id).await?;
            let now = row.as_ref().map(|row| row.record.ended);
            if settled == Some(now) {
                return Ok(());
            }
            match row.map(|row| row.record) {
                None => self.clean(&[id]).await?,
                Some(record) => {
                    let (mut pipe, id) = (Pipeline::new(), record.id.to_string());
                    if let Some(ended) = record.ended {
                        let at = ended.at.as_millis();
                        pipe.cmd("ZADD").arg((self.keys.ended(), at, id)).ignore();
                        self.leave(&mut pipe, record.id, Some(&record.owner));
                    } else {
                        self.enter(&mut pipe, &record);
                        pipe.cmd("ZREM").arg((self.keys.ended(), id)).ignore();
                    }
                    self.link.many::<()>(&pipe).await?;
                }
            }
            settled = Some(now);
        }
        Ok(())
    }

    /// Takes back what was entered for a revival that came to nothing.
    pub(super) async fn withdraw(&self, record: &Record) -> Result<(), StoreError> {
        if self.row(record.id).await?.is_none() {
            let mut pipe = Pipeline::new();
            if let Some(key) = self.keys.key_of(record) {
                pipe.add_command(dropping(&key, record.id)).ignore();
            }
            self.leave(&mut pipe, record.id, Some(&record.owner));
            self.link.many::<()>(&pipe).await?;
        }
        self.settle(record.id).await
    }

    /// Deletes all that leads to sessions which were forgotten, then what says so, and what leads
    /// there at last: whoever finishes this finds them by that.
    pub(super) async fn clean(&self, ids: &[SessionId]) -> Result<(), StoreError> {
        let mut pipe = Pipeline::new();
        for id in ids {
            pipe.cmd("HGETALL").arg(self.keys.grave(*id));
            pipe.cmd("LRANGE").arg((self.keys.handles(*id), 0, -1));
            pipe.cmd("HKEYS").arg(self.keys.connections(*id));
        }
        let mut left = self.link.many::<Vec<Value>>(&pipe).await?.into_iter();
        let (mut names, mut rest) = (Pipeline::new(), Pipeline::new());
        for id in ids {
            let mut next = || left.next().unwrap_or(Value::Nil);
            let grave: Fields = answer(next())?;
            for some in [next(), next()] {
                for name in answer::<Vec<Vec<u8>>>(some)? {
                    let name = read_name(&name)?;
                    names.add_command(self.drop_name(name, *id)).ignore();
                }
            }
            // What cannot be read can still be forgotten.
            let record = Row::read(*id, grave).ok().flatten().map(|row| row.record);
            if let Some(key) = record.as_ref().and_then(|record| self.keys.key_of(record)) {
                names.add_command(dropping(&key, *id)).ignore();
            }
            rest.add_command(self.burying(*id)).ignore();
            self.leave(&mut rest, *id, record.as_ref().map(|record| &record.owner));
            rest.cmd("ZREM").arg((self.keys.ended(), id.to_string())).ignore();
        }
        self.link.many::<()>(&names).await?;
        self.link.many(&rest).await
    }

    fn burying(&self, id: SessionId) -> Cmd {
        let (row, grave) = (self.keys.row(id), self.keys.grave(id));
        let (handles, connections) = (self.keys.handles(id), self.keys.connections(id));
        BURY.call(&[&row, &grave, &handles, &connections, &self.keys.uses(id)])
    }

    /// The command that lets a name no longer lead to a session.
    pub(super) fn drop_name(&self, name: HandleHash, id: SessionId) -> Cmd {
        dropping(&self.keys.name(name), id)
    }
}

fn dropping(index: &str, id: SessionId) -> Cmd {
    let mut call = DROP.call(&[index]);
    call.arg(id.to_string());
    call
}

/// Reads the hash of a handle or of a connection's name.
pub(super) fn read_name(bytes: &[u8]) -> Result<HandleHash, StoreError> {
    let unreadable = |error| corrupt(REDIS, "a name", error);
    bytes.try_into().map(HandleHash::from_bytes).map_err(unreadable)
}
