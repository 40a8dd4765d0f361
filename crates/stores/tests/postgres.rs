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

use std::sync::Arc;

use stayput_core::{
    Events, Store,
    promises::{EventsFixture, Fixture},
};
use stayput_stores::Database;
use stayput_testkit::postgres::PostgresUrl;

/// A database on a server that stays with it.
struct Opened {
    database: Database,
    _url: PostgresUrl,
}

impl Fixture for Opened {
    fn store(&self) -> Arc<dyn Store> {
        self.database.store.clone()
    }
}

impl EventsFixture for Opened {
    fn events(&self) -> Arc<dyn Events> {
        self.database.events.clone()
    }
}

async fn open() -> Opened {
    let url = PostgresUrl::empty();
    let database = stayput_stores::open(&url.url).await.unwrap();
    Opened { database, _url: url }
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
