//! Where Stayput's sessions are kept.
//!
//! [`open`] takes a URL and gives a [`Database`]: a [`Store`] for sessions and [`Events`] for what a
//! client may have missed. Every store keeps the same promises, which are functions in
//! `stayput_core::promises`; the tests of this crate run all of them on the real databases.
//!
//! | URL | what it is | survives |
//! |---|---|---|
//! | `memory:` | this process | nothing |
//! | `sqlite:PATH` | one file on this machine; the default of the gateway | restart, `kill -9`, loss of power |
//! | `postgres://USER:PASSWORD@HOST/DATABASE` | PostgreSQL, tested with 15 | what PostgreSQL survives |
//! | `redis://HOST:PORT/DB`, `rediss://…` | Redis, tested with 7.0, or Valkey, which has the same commands | what the server persists, see [`RedisStore`] |
//!
//! Schemas are made and moved forward by themselves when a store is opened; a schema that is newer
//! than the program is refused. Each kind is a feature (`sqlite`, `postgres`, `redis`; all are on by
//! default), and no driver's type is in any signature.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), stayput_stores::OpenError> {
//! let database = stayput_stores::open("memory:").await?;
//! assert!(database.store.list(None, None, 10).await.unwrap().is_empty());
//! # Ok(())
//! # }
//! ```

mod address;
// Each store uses a part of it.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres", feature = "redis")), allow(dead_code))]
mod failure;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod row;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use stayput_core::{Events, MemoryEvents, MemoryStore, Store, SystemClock};

pub use address::{Address, AddressError, PostgresAddress, RedisAddress};
pub use failure::OpenError;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;

/// An opened database.
#[derive(Clone, Debug)]
pub struct Database {
    /// Where sessions are kept.
    pub store: Arc<dyn Store>,
    /// Where events are kept.
    pub events: Arc<dyn Events>,
}

impl Database {
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    fn of<S: Store + Events>(store: S) -> Self {
        let store = Arc::new(store);
        Self { store: store.clone(), events: store }
    }
}

/// Opens the database that a URL names, and makes or moves its schema forward.
///
/// # Errors
/// [`OpenError`] says what is wrong with the URL, the database or its schema. It never repeats a
/// password.
pub async fn open(url: &str) -> Result<Database, OpenError> {
    match url.parse()? {
        Address::Memory => Ok(Database {
            store: Arc::new(MemoryStore::new(Arc::new(SystemClock))),
            events: Arc::new(MemoryEvents::new()),
        }),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Ok(Database::of(SqliteStore::open(&path).await?)),
        #[cfg(feature = "postgres")]
        Address::Postgres(address) => Ok(Database::of(PostgresStore::open(&address).await?)),
        #[cfg(feature = "redis")]
        Address::Redis(address) => Ok(Database::of(RedisStore::open(&address).await?)),
        #[allow(unreachable_patterns)] // with all features
        address => Err(OpenError::NotBuilt { feature: address.kind() }),
    }
}
