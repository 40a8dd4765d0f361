//! SQL of every operation. Each function runs inside a transaction of its worker.

use rusqlite::{Connection as Db, OptionalExtension, Params, params};
use stayput_core::{
    Connection, Epoch, Event, ExpectedRevision, ExpectedValue, Generation, HandleHash, Holder,
    Lease, MAX_HANDLES_PER_SESSION, Owner, RETAINED_CONNECTIONS_PER_SESSION, Record, Revision,
    SessionId, StateKey, StateValue, StateWrite, StoreError, Timestamp, Topic,
};

use super::{OLDEST_SCHEMA, SCHEMA, STORE, counter::Count, fault};
use crate::{
    error::corrupt,
    row::{Row, number, time, timestamp, unsigned},
};

type Result<T> = std::result::Result<T, StoreError>;

/// Milliseconds since 1970 by the clock of the database.
const NOW: &str = "cast(unixepoch('now', 'subsec') * 1000 as integer)";

/// Migrations from [`OLDEST_SCHEMA`] on, oldest first. A released one is never edited.
const MIGRATIONS: [&str; 2] = [include_str!("schema.sql"), include_str!("schema4.sql")];

/// Migrates the schema. Returns the schema of the file, which may be newer than [`SCHEMA`] or older
/// than [`OLDEST_SCHEMA`]; then nothing is changed.
pub(super) fn migrate(db: &Db) -> Result<i64> {
    let run = |sql: &str| db.execute_batch(sql).map_err(fault);
    run("begin immediate")?; // of two processes that open a new file, one waits
    let found: i64 = db.query_row("pragma user_version", [], |row| row.get(0)).map_err(fault)?;
    if found == 0 {
        let count = "select count(*) from sqlite_master";
        let tables: i64 = db.query_row(count, [], |row| row.get(0)).map_err(fault)?;
        if tables > 0 {
            run("rollback")?;
            return Err(corrupt(
                STORE,
                "tables of another program",
                "name a file of its own for it",
            ));
        }
    } else if !(OLDEST_SCHEMA..SCHEMA).contains(&found) {
        run("rollback")?;
        return Ok(found);
    }
    // An empty file gets all migrations.
    let done = usize::try_from(found - OLDEST_SCHEMA + 1).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        run(migration)?;
    }
    run(&format!("pragma user_version = {SCHEMA}"))?;
    run("commit")?;
    Ok(SCHEMA)
}

// ── helpers ─────────────────────────────────────────────────────────────────────────────────────────

fn execute(db: &Db, sql: &str, params: impl Params) -> Result<usize> {
    db.prepare_cached(sql).and_then(|mut run| run.execute(params)).map_err(fault)
}

fn query<T, P: Params>(
    db: &Db,
    sql: &str,
    params: P,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    db.prepare_cached(sql).and_then(|mut run| run.query_row(params, read).optional()).map_err(fault)
}

fn query_all<T, P: Params>(
    db: &Db,
    sql: &str,
    params: P,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let rows = |mut run: rusqlite::CachedStatement<'_>| run.query_map(params, read)?.collect();
    db.prepare_cached(sql).and_then(rows).map_err(fault)
}

const COLUMNS: &str = "id, owner, agent, key, created, last_used, idle, absolute, generation, provisional, \
                       detail, ended_at, ended_reason, holder, revision";

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let id: String = row.get(0)?;
    let id = id.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Row {
        id,
        owner: row.get(1)?,
        agent: row.get(2)?,
        key: row.get(3)?,
        created: row.get(4)?,
        last_used: row.get(5)?,
        idle: row.get(6)?,
        absolute: row.get(7)?,
        generation: row.get(8)?,
        provisional: row.get(9)?,
        detail: row.get(10)?,
        ended_at: row.get(11)?,
        ended_reason: row.get(12)?,
        holder: row.get(13)?,
        revision: row.get(14)?,
    })
}

fn record(db: &Db, condition: &str, params: impl Params) -> Result<Option<Record>> {
    let found =
        query(db, &format!("select {COLUMNS} from session where {condition}"), params, row)?;
    found.map(|row| row.into_record(STORE)).transpose()
}

