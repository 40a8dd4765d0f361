//! Conformance of the memory store and the memory event log (R038–R041).

use std::sync::Arc;

use stayput_core::{EventLog, MemoryEventLog, MemoryStore, Store, SystemClock};

async fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

async fn event_log() -> Arc<dyn EventLog> {
    Arc::new(MemoryEventLog::new())
}

stayput_core::store_conformance!(store);
stayput_core::event_log_conformance!(event_log);
