//! Creation and migration of the schema.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use tokio::time::timeout;
use tokio_postgres::{Error, GenericClient};

use super::{
    STORE,
    pool::{CALL_TIMEOUT, cause, timed_out},
};
use crate::StoreOpenError;

/// Oldest schema that can be migrated.
const OLDEST_SCHEMA: i64 = 3;

/// Migrations from [`OLDEST_SCHEMA`] on, oldest first. A released one is never edited.
const MIGRATIONS: &[&str] = &[concat!(include_str!("tables.sql"), include_str!("functions.sql"))];

/// Schema that this program writes.
const SCHEMA: i64 = OLDEST_SCHEMA + MIGRATIONS.len() as i64 - 1;

/// Maximum time of a migration, including the wait for another process that runs it.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of the advisory lock: "stayput" in ASCII, so that no other program uses it.
const LOCK: i64 = 0x73_74_61_79_70_75_74;

/// Migrates the schema to the newest version, and checks that the database can be used.
pub(super) async fn migrate(pool: &Pool) -> Result<(), StoreOpenError> {
    let late = |_| StoreOpenError::unreachable(STORE, &timed_out());
    let unreachable = |error: Error| StoreOpenError::unreachable(STORE, &error);
    let client = timeout(CALL_TIMEOUT, pool.get()).await.map_err(late)?;
    let mut client = client.map_err(|error| match cause(&error) {
        Some(cause) => StoreOpenError::unreachable(STORE, cause),
        None => StoreOpenError::unreachable(STORE, &error),
    })?;
    let found = timeout(CALL_TIMEOUT, encoding_and_version(&client)).await.map_err(late)?;
    let (encoding, mut found) = found.map_err(unreachable)?;
    if encoding != "UTF8" {
        return Err(StoreOpenError::Unreachable {
            store: STORE,
            problem: format!("the encoding of the database is {encoding}, and must be UTF8"),
        });
    }
    if found != 0 && found < OLDEST_SCHEMA {
        return Err(StoreOpenError::OlderSchema { store: STORE, found, oldest: OLDEST_SCHEMA });
    }
    while found < SCHEMA {
        let version = timeout(MIGRATION_TIMEOUT, step(&mut client)).await.map_err(late)?;
        found = version.map_err(unreachable)?;
    }
    if found > SCHEMA {
        return Err(StoreOpenError::NewerSchema { store: STORE, found, known: SCHEMA });
    }
    Ok(())
}

/// Reads the encoding of the database and the version of its schema; zero if there is none.
async fn encoding_and_version(client: &ClientWrapper) -> Result<(String, i64), Error> {
    let query =
        "select current_setting('server_encoding'), to_regclass('stayput_schema') is not null";
    let row = client.query_one(query, &[]).await?;
    let found = if row.try_get(1)? { version(&**client).await? } else { 0 };
    Ok((row.try_get(0)?, found))
}

async fn version(client: &impl GenericClient) -> Result<i64, Error> {
    let query = "select coalesce(max(version), 0) from stayput_schema";
    client.query_one(query, &[]).await?.try_get(0)
}

/// Runs one migration, unless another process ran it meanwhile. Returns the version after it.
async fn step(client: &mut ClientWrapper) -> Result<i64, Error> {
    let transaction = client.transaction().await?;
    let lock = format!(
        "set local statement_timeout = '{}s'; \
         select pg_advisory_xact_lock({LOCK}); \
         create table if not exists stayput_schema ( \
             version bigint primary key, \
             since timestamptz not null default now() \
         )",
        MIGRATION_TIMEOUT.as_secs()
    );
    transaction.batch_execute(&lock).await?;
    let mut found = version(&*transaction).await?;
    let next = if found == 0 { 0 } else { found - OLDEST_SCHEMA + 1 };
    if let Some(migration) = usize::try_from(next).ok().and_then(|next| MIGRATIONS.get(next)) {
        transaction.batch_execute(migration).await?;
        found = OLDEST_SCHEMA + next;
        let insert = format!("insert into stayput_schema (version) values ({found})");
        transaction.batch_execute(&insert).await?;
    }
    transaction.commit().await?;
    Ok(found)
}