fn records(db: &Db, condition: &str, params: impl Params) -> Result<Vec<Record>> {
    let found =
        query_all(db, &format!("select {COLUMNS} from session where {condition}"), params, row)?;
    found.into_iter().map(|row| row.into_record(STORE)).collect()
}

/// Refuses a writer that does not hold the session. Returns whether the session is live.
fn fence(db: &Db, id: SessionId, by: Option<Lease>) -> Result<bool> {
    let sql = "select holder, ended_at is null from session where id = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<String>>(0)?, row.get(1)?));
    let (holder, live) = query(db, sql, [id.to_string()], read)?.ok_or(StoreError::Missing)?;
    match holder {
        Some(holder) if by.is_none_or(|lease| lease.to_string() != holder) => {
            Err(StoreError::NotHolder)
        }
        _ => Ok(live),
    }
}

/// Same as [`fence`], and refuses an ended session.
fn fence_live(db: &Db, id: SessionId, by: Option<Lease>) -> Result<()> {
    if fence(db, id, by)? { Ok(()) } else { Err(StoreError::Missing) }
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

// ── records ─────────────────────────────────────────────────────────────────────────────────────────

pub(super) fn load(db: &Db, id: SessionId) -> Result<Option<Record>> {
    record(db, "id = ?1", [id.to_string()])
}

const KEY_CONDITION: &str = "owner = ?1 and agent = ?2 and key = ?3 and ended_at is null";

pub(super) fn find_by_key(db: &Db, name: &[String; 3]) -> Result<Option<Record>> {
    record(db, KEY_CONDITION, name.each_ref())
}

pub(super) fn insert(
    db: &Db,
    mut record: Record,
    connection: Option<&Connection>,
) -> Result<Generation> {
    if load(db, record.id)?.is_some() {
        return Err(StoreError::Taken { by: record.id });
    }
    if let Some(key) = &record.key {
        let name = [record.owner.as_str(), record.agent.as_str(), key.as_str()].map(str::to_owned);
        if let Some(other) = find_by_key(db, &name)? {
            return Err(StoreError::Taken { by: other.id });
        }
        let ended = "select max(generation) from session
                    where owner = ?1 and agent = ?2 and key = ?3 and ended_at is not null";
        let ended: Option<i64> = query(db, ended, name.each_ref(), |row| row.get(0))?.flatten();
        if let Some(ended) = ended {
            record.generation = record.generation.max(Generation(unsigned(ended)).next());
        }
    }
    insert_row(db, &record)?;
    if let Some(connection) = connection {
        upsert_connection(db, connection)?;
    }
    Ok(record.generation)
}

pub(super) fn replace(
    db: &Db,
    record: Record,
    expected: ExpectedRevision,
    by: Option<Lease>,
) -> Result<Revision> {
    let old = load(db, record.id)?.ok_or(StoreError::Missing)?;
    if old.holder.is_some() && old.holder != by {
        return Err(StoreError::NotHolder);
    }
    let used = expected.last_used.is_some_and(|last_used| last_used != old.last_used);
    if old.revision != expected.revision || used {
        return Err(StoreError::Stale);
    }
    if let (true, false, Some(key)) = (record.is_live(), old.is_live(), &old.key) {
        let name = [old.owner.as_str(), old.agent.as_str(), key.as_str()].map(str::to_owned);
        if let Some(other) = find_by_key(db, &name)? {
            return Err(StoreError::Taken { by: other.id });
        }
    }
    if !record.is_live() {
        execute(db, "delete from state where session = ?1", [record.id.to_string()])?;
    }
    let record = old.replaced_by(record, by);
    update_row(db, &old, &record)?;
    Ok(record.revision)
}

/// Inserts a new record.
fn insert_row(db: &Db, record: &Record) -> Result<()> {
    let sql =
        "insert into session (id, owner, agent, key, created, last_used, idle, absolute, deadline,
                   generation, provisional, detail, ended_at, ended_reason, holder, revision)
               values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let row = Row::new(record);
    let due = record.deadline().map(time);
    let values = params![
        row.id.to_string(),
        row.owner,
        row.agent,
        row.key,
        row.created,
        row.last_used,
        row.idle,
        row.absolute,
        due,
        row.generation,
        row.provisional,
        row.detail,
        row.ended_at,
        row.ended_reason,
        row.holder,
        row.revision,
    ];
    execute(db, sql, values).map(drop)
}

