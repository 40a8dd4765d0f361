//! Opened database for the store conformance tests.

use std::sync::Arc;

use stayput_core::{
    EventLog, Store,
    conformance::{EventLogFixture, Fixture},
};
use stayput_stores::Database;

/// Opened database with the folder or server that must live as long.
#[derive(Debug)]
pub struct Opened<K> {
    /// Database.
    pub database: Database,
    _keep: K,
}

impl<K> Opened<K> {
    /// Opens the database at `url`. `keep` is dropped with it.
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
