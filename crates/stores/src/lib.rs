//! Stores for Stayput's sessions.
//!
//! [`open`] takes a URL and returns a [`Database`]: a [`Store`] for sessions and an [`EventLog`]
//! for events that a client may have missed. Every store fulfils the same contract; its tests are
//! the functions in `stayput_core::conformance`, and this crate runs all of them on the real
//! databases.
//!
//! | URL | what it is | survives |
//! |---|---|---|
//! | `memory:` | this process | nothing |
//! | `sqlite:PATH` | one file on this machine; the default of the gateway | restart, `kill -9`, loss of power |
//! | `postgres://USER:PASSWORD@HOST/DATABASE` | PostgreSQL, tested with 15 | what PostgreSQL survives |
//! | `redis://HOST:PORT/DB`, `rediss://…` | Redis, tested with 7.0, or Valkey, which has the same commands | what the server persists, see [`RedisStore`] |
//!
//! Opening a store creates or migrates its schema. A schema that is newer than the program, or too
//! old for it, is refused. Each kind is a feature (`sqlite`, `postgres`, `redis`; all are on by
//! default), and no type of a driver is in a public signature.
//!
//! | file or folder | content |
//! |---|---|
//! | `address.rs` | URLs of stores |
//! | `sqlite/` | SQLite: statements, and the threads that run them |
//! | `postgres/` | PostgreSQL: schema, statements, pool, conversion of rows |
//! | `redis/` | Redis and Valkey: keys, scripts, indexes, connection |
//! | `row.rs`, `error.rs` | record as columns; errors, also those of the drivers |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), stayput_stores::StoreOpenError> {
//! let database = stayput_stores::open("memory:").await?;
//! assert!(database.store.list(None, None, 10).await.unwrap().is_empty());
//! # Ok(())
//! # }
//! ```

mod address;
// Each store uses a part of it.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres", feature = "redis")), allow(dead_code))]
mod error;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod row;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use stayput_core::{EventLog, MemoryEventLog, MemoryStore, Store, SystemClock};

pub use address::{Address, AddressError, PostgresAddress, RedisAddress};
pub use error::StoreOpenError;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{DatabaseFile, SqliteStore, lock_file};

/// Opened database.
#[derive(Clone, Debug)]
pub struct Database {
    /// Sessions.
    pub store: Arc<dyn Store>,
    /// Events.
    pub events: Arc<dyn EventLog>,
    /// File of the database, if it is one that can be watched.
    #[cfg(feature = "sqlite")]
    pub file: Option<Arc<DatabaseFile>>,
    /// Facts about the database that its operator should know, as sentences for a log.
    pub warnings: Vec<String>,
}

impl Database {
    fn new(store: Arc<dyn Store>, events: Arc<dyn EventLog>) -> Self {
        Self {
            store,
            events,
            #[cfg(feature = "sqlite")]
            file: None,
            warnings: Vec::new(),
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    fn from_store<S: Store + EventLog>(store: S) -> Self {
        let store = Arc::new(store);
        Self::new(store.clone(), store)
    }
}

/// Opens the database of a URL, and creates or migrates its schema.
///
/// # Errors
/// [`StoreOpenError`] with the problem of the URL, the database or its schema. It never repeats a
/// password.
pub async fn open(url: &str) -> Result<Database, StoreOpenError> {
    match url.parse()? {
        Address::Memory => {
            let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
            Ok(Database::new(store, Arc::new(MemoryEventLog::new())))
        }
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            let mut store = SqliteStore::open(&path).await?;
            let (file, warnings) = (Some(store.file().clone()), store.take_warnings());
            Ok(Database { file, warnings, ..Database::from_store(store) })
        }
        #[cfg(feature = "postgres")]
        Address::Postgres(address) => {
            Ok(Database::from_store(PostgresStore::open(&address).await?))
        }
        #[cfg(feature = "redis")]
        Address::Redis(address) => {
            let store = RedisStore::open(&address).await?;
            let warnings = store.persistence_warning().await.into_iter().collect();
            Ok(Database { warnings, ..Database::from_store(store) })
        }
        #[allow(unreachable_patterns)] // with all features
        address => Err(StoreOpenError::NotBuilt { feature: address.kind() }),
    }
}