/// Updates the row of a record. Owner, agent and key stay.
fn update_row(db: &Db, old: &Record, record: &Record) -> Result<()> {
    let row = Row::new(record);
    let sql = "update session set created = ?2, last_used = ?3, idle = ?4, absolute = ?5, generation = ?6,
                   provisional = ?7, detail = ?8, holder = ?9, revision = ?10 where id = ?1";
    let values = params![
        row.id.to_string(),
        row.created,
        row.last_used,
        row.idle,
        row.absolute,
        row.generation,
        row.provisional,
        row.detail,
        row.holder,
        row.revision,
    ];
    execute(db, sql, values)?;
    if (old.deadline(), old.ended) == (record.deadline(), record.ended) {
        // SQLite rewrites the index entry of every assigned column, even if its value is the same.
        return Ok(());
    }
    let sql = "update session set deadline = ?2, ended_at = ?3, ended_reason = ?4 where id = ?1";
    let due = record.deadline().map(time);
    execute(db, sql, params![row.id.to_string(), due, row.ended_at, row.ended_reason]).map(drop)
}

pub(super) fn touch(db: &Db, used: &[(SessionId, Timestamp)], by: Option<Lease>) -> Result<u64> {
    // `min` with a null is null, so an absent limit is replaced by the latest time.
    let sql = "update session set last_used = max(last_used, ?2), deadline = case
                   when idle is null and absolute is null then null
                   else min(coalesce(max(last_used, ?2) + idle, 9223372036854775807),
                            coalesce(created + absolute, 9223372036854775807)) end
               where id = ?1 and ended_at is null and (holder is null or holder is ?3)";
    let by = by.map(|lease| lease.to_string());
    let mut touched = 0;
    for (id, at) in used {
        touched += execute(db, sql, params![id.to_string(), time(*at), by])? as u64;
    }
    Ok(touched)
}

pub(super) fn remove(db: &Db, id: SessionId, by: Option<Lease>) -> Result<()> {
    match fence(db, id, by) {
        Ok(_) => execute(db, "delete from session where id = ?1", [id.to_string()]).map(drop),
        Err(StoreError::Missing) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn list(
    db: &Db,
    owner: Option<&Owner>,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<Record>> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    match owner {
        None => {
            let page = "ended_at is null and id > ?1 order by id limit ?2";
            records(db, page, params![after, sql_limit(limit)])
        }
        Some(owner) => {
            let page = "owner = ?1 and ended_at is null and id > ?2 order by id limit ?3";
            records(db, page, params![owner.as_str(), after, sql_limit(limit)])
        }
    }
}

pub(super) fn list_due(
    db: &Db,
    now: Timestamp,
    after: Option<(Timestamp, SessionId)>,
    limit: usize,
) -> Result<Vec<Record>> {
    let (after, id) = after.map_or((-1, String::new()), |(at, id)| (time(at), id.to_string()));
    let page = "ended_at is null and deadline is not null and deadline <= ?1
                and (deadline, id) > (?2, ?3) order by deadline, id limit ?4";
    let sql = format!("select {COLUMNS} from session where {page}");
    let found =
        query_all(db, &sql, params![time(now), after, id, sql_limit(limit)], |it| Ok(row(it)))?;
    Ok(found.into_iter().flatten().filter_map(|row| row.into_record(STORE).ok()).collect())
}

pub(super) fn purge(db: &Db, ended_before: i64, limit: usize) -> Result<u64> {
    let sql = "delete from session where id in (
                   select id from session where ended_at is not null and ended_at < ?1 order by ended_at limit ?2)";
    Ok(execute(db, sql, [ended_before, sql_limit(limit)])? as u64)
}

// ── handles, connections ────────────────────────────────────────────────────────────────────────────

pub(super) fn add_handle(
    db: &Db,
    id: SessionId,
    hash: HandleHash,
    by: Option<Lease>,
) -> Result<()> {
    fence(db, id, by)?;
    let id = id.to_string();
    // A repeated one becomes the newest.
    execute(db, "delete from handle where hash = ?1", [hash.as_bytes()])?;
    let sql = "insert into handle (hash, session) values (?1, ?2)";
    execute(db, sql, params![hash.as_bytes(), id])?;
    let old = "delete from handle where number in (
                   select number from handle where session = ?1 order by number desc limit -1 offset ?2)";
    execute(db, old, params![id, sql_limit(MAX_HANDLES_PER_SESSION)]).map(drop)
}

