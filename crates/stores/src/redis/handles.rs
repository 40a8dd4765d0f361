//! Handles and connections: names that lead to sessions.
//!
//! A name is entered into its session first and into the index last, and the session decides: a name
//! in the index that its session does not know leads nowhere. The session knows its handles and its
//! connections apart, so neither can be used as the other.

use ::redis::{Cmd, Pipeline, Value, cmd};
use stayput_core::{
    CONNECTIONS_PER_SESSION, Connection, HANDLES_PER_SESSION, HandleHash, Lease, Record, SessionId,
    StoreError, Timestamp,
};

use super::{
    BATCH, REDIS, RedisStore, allowed,
    index::read_name,
    lease_text,
    link::answer,
    row::{Fields, Row},
    scripts::{ADD_HANDLE, PUT_CONNECTION, REMOVE_CONNECTION, Script, TOUCH_CONNECTION},
};
use crate::failure::corrupt;

async fn named(store: &RedisStore, name: HandleHash) -> Result<Option<SessionId>, StoreError> {
    let id: Option<String> = store.link.one(cmd("GET").arg(store.keys.name(name))).await?;
    let unreadable = |error| corrupt(REDIS, "the index of a name", error);
    id.map(|id| id.parse().map_err(unreadable)).transpose()
}

pub(super) async fn add_handle(
    store: &RedisStore,
    id: SessionId,
    hash: HandleHash,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let mut call = ADD_HANDLE.call(&[&store.keys.row(id), &store.keys.handles(id)]);
    call.arg((lease_text(by), hash.as_bytes(), HANDLES_PER_SESSION));
    taken(store, hash, id, store.link.one(&call).await?).await
}

/// Enters a name into the index.
pub(super) fn enter(store: &RedisStore, pipe: &mut Pipeline, name: HandleHash, id: SessionId) {
    pipe.cmd("SET").arg(store.keys.name(name)).arg(id.to_string()).ignore();
}

/// Enters a name that a session has taken into the index, and takes those out that it has forgotten for it.
async fn taken(
    store: &RedisStore,
    name: HandleHash,
    id: SessionId,
    said: Vec<Value>,
) -> Result<(), StoreError> {
    let mut said = said.into_iter();
    allowed(answer(said.next().unwrap_or(Value::Nil))?)?;
    let mut pipe = Pipeline::new();
    enter(store, &mut pipe, name, id);
    for forgotten in said {
        let name = read_name(&answer::<Vec<u8>>(forgotten)?)?;
        pipe.add_command(store.drop_name(name, id)).ignore();
    }
    store.link.many(&pipe).await
}

pub(super) async fn find_handle(
    store: &RedisStore,
    hash: HandleHash,
) -> Result<Option<Record>, StoreError> {
    let Some(id) = named(store, hash).await? else {
        return Ok(None);
    };
    let mut pipe = Pipeline::new();
    pipe.cmd("LRANGE").arg(store.keys.handles(id)).arg(0).arg(-1);
    pipe.cmd("HGETALL").arg(store.keys.row(id));
    let (handles, fields): (Vec<Vec<u8>>, Fields) = store.link.many(&pipe).await?;
    for handle in &handles {
        if read_name(handle)? == hash {
            return Ok(Row::read(id, fields)?.map(|row| row.record));
        }
    }
    Ok(None)
}

pub(super) async fn put_connection(
    store: &RedisStore,
    connection: &Connection,
    unused: Timestamp,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let (id, name) = (connection.session, connection.name);
    let mut call = on_connections(store, &PUT_CONNECTION, id);
    call.arg(lease_text(by)).arg(name.as_bytes()).arg(&connection.body);
    call.arg((connection.used.as_millis(), unused.as_millis(), CONNECTIONS_PER_SESSION));
    taken(store, name, id, store.link.one(&call).await?).await
}

/// A call of a script on the connections of a session.
pub(super) fn on_connections(store: &RedisStore, script: &Script, id: SessionId) -> Cmd {
    let keys = [store.keys.row(id), store.keys.connections(id), store.keys.uses(id)];
    script.call(&keys.each_ref().map(String::as_str))
}

/// Notes times of use. A connection that leads elsewhere by now is noted there.
pub(super) async fn touch_connections(
    store: &RedisStore,
    used: &[(HandleHash, Timestamp)],
    by: Option<Lease>,
) -> Result<u64, StoreError> {
    let (by, mut noted) = (lease_text(by), 0);
    for some in used.chunks(BATCH) {
        let mut pipe = Pipeline::new();
        for (name, _) in some {
            pipe.cmd("GET").arg(store.keys.name(*name));
        }
        let led: Vec<Option<String>> = store.link.many(&pipe).await?;
        let mut pipe = Pipeline::new();
        for ((name, at), id) in some.iter().zip(led) {
            // What cannot be read is told to whoever needs it.
            let Some(id) = id.and_then(|id| id.parse().ok()) else { continue };
            let mut call = on_connections(store, &TOUCH_CONNECTION, id);
            call.arg(&by).arg(name.as_bytes()).arg(at.as_millis());
            pipe.add_command(call);
        }
        if !pipe.is_empty() {
            noted += store.link.many::<Vec<u64>>(&pipe).await?.iter().sum::<u64>();
        }
    }
    Ok(noted)
}

pub(super) async fn connection(
    store: &RedisStore,
    name: HandleHash,
) -> Result<Option<Connection>, StoreError> {
    let Some(session) = named(store, name).await? else {
        return Ok(None);
    };
    let mut pipe = Pipeline::new();
    pipe.cmd("EXISTS").arg(store.keys.row(session));
    pipe.cmd("HGET").arg(store.keys.connections(session)).arg(name.as_bytes());
    pipe.cmd("ZSCORE").arg(store.keys.uses(session)).arg(name.as_bytes());
    let (there, body, used): (bool, Option<Vec<u8>>, Option<u64>) = store.link.many(&pipe).await?;
    let used = Timestamp::from_millis(used.unwrap_or_default());
    Ok(body.filter(|_| there).map(|body| Connection { name, session, used, body }))
}

pub(super) async fn remove_connection(
    store: &RedisStore,
    name: HandleHash,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let Some(id) = named(store, name).await? else {
        return Ok(());
    };
    let mut call = on_connections(store, &REMOVE_CONNECTION, id);
    call.arg(lease_text(by)).arg(name.as_bytes());
    match allowed(store.link.one(&call).await?) {
        Ok(0) | Err(StoreError::Missing) => Ok(()),
        Ok(_) => store.link.one(&store.drop_name(name, id)).await,
        Err(error) => Err(error),
    }
}
