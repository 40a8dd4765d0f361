//! Store in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use stayput_sync::Mutex;

use crate::{
    Agent, Clock, Connection, Epoch, ExpectedRevision, ExpectedValue, Generation, HandleHash,
    Holder, Key, Lease, MAX_HANDLES_PER_SESSION, Owner, RETAINED_CONNECTIONS_PER_SESSION, Record,
    Revision, SessionId, StateKey, StateValue, StateWrite, Store, StoreError, Timestamp,
};

/// [`Store`] in the memory of this process: the default of the agent library.
///
/// It fulfils the whole contract, but its content ends with the process.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// Builds an empty store that judges leases by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default() }
    }

    /// Runs `work` under the lock. No code of a caller runs inside, so a poisoned lock is still
    /// consistent.
    fn with_tables<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> R {
        work(&mut self.tables.lock())
    }
}

impl fmt::Debug for MemoryStore {
    /// Shows the number of sessions and none of their content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore({} sessions)", self.with_tables(|tables| tables.sessions.len()))
    }
}

#[derive(Default)]
struct Tables {
    /// Boxed, because the nodes of a tree that grows at one end stay half empty.
    sessions: BTreeMap<SessionId, Box<Row>>,
    /// Latest session of each key, live or tombstone.
    keys: HashMap<u128, SessionId>,
    /// Session of each handle and connection.
    names: HashMap<HandleHash, SessionId>,
    /// Live sessions by owner and by deadline, and tombstones by their end.
    owners: HashMap<Owner, BTreeSet<SessionId>>,
    deadlines: BTreeSet<(Timestamp, SessionId)>,
    tombstones: BTreeSet<(Timestamp, SessionId)>,
    leases: HashMap<Lease, (Holder, Duration)>,
    epoch: Epoch,
}

struct Row {
    record: Record,
    extra: Option<Box<Extra>>,
}

/// Data that most sessions do not have. Boxed, so that these pay nothing for it.
#[derive(Default)]
struct Extra {
    handles: Vec<HandleHash>,
    /// Time of last use and body of each connection.
    connections: HashMap<HandleHash, (Timestamp, Vec<u8>)>,
    state: BTreeMap<String, StateValue>,
    /// Last revision of a value. It outlives the value, so that revisions never repeat.
    revision: Revision,
}

impl Extra {
    /// Stores a connection. Its time of use never goes back.
    fn put_connection(&mut self, connection: &Connection) {
        let Connection { name, last_used, body, .. } = connection;
        let before = self.connections.insert(*name, (*last_used, body.clone()));
        if let Some((before, _)) = before
            && let Some((used, _)) = self.connections.get_mut(name)
        {
            *used = before.max(*used);
        }
    }

    /// Removes connections that were last used before `stale_before`, except the most recently used
    /// ones.
    fn remove_stale_connections(&mut self, stale_before: Timestamp) -> Vec<HandleHash> {
        if self.connections.len() <= RETAINED_CONNECTIONS_PER_SESSION {
            return Vec::new();
        }
        let mut times: Vec<_> = self.connections.values().map(|(used, _)| *used).collect();
        let (_, last, _) = times
            .select_nth_unstable_by(RETAINED_CONNECTIONS_PER_SESSION - 1, |one, other| {
                other.cmp(one)
            });
        let stale_before = stale_before.min(*last);
        self.connections
            .extract_if(|_, (used, _)| *used < stale_before)
            .map(|(name, _)| name)
            .collect()
    }
}

impl Row {
    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn check_writable(&self, by: Option<Lease>) -> Result<(), StoreError> {
        match self.record.holder {
            Some(holder) if by != Some(holder) => Err(StoreError::NotHolder),
            _ => Ok(()),
        }
    }
}

impl Tables {
    fn row(&mut self, id: SessionId, by: Option<Lease>) -> Result<&mut Row, StoreError> {
        let row = self.sessions.get_mut(&id).ok_or(StoreError::Missing)?;
        row.check_writable(by)?;
        Ok(row)
    }

    fn live_row(&mut self, id: SessionId, by: Option<Lease>) -> Result<&mut Row, StoreError> {
        self.row(id, by)
            .and_then(|row| if row.record.is_live() { Ok(row) } else { Err(StoreError::Missing) })
    }