pub(super) fn find_by_handle(db: &Db, hash: HandleHash) -> Result<Option<Record>> {
    record(db, "id = (select session from handle where hash = ?1)", [hash.as_bytes()])
}

pub(super) fn put_connection(
    db: &Db,
    connection: &Connection,
    stale_before: Timestamp,
    by: Option<Lease>,
) -> Result<()> {
    fence(db, connection.session, by)?;
    upsert_connection(db, connection)?;
    let session = connection.session.to_string();
    // With fewer connections the subquery is null, and nothing is deleted.
    let old = "delete from connection where session = ?1 and last_used < ?2 and last_used < (
                   select last_used from connection where session = ?1
                   order by last_used desc limit 1 offset ?3)";
    let offset = sql_limit(RETAINED_CONNECTIONS_PER_SESSION - 1);
    execute(db, old, params![session, time(stale_before), offset]).map(drop)
}

fn upsert_connection(db: &Db, connection: &Connection) -> Result<()> {
    let sql = "insert into connection (name, session, last_used, body) values (?1, ?2, ?3, ?4)
               on conflict (name) do update set
                   session = excluded.session, last_used = max(last_used, excluded.last_used),
                   body = excluded.body";
    let Connection { name, session, last_used, body } = connection;
    execute(db, sql, params![name.as_bytes(), session.to_string(), time(*last_used), body])
        .map(drop)
}

pub(super) fn touch_connections(
    db: &Db,
    used: &[(HandleHash, Timestamp)],
    by: Option<Lease>,
) -> Result<u64> {
    let sql = "update connection set last_used = max(last_used, ?2) where name = ?1 and exists (
                   select 1 from session where id = connection.session
                   and (holder is null or holder is ?3))";
    let by = by.map(|lease| lease.to_string());
    let mut touched = 0;
    for (name, at) in used {
        touched += execute(db, sql, params![name.as_bytes(), time(*at), by])? as u64;
    }
    Ok(touched)
}

pub(super) fn load_connection(db: &Db, name: HandleHash) -> Result<Option<Connection>> {
    let sql = "select session, last_used, body from connection where name = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?));
    let Some((session, last_used, body)) = query(db, sql, [name.as_bytes()], read)? else {
        return Ok(None);
    };
    let session =
        session.parse().map_err(|error| corrupt(STORE, "a connection", Box::new(error)))?;
    Ok(Some(Connection { name, session, last_used: timestamp(last_used), body }))
}

pub(super) fn remove_connection(db: &Db, name: HandleHash, by: Option<Lease>) -> Result<()> {
    let Some(found) = load_connection(db, name)? else {
        return Ok(());
    };
    fence(db, found.session, by)?;
    execute(db, "delete from connection where name = ?1", [name.as_bytes()]).map(drop)
}

// ── state ───────────────────────────────────────────────────────────────────────────────────────────

pub(super) fn load_state(db: &Db, id: SessionId, key: &str) -> Result<Option<StateValue>> {
    let sql = "select revision, bytes from state where session = ?1 and key = ?2";
    query(db, sql, params![id.to_string(), key], |row| {
        Ok(StateValue { revision: Revision(unsigned(row.get(0)?)), bytes: row.get(1)? })
    })
}

pub(super) fn list_state_keys(db: &Db, id: SessionId) -> Result<Vec<StateKey>> {
    let sql = "select key, revision, length(bytes) from state where session = ?1 order by key";
    query_all(db, sql, [id.to_string()], |row| {
        let size: i64 = row.get(2)?;
        let size = usize::try_from(size).unwrap_or_default();
        Ok(StateKey { key: row.get(0)?, revision: Revision(unsigned(row.get(1)?)), size })
    })
}

