//! Memory store under random operations, compared with a model.

use std::sync::Arc;

use stayput_core::{MemoryStore, Store, SystemClock};
use stayput_testkit::stories;

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

#[test]
fn memory_store_matches_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    stories::one_by_one(&runtime, &store(), 512);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_is_consistent_under_concurrency() {
    stories::all_at_once(store(), 8, 200).await;
}
