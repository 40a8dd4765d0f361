//! The store and the events in memory keep every promise of the contract (R038–R041).

use std::sync::Arc;

use stayput_core::{Events, MemoryEvents, MemoryStore, Store, SystemClock};

async fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

async fn events() -> Arc<dyn Events> {
    Arc::new(MemoryEvents::new())
}

stayput_core::store_promises!(store);
stayput_core::events_promises!(events);