fn check_expected(db: &Db, id: SessionId, key: &str, expected: ExpectedValue) -> Result<()> {
    let sql = "select revision from state where session = ?1 and key = ?2";
    let found: Option<i64> = query(db, sql, params![id.to_string(), key], |row| row.get(0))?;
    if expected.is_met_by(found.map(|revision| Revision(unsigned(revision)))) {
        Ok(())
    } else {
        Err(StoreError::Stale)
    }
}

pub(super) fn put_state(
    db: &Db,
    id: SessionId,
    write: StateWrite<'_>,
    by: Option<Lease>,
) -> Result<Revision> {
    fence_live(db, id, by)?;
    check_expected(db, id, write.key, write.expected)?;
    let id = id.to_string();
    let others = "select coalesce(sum(octet_length(key) + length(bytes)), 0), count(*)
                  from state where session = ?1 and key <> ?2";
    let sizes = query(db, others, params![id, write.key], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    let (others, count) = sizes.unwrap_or_default();
    write.check(
        usize::try_from(others).unwrap_or_default(),
        usize::try_from(count).unwrap_or_default(),
    )?;
    let next = "update session set state_revision = state_revision + 1 where id = ?1 returning state_revision";
    let revision: i64 = query(db, next, [&id], |row| row.get(0))?.ok_or(StoreError::Missing)?;
    let sql = "insert into state (session, key, revision, bytes) values (?1, ?2, ?3, ?4)
               on conflict do update set revision = excluded.revision, bytes = excluded.bytes";
    execute(db, sql, params![id, write.key, revision, write.bytes])?;
    Ok(Revision(unsigned(revision)))
}

pub(super) fn remove_state(
    db: &Db,
    id: SessionId,
    key: &str,
    expected: ExpectedValue,
    by: Option<Lease>,
) -> Result<()> {
    fence_live(db, id, by)?;
    check_expected(db, id, key, expected)?;
    execute(db, "delete from state where session = ?1 and key = ?2", params![id.to_string(), key])
        .map(drop)
}

// ── leases ──────────────────────────────────────────────────────────────────────────────────────────

pub(super) fn acquire_lease(db: &Db, holder: &Holder, ttl: i64) -> Result<Lease> {
    execute(db, &format!("delete from lease where expires <= {NOW}"), [])?;
    let sql = format!("insert into lease (holder, address, expires) values (?1, ?2, {NOW} + ?3)");
    execute(db, &sql, params![holder.id.to_string(), holder.address, ttl])?;
    Ok(Lease { holder: holder.id, epoch: Epoch(unsigned(db.last_insert_rowid())) })
}

pub(super) fn renew_lease(db: &Db, lease: Lease, ttl: i64) -> Result<()> {
    let sql = format!(
        "update lease set expires = {NOW} + ?3 where epoch = ?1 and holder = ?2 and expires > {NOW}"
    );
    match execute(db, &sql, params![number(lease.epoch.0), lease.holder.to_string(), ttl])? {
        0 => Err(StoreError::LeaseLost),
        _ => Ok(()),
    }
}

pub(super) fn release_lease(db: &Db, lease: Lease) -> Result<()> {
    let sql = "delete from lease where epoch = ?1 and holder = ?2";
    execute(db, sql, params![number(lease.epoch.0), lease.holder.to_string()]).map(drop)
}

pub(super) fn lease_holder(db: &Db, lease: Lease) -> Result<Option<Holder>> {
    let sql =
        format!("select address from lease where epoch = ?1 and holder = ?2 and expires > {NOW}");
    let found = query(db, &sql, params![number(lease.epoch.0), lease.holder.to_string()], |row| {
        row.get(0)
    })?;
    Ok(found.map(|address| Holder { id: lease.holder, address }))
}

pub(super) fn claim(db: &Db, id: SessionId, lease: Lease) -> Result<Record> {
    let record = load(db, id)?.filter(Record::is_live).ok_or(StoreError::Missing)?;
    if let Some(other) = record.holder.filter(|held| *held != lease)
        && let Some(holder) = lease_holder(db, other)?
    {
        return Err(StoreError::HeldBy { holder });
    }
    execute(
        db,
        "update session set holder = ?2 where id = ?1",
        [id.to_string(), lease.to_string()],
    )?;
    Ok(Record { holder: Some(lease), ..record })
}

pub(super) fn release_claim(db: &Db, id: SessionId, lease: Lease) -> Result<()> {
    let sql = "update session set holder = null where id = ?1 and holder = ?2";
    execute(db, sql, [id.to_string(), lease.to_string()]).map(drop)
}

// ── counter ─────────────────────────────────────────────────────────────────────────────────────────

/// Adds one to the counter.
pub(super) fn count_up(db: &Db) -> Result<Count> {
    let sql = "update counter set number = number + 1 returning database, number";
    read_count(db, sql, [])
}

fn read_count(db: &Db, sql: &str, params: impl Params) -> Result<Count> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (database, number) = query(db, sql, params, read)?
        .ok_or_else(|| corrupt(STORE, "a counter", "its row is missing"))?;
    Ok(Count { database, number: unsigned(number) })
}