    fn record(&self, id: SessionId) -> Option<&Record> {
        self.sessions.get(&id).map(|row| &row.record)
    }

    /// Returns the current or latest session with the key of `record`.
    fn latest_with_key(&self, record: &Record) -> Option<&Record> {
        self.record(*self.keys.get(&key_digest(record)?)?)
    }

    /// Adds a record to the indexes.
    fn index(&mut self, record: &Record) {
        match record.ended {
            Some(ended) => {
                self.tombstones.insert((ended.at, record.id));
            }
            None => {
                self.owners.entry(record.owner.clone()).or_default().insert(record.id);
                self.deadlines.extend(record.deadline().map(|deadline| (deadline, record.id)));
            }
        }
    }

    /// Removes a record from the indexes.
    fn unindex(&mut self, record: &Record) {
        match record.ended {
            Some(ended) => {
                self.tombstones.remove(&(ended.at, record.id));
            }
            None => {
                if let Some(own) = self.owners.get_mut(&record.owner) {
                    own.remove(&record.id);
                    if own.is_empty() {
                        self.owners.remove(&record.owner);
                    }
                }
                record.deadline().map(|deadline| self.deadlines.remove(&(deadline, record.id)));
            }
        }
    }

    fn insert(&mut self, record: &Record) -> Result<Generation, StoreError> {
        if self.sessions.contains_key(&record.id) {
            return Err(StoreError::Taken { by: record.id });
        }
        let mut record = record.clone();
        if let Some(last) = self.latest_with_key(&record) {
            if last.is_live() {
                return Err(StoreError::Taken { by: last.id });
            }
            record.generation = record.generation.max(last.generation.next());
        }
        if let Some(key) = key_digest(&record) {
            self.keys.insert(key, record.id);
        }
        self.index(&record);
        let generation = record.generation;
        let row = Box::new(Row { record, extra: None });
        self.sessions.insert(row.record.id, row);
        Ok(generation)
    }

    fn put_connection(
        &mut self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        let extra = self.row(connection.session, by)?.extra();
        extra.put_connection(connection);
        for name in extra.remove_stale_connections(stale_before) {
            self.names.remove(&name);
        }
        let before = self.names.insert(connection.name, connection.session);
        if let Some(before) = before.filter(|before| *before != connection.session)
            && let Some(row) = self.sessions.get_mut(&before)
        {
            row.extra().connections.remove(&connection.name);
        }
        Ok(())
    }

    fn replace(
        &mut self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let row = self.row(record.id, by)?;
        let old = row.record.clone();
        let used = expected.last_used.is_some_and(|last_used| last_used != old.last_used);
        if old.revision != expected.revision || used {
            return Err(StoreError::Stale);
        }
        if record.is_live() && !old.is_live() {
            match self.latest_with_key(&old) {
                Some(other) if other.id != old.id && other.is_live() => {
                    return Err(StoreError::Taken { by: other.id });
                }
                _ => self.keys.extend(key_digest(&old).map(|key| (key, old.id))),
            }
        }
        let new = old.replaced_by(record.clone(), by);
        let revision = new.revision;
        self.unindex(&old);
        self.index(&new);
        if let Some(row) = self.sessions.get_mut(&new.id) {
            if let (false, Some(extra)) = (new.is_live(), &mut row.extra) {
                extra.state.clear();
            }
            row.record = new;
        }
        Ok(revision)
    }

    fn touch(&mut self, id: SessionId, used: Timestamp, by: Option<Lease>) -> bool {
        let Ok(row) = self.live_row(id, by) else {
            return false;
        };
        let old = row.record.clone();
        row.record.last_used = old.last_used.max(used);
        let new = row.record.clone();
        self.unindex(&old);
        self.index(&new);
        true
    }

    fn remove(&mut self, id: SessionId) {
        let Some(mut row) = self.sessions.remove(&id) else {
            return;
        };
        self.unindex(&row.record);
        if let Some(key) = key_digest(&row.record)
            && self.keys.get(&key) == Some(&id)
        {
            self.keys.remove(&key);
        }
        let extra = row.extra();
        for name in extra.handles.iter().chain(extra.connections.keys()) {
            self.names.remove(name);
        }
    }

