//! Handles and connections: names that lead to sessions.
//!
//! A name is written to its session first and to the index last, and the session decides: an index
//! entry that its session does not know leads nowhere. The session stores handles and connections
//! separately, so that neither can be used as the other.

use ::redis::{Cmd, Pipeline, Value, cmd};
use stayput_core::{
    Connection, HandleHash, Lease, MAX_HANDLES_PER_SESSION, RETAINED_CONNECTIONS_PER_SESSION,
    Record, SessionId, StoreError, Timestamp,
};

use super::{
    BATCH_SIZE, REDIS, RedisStore, check_code,
    connection::decode,
    index::read_name,
    lease_text,
    row::{Fields, Row},
    scripts::{ADD_HANDLE, PUT_CONNECTION, REMOVE_CONNECTION, Script, TOUCH_CONNECTION},
};
use crate::error::corrupt;

async fn find_session(
    store: &RedisStore,
    name: HandleHash,
) -> Result<Option<SessionId>, StoreError> {
    let id: Option<String> = store.connection.query(cmd("GET").arg(store.keys.name(name))).await?;
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
    call.arg((lease_text(by), hash.as_bytes(), MAX_HANDLES_PER_SESSION));
    update_names(store, hash, id, store.connection.query(&call).await?).await
}

/// Adds a name to the index.
pub(super) fn add_name(store: &RedisStore, pipe: &mut Pipeline, name: HandleHash, id: SessionId) {
    pipe.cmd("SET").arg(store.keys.name(name)).arg(id.to_string()).ignore();
}

/// Adds a name of a session to the index, and removes those that the script dropped for it.
async fn update_names(
    store: &RedisStore,
    name: HandleHash,
    id: SessionId,
    answer: Vec<Value>,
) -> Result<(), StoreError> {
    let mut answer = answer.into_iter();
    check_code(decode(answer.next().unwrap_or(Value::Nil))?)?;
    let mut pipe = Pipeline::new();
    add_name(store, &mut pipe, name, id);
    for forgotten in answer {
        let name = read_name(&decode::<Vec<u8>>(forgotten)?)?;
        pipe.add_command(store.delete_name(name, id)).ignore();
    }
    store.connection.query_pipeline(&pipe).await
}

pub(super) async fn find_by_handle(
    store: &RedisStore,
    hash: HandleHash,
) -> Result<Option<Record>, StoreError> {
    let Some(id) = find_session(store, hash).await? else {
        return Ok(None);
    };
    let mut pipe = Pipeline::new();
    pipe.cmd("LRANGE").arg(store.keys.handles(id)).arg(0).arg(-1);
    pipe.cmd("HGETALL").arg(store.keys.row(id));
    let (handles, fields): (Vec<Vec<u8>>, Fields) = store.connection.query_pipeline(&pipe).await?;
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
    stale_before: Timestamp,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let (id, name) = (connection.session, connection.name);
    let mut call = connections_command(store, &PUT_CONNECTION, id);
    call.arg(lease_text(by)).arg(name.as_bytes()).arg(&connection.body);
    call.arg((
        connection.last_used.as_millis(),
        stale_before.as_millis(),
        RETAINED_CONNECTIONS_PER_SESSION,
    ));
    update_names(store, name, id, store.connection.query(&call).await?).await
}

/// Calls a script on the connections of a session.
pub(super) fn connections_command(store: &RedisStore, script: &Script, id: SessionId) -> Cmd {
    let keys = [store.keys.row(id), store.keys.connections(id), store.keys.uses(id)];
    script.call(&keys.each_ref().map(String::as_str))
}

/// Updates times of use. A connection that has moved is updated at its new session.
pub(super) async fn touch_connections(
    store: &RedisStore,
    used: &[(HandleHash, Timestamp)],
    by: Option<Lease>,
) -> Result<u64, StoreError> {
    let (by, mut touched) = (lease_text(by), 0);
    for some in used.chunks(BATCH_SIZE) {
        let mut pipe = Pipeline::new();
        for (name, _) in some {
            pipe.cmd("GET").arg(store.keys.name(*name));
        }
        let led: Vec<Option<String>> = store.connection.query_pipeline(&pipe).await?;
        let mut pipe = Pipeline::new();
        for ((name, at), id) in some.iter().zip(led) {
            // An unreadable entry is skipped; a call that needs it gets the error.
            let Some(id) = id.and_then(|id| id.parse().ok()) else { continue };
            let mut call = connections_command(store, &TOUCH_CONNECTION, id);
            call.arg(&by).arg(name.as_bytes()).arg(at.as_millis());
            pipe.add_command(call);
        }
        if !pipe.is_empty() {
            touched +=
                store.connection.query_pipeline::<Vec<u64>>(&pipe).await?.iter().sum::<u64>();
        }
    }
    Ok(touched)
}

pub(super) async fn load_connection(
    store: &RedisStore,
    name: HandleHash,
) -> Result<Option<Connection>, StoreError> {
    let Some(session) = find_session(store, name).await? else {
        return Ok(None);
    };
    let mut pipe = Pipeline::new();
    pipe.cmd("EXISTS").arg(store.keys.row(session));
    pipe.cmd("HGET").arg(store.keys.connections(session)).arg(name.as_bytes());
    pipe.cmd("ZSCORE").arg(store.keys.uses(session)).arg(name.as_bytes());
    let (there, body, used): (bool, Option<Vec<u8>>, Option<u64>) =
        store.connection.query_pipeline(&pipe).await?;
    let last_used = Timestamp::from_millis(used.unwrap_or_default());
    Ok(body.filter(|_| there).map(|body| Connection { name, session, last_used, body }))
}

pub(super) async fn remove_connection(
    store: &RedisStore,
    name: HandleHash,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let Some(id) = find_session(store, name).await? else {
        return Ok(());
    };
    let mut call = connections_command(store, &REMOVE_CONNECTION, id);
    call.arg(lease_text(by)).arg(name.as_bytes());
    match check_code(store.connection.query(&call).await?) {
        Ok(0) | Err(StoreError::Missing) => Ok(()),
        Ok(_) => store.connection.query(&store.delete_name(name, id)).await,
        Err(error) => Err(error),
    }
}