/// If the database is behind the number that was last `seen`, it was replaced by an older copy. Then
/// all state of its sessions counts as lost, because it may be newer than their records. Returns the
/// number of these sessions.
pub(super) fn lose_state_if_behind(db: &Db, seen: &Count) -> Result<Option<usize>> {
    db.execute_batch("begin immediate").map_err(fault)?;
    let count = read_count(db, "select database, number from counter", [])?;
    let behind = count.database == seen.database && count.number < seen.number;
    let mut lost = None;
    if behind {
        let sql = format!("select {COLUMNS} from session where ended_at is null");
        let found = query_all(db, &sql, [], |it| Ok(row(it)))?;
        // A record that cannot be decoded cannot be used either.
        let readable = found.into_iter().flatten().filter_map(|row| row.into_record(STORE).ok());
        let old: Vec<Record> = readable.collect();
        for old in &old {
            let mut record = Record { revision: old.revision.next(), ..old.clone() };
            record.lose_state();
            update_row(db, old, &record)?;
        }
        execute(db, "update counter set number = ?1", [number(seen.number)])?;
        lost = Some(old.len());
    }
    db.execute_batch("commit").map_err(fault)?;
    Ok(lost)
}

// ── events ──────────────────────────────────────────────────────────────────────────────────────────

pub(super) fn append(db: &Db, topic: &Topic, body: &[u8]) -> Result<u64> {
    let next = "insert into topic (owner, session, stream, last) values (?1, ?2, ?3, 1)
                on conflict (owner, session, stream) do update set last = last + 1 returning number, last";
    let Topic { owner, session, stream } = topic;
    let topic_values = params![owner.as_str(), session.to_string(), stream.cast_signed()];
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let (topic, number) = query(db, next, topic_values, read)?.unwrap_or_default();
    execute(
        db,
        "insert into event (topic, number, body) values (?1, ?2, ?3)",
        params![topic, number, body],
    )?;
    Ok(unsigned(number))
}

const TOPIC_NUMBER: &str =
    "(select number from topic where owner = ?1 and session = ?2 and stream = ?3)";

pub(super) fn read_after(db: &Db, topic: &Topic, after: u64, limit: usize) -> Result<Vec<Event>> {
    let sql = format!(
        "select number, body from event where topic = {TOPIC_NUMBER} and number > ?4 order by number limit ?5"
    );
    let Topic { owner, session, stream } = topic;
    let topic_values = params![
        owner.as_str(),
        session.to_string(),
        stream.cast_signed(),
        number(after),
        sql_limit(limit)
    ];
    query_all(db, &sql, topic_values, |row| {
        Ok(Event { number: unsigned(row.get(0)?), body: row.get(1)? })
    })
}

pub(super) fn trim(db: &Db, topic: &Topic, through: u64) -> Result<()> {
    let sql = format!("delete from event where topic = {TOPIC_NUMBER} and number <= ?4");
    let Topic { owner, session, stream } = topic;
    let topic_values =
        params![owner.as_str(), session.to_string(), stream.cast_signed(), number(through)];
    execute(db, &sql, topic_values).map(drop)
}

pub(super) fn remove_session(db: &Db, owner: &Owner, session: SessionId) -> Result<()> {
    let sql = "delete from topic where owner = ?1 and session = ?2";
    execute(db, sql, params![owner.as_str(), session.to_string()]).map(drop)
}
