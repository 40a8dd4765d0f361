//! Conformance of the PostgreSQL store (R061), and tests of its own behaviour.

#![cfg(feature = "postgres")]
// Tests and their helpers fail by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "postgres/access.rs"]
mod access;
#[path = "postgres/kit.rs"]
mod kit;
#[path = "postgres/outage.rs"]
mod outage;
#[path = "postgres/races.rs"]
mod races;
#[path = "postgres/schema.rs"]
mod schema;

use stayput_core::conformance::Fixture;
use stayput_testkit::{fixture::Opened, postgres::PostgresUrl};

async fn open() -> Opened<PostgresUrl> {
    let url = PostgresUrl::empty();
    Opened::at(&url.url.clone(), url).await
}

stayput_core::store_conformance!(open);
stayput_core::event_log_conformance!(open);

#[test]
fn postgres_store_matches_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(open());
    stayput_testkit::stories::one_by_one(&runtime, &opened.store(), 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_store_is_consistent_under_concurrency() {
    stayput_testkit::stories::all_at_once(open().await.store(), 8, 60).await;
}