    fn put_state(
        &mut self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        let extra = self.live_row(id, by)?.extra();
        if !write.expected.is_met_by(extra.state.get(write.key).map(|value| value.revision)) {
            return Err(StoreError::Stale);
        }
        let others = || extra.state.iter().filter(|(key, _)| *key != write.key);
        write.check(
            others().map(|(key, value)| key.len() + value.bytes.len()).sum(),
            others().count(),
        )?;
        extra.revision = extra.revision.next();
        let value = StateValue { revision: extra.revision, bytes: write.bytes.to_owned() };
        extra.state.insert(write.key.to_owned(), value);
        Ok(extra.revision)
    }

    fn live_holder(&self, lease: Lease, now: Duration) -> Option<&Holder> {
        self.leases.get(&lease).filter(|(_, until)| now < *until).map(|(holder, _)| holder)
    }

    fn claim(&mut self, id: SessionId, lease: Lease, now: Duration) -> Result<Record, StoreError> {
        let live = self.record(id).filter(|record| record.is_live());
        let held = live.ok_or(StoreError::Missing)?.holder;
        if let Some(other) = held.filter(|held| *held != lease)
            && let Some(holder) = self.live_holder(other, now)
        {
            return Err(StoreError::HeldBy { holder: holder.clone() });
        }
        let row = self.sessions.get_mut(&id).ok_or(StoreError::Missing)?;
        row.record.holder = Some(lease);
        Ok(row.record.clone())
    }
}

fn key_digest(record: &Record) -> Option<u128> {
    let key = record.key.as_ref()?;
    Some(key.digest(&record.owner, &record.agent).truncate())
}

#[async_trait]
impl Store for MemoryStore {
    async fn insert(
        &self,
        record: &Record,
        connection: Option<&Connection>,
    ) -> Result<Generation, StoreError> {
        self.with_tables(|tables| {
            let generation = tables.insert(record)?;
            if let Some(connection) = connection {
                tables.put_connection(connection, Timestamp::default(), record.holder)?;
            }
            Ok(generation)
        })
    }

    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError> {
        Ok(self.with_tables(|tables| tables.record(id).cloned()))
    }

    async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError> {
        let digest = key.digest(owner, agent).truncate();
        Ok(self.with_tables(|tables| {
            let id = tables.keys.get(&digest)?;
            tables.record(*id).filter(|record| record.is_live()).cloned()
        }))
    }

