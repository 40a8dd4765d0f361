//! Handles and connections: names that lead to sessions.
//!
//! A name is entered into its session first and into the index last, and the session decides: a name
//! in the index that its session does not know leads nowhere. The session knows its handles and its
//! connections apart, so neither can be used as the other.

use ::redis::{Pipeline, Value, cmd};
use stayput_core::{
    Connection, HANDLES_PER_SESSION, HandleHash, Lease, Record, SessionId, StoreError,
};

use super::{
    REDIS, RedisStore, allowed,
    index::read_name,
    lease_text,
    link::answer,
    row::{Fields, Row},
    scripts::{ADD_HANDLE, PUT_CONNECTION, REMOVE_CONNECTION},
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
    let mut said = store.link.one::<Vec<Value>>(&call).await?.into_iter();
    allowed(answer(said.next().unwrap_or(Value::Nil))?)?;
    let mut pipe = Pipeline::new();
    pipe.cmd("SET").arg(store.keys.name(hash)).arg(id.to_string()).ignore();
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
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let (id, name) = (connection.session, connection.name);
    let mut call = PUT_CONNECTION.call(&[&store.keys.row(id), &store.keys.connections(id)]);
    call.arg(lease_text(by)).arg(name.as_bytes()).arg(&connection.body);
    allowed(store.link.one(&call).await?)?;
    store.link.one(cmd("SET").arg(store.keys.name(name)).arg(id.to_string())).await
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
    let (there, body): (bool, Option<Vec<u8>>) = store.link.many(&pipe).await?;
    Ok(body.filter(|_| there).map(|body| Connection { name, session, body }))
}

pub(super) async fn remove_connection(
    store: &RedisStore,
    name: HandleHash,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let Some(id) = named(store, name).await? else {
        return Ok(());
    };
    let mut call = REMOVE_CONNECTION.call(&[&store.keys.row(id), &store.keys.connections(id)]);
    call.arg(lease_text(by)).arg(name.as_bytes());
    match allowed(store.link.one(&call).await?) {
        Ok(0) | Err(StoreError::Missing) => Ok(()),
        Ok(_) => store.link.one(&store.drop_name(name, id)).await,
        Err(error) => Err(error),
    }
}
