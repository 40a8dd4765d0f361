//! An opened database, for the promises.

use std::sync::Arc;

use stayput_core::{
    EventLog, Store,
    conformance::{EventLogFixture, Fixture},
};
use stayput_stores::Database;

/// An opened database, and what must live as long as it: a folder, a server.
#[derive(Debug)]
pub struct Opened<K> {
    /// The database.
    pub database: Database,
    _keep: K,
}

impl<K> Opened<K> {
    /// Opens the database at `url`, which `keep` keeps there.
    pub async fn at(url: &str, keep: K) -> Self {
        Self { database: stayput_stores::open(url).await.unwrap(), _keep: keep }
    }
}

impl<K> Fixture for Opened<K> {
    fn store(&self) -> Arc<dyn Store> {
        self.database.store.clone()
    }
}

impl<K> EventLogFixture for Opened<K> {
    fn events(&self) -> Arc<dyn EventLog> {
        self.database.events.clone()
    }
}
