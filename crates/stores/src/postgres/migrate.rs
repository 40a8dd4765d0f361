//! The schema: made and moved forward by whoever opens the database first.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use tokio::time::timeout;
use tokio_postgres::{Error, GenericClient};

use super::{
    STORE,
    pool::{PATIENCE, cause, late},
};
use crate::OpenError;

/// Every change of the schema, oldest first. What was released is never edited.
const MIGRATIONS: &[&str] = &[
    concat!(include_str!("1_tables.sql"), include_str!("1_functions.sql")),
    include_str!("2_used.sql"),
];

/// How long a change of the schema may take, the wait for another process that makes it included.
const MOVE: Duration = Duration::from_secs(60);

/// "stayput" in ASCII: programs of other kinds do not take this lock.
const LOCK: i64 = 0x73_74_61_79_70_75_74;

/// Moves the schema to the newest version, and proves on the way that the database can be used.
pub(super) async fn migrate(pool: &Pool) -> Result<(), OpenError> {
    let late = |_| OpenError::unreachable(STORE, &late());
    let unreachable = |error: Error| OpenError::unreachable(STORE, &error);
    let client = timeout(PATIENCE, pool.get()).await.map_err(late)?;
    let mut client = client.map_err(|error| match cause(&error) {
        Some(cause) => OpenError::unreachable(STORE, cause),
        None => OpenError::unreachable(STORE, &error),
    })?;
    let found = timeout(PATIENCE, look(&client)).await.map_err(late)?;
    let (encoding, found) = found.map_err(unreachable)?;
    if encoding != "UTF8" {
        return Err(OpenError::Unreachable {
            store: STORE,
            problem: format!("the encoding of the database is {encoding}, and must be UTF8"),
        });
    }
    let known = MIGRATIONS.len();
    let mut found = found;
    while found < known {
        let moved = timeout(MOVE, step(&mut client)).await.map_err(late)?;
        found = moved.map_err(unreachable)?;
    }
    if found > known {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let (found, known) = (number(found), number(known));
        return Err(OpenError::NewerSchema { store: STORE, found, known });
    }
    Ok(())
}

/// The encoding of the database and the version of its schema, zero if there is none.
async fn look(client: &ClientWrapper) -> Result<(String, usize), Error> {
    let ask =
        "select current_setting('server_encoding'), to_regclass('stayput_schema') is not null";
    let row = client.query_one(ask, &[]).await?;
    let found = if row.try_get(1)? { version(&**client).await? } else { 0 };
    Ok((row.try_get(0)?, found))
}

async fn version(client: &impl GenericClient) -> Result<usize, Error> {
    let ask = "select coalesce(max(version), 0) from stayput_schema";
    let version: i64 = client.query_one(ask, &[]).await?.try_get(0)?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Makes one change, if nobody else made it meanwhile; returns the version that is there now.
async fn step(client: &mut ClientWrapper) -> Result<usize, Error> {
    let transaction = client.transaction().await?;
    let alone = format!(
        "set local statement_timeout = '{}s'; \
         select pg_advisory_xact_lock({LOCK}); \
         create table if not exists stayput_schema ( \
             version bigint primary key, \
             since timestamptz not null default now() \
         )",
        MOVE.as_secs()
    );
    transaction.batch_execute(&alone).await?;
    let mut found = version(&*transaction).await?;
    if let Some(migration) = MIGRATIONS.get(found) {
        transaction.batch_execute(migration).await?;
        found += 1;
        let note = format!("insert into stayput_schema (version) values ({found})");
        transaction.batch_execute(&note).await?;
    }
    transaction.commit().await?;
    Ok(found)
}
