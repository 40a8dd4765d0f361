//! The PostgreSQL store keeps every promise of the contract (R061), and what is its own to promise.

#![cfg(feature = "postgres")]
// A test stops at the first surprise, and so does what it is made of.
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

use stayput_core::promises::Fixture;
use stayput_testkit::{fixture::Opened, postgres::PostgresUrl};

async fn open() -> Opened<PostgresUrl> {
    let url = PostgresUrl::empty();
    Opened::at(&url.url.clone(), url).await
}

stayput_core::store_promises!(open);
stayput_core::events_promises!(open);

#[test]
fn postgres_follows_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(open());
    stayput_testkit::stories::one_by_one(&runtime, &opened.store(), 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_adds_up_when_all_act_at_once() {
    stayput_testkit::stories::all_at_once(open().await.store(), 8, 60).await;
}