    async fn replace(
        &self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        self.with_tables(|tables| tables.replace(record, expected, by))
    }

    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        let count =
            |tables: &mut Tables| used.iter().filter(|(id, at)| tables.touch(*id, *at, by)).count();
        Ok(self.with_tables(count) as u64)
    }

    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError> {
        self.with_tables(|tables| match tables.row(id, by) {
            Ok(_) => {
                tables.remove(id);
                Ok(())
            }
            Err(StoreError::Missing) => Ok(()),
            Err(error) => Err(error),
        })
    }

    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        Ok(self.with_tables(|tables| match owner {
            None => {
                let rows = tables.sessions.range((from, Unbounded)).map(|(_, row)| &row.record);
                rows.filter(|record| record.is_live()).take(limit).cloned().collect()
            }
            Some(owner) => {
                let own = tables.owners.get(owner).into_iter();
                let ids = own.flat_map(|own| own.range((from, Unbounded))).take(limit);
                ids.filter_map(|id| tables.record(*id).cloned()).collect()
            }
        }))
    }

    async fn list_due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        Ok(self.with_tables(|tables| {
            let places = tables.deadlines.range((from, Unbounded));
            let due = places.take_while(|(deadline, _)| *deadline <= now);
            due.take(limit).filter_map(|(_, id)| tables.record(*id).cloned()).collect()
        }))
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        Ok(self.with_tables(|tables| {
            let old = tables.tombstones.iter().take_while(|(at, _)| *at < ended_before);
            let gone: Vec<_> = old.take(limit).map(|(_, id)| *id).collect();
            gone.iter().for_each(|id| tables.remove(*id));
            gone.len() as u64
        }))
    }

    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.with_tables(|tables| {
            let handles = &mut tables.row(id, by)?.extra().handles;
            handles.retain(|known| *known != hash);
            handles.push(hash);
            let oldest = (handles.len() > MAX_HANDLES_PER_SESSION).then(|| handles.remove(0));
            tables.names.insert(hash, id);
            oldest.map(|oldest| tables.names.remove(&oldest));
            Ok(())
        })
    }

    async fn find_by_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError> {
        Ok(self.with_tables(|tables| {
            let row = tables.sessions.get(tables.names.get(&hash)?)?;
            let named = row.extra.as_ref()?.handles.contains(&hash);
            named.then(|| row.record.clone())
        }))
    }

    async fn put_connection(
        &self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.with_tables(|tables| tables.put_connection(connection, stale_before, by))
    }

    async fn load_connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError> {
        Ok(self.with_tables(|tables| {
            let session = *tables.names.get(&name)?;
            let (last_used, body) =
                tables.sessions.get(&session)?.extra.as_ref()?.connections.get(&name)?.clone();
            Some(Connection { name, session, last_used, body })
        }))
    }

    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError> {
        Ok(self.with_tables(|tables| {
            let mut noted = 0;
            for (name, at) in used {
                let Some(session) = tables.names.get(name).copied() else { continue };
                let Ok(row) = tables.row(session, by) else { continue };
                let extra = row.extra.as_mut();
                if let Some((used, _)) = extra.and_then(|it| it.connections.get_mut(name)) {
                    *used = (*used).max(*at);
                    noted += 1;
                }
            }
            noted
        }))
    }

    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.with_tables(|tables| {
            let Some(session) = tables.names.get(&name).copied() else {
                return Ok(());
            };
            if tables.row(session, by)?.extra().connections.remove(&name).is_some() {
                tables.names.remove(&name);
            }
            Ok(())
        })
    }

    async fn load_state(&self, id: SessionId, key: &str) -> Result<Option<StateValue>, StoreError> {
        Ok(self.with_tables(|tables| {
            tables.sessions.get(&id)?.extra.as_ref()?.state.get(key).cloned()
        }))
    }

    async fn list_state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError> {
        let key = |(key, value): (&String, &StateValue)| StateKey {
            key: key.clone(),
            revision: value.revision,
            size: value.bytes.len(),
        };
        Ok(self.with_tables(|tables| {
            let extra = tables.sessions.get(&id).and_then(|row| row.extra.as_ref());
            extra.map(|extra| extra.state.iter().map(key).collect()).unwrap_or_default()
        }))
    }

    async fn put_state(
        &self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError> {
        self.with_tables(|tables| tables.put_state(id, write, by))
    }

    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expected: ExpectedValue,
        by: Option<Lease>,
    ) -> Result<(), StoreError> {
        self.with_tables(|tables| {
            let state = &mut tables.live_row(id, by)?.extra().state;
            if !expected.is_met_by(state.get(key).map(|value| value.revision)) {
                return Err(StoreError::Stale);
            }
            state.remove(key);
            Ok(())
        })
    }

    async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError> {
        let now = self.clock.monotonic();
        Ok(self.with_tables(|tables| {
            tables.leases.retain(|_, (_, until)| now < *until);
            tables.epoch = tables.epoch.next();
            let lease = Lease { holder: holder.id, epoch: tables.epoch };
            tables.leases.insert(lease, (holder.clone(), now.saturating_add(ttl)));
            lease
        }))
    }

    async fn renew_lease(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        let now = self.clock.monotonic();
        self.with_tables(|tables| match tables.leases.get_mut(&lease) {
            Some((_, until)) if now < *until => {
                *until = now.saturating_add(ttl);
                Ok(())
            }
            _ => Err(StoreError::LeaseLost),
        })
    }

    async fn release_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.with_tables(|tables| tables.leases.remove(&lease));
        Ok(())
    }

    async fn lease_holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError> {
        let now = self.clock.monotonic();
        Ok(self.with_tables(|tables| tables.live_holder(lease, now).cloned()))
    }

    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError> {
        let now = self.clock.monotonic();
        self.with_tables(|tables| tables.claim(id, lease, now))
    }

    async fn release_claim(&self, id: SessionId, lease: Lease) -> Result<(), StoreError> {
        self.with_tables(|tables| {
            if let Some(row) = tables.sessions.get_mut(&id) {
                row.record.holder = row.record.holder.filter(|held| *held != lease);
            }
        });
        Ok(())
    }
}
