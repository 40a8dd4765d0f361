//! Conformance of the Redis store (R061) on a server and on a node of a cluster, and tests of its own
//! behaviour.

#![cfg(feature = "redis")]
// Tests and their helpers fail by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "redis/access.rs"]
mod access;
#[path = "redis/crash.rs"]
mod crash;
#[path = "redis/kit.rs"]
mod kit;
#[path = "redis/outage.rs"]
mod outage;
#[path = "redis/races.rs"]
mod races;

use stayput_core::conformance::Fixture;
use stayput_testkit::{fixture::Opened, redis::RedisUrl};

async fn open() -> Opened<RedisUrl> {
    let url = RedisUrl::empty();
    Opened::at(&url.url.clone(), url).await
}

stayput_core::store_conformance!(open);
stayput_core::event_log_conformance!(open);

#[test]
fn redis_store_matches_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(open());
    stayput_testkit::stories::one_by_one(&runtime, &opened.store(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_store_is_consistent_under_concurrency() {
    stayput_testkit::stories::all_at_once(open().await.store(), 8, 60).await;
}

/// A node of a cluster refuses a command on two slots.
mod cluster {
    use super::{Opened, RedisUrl};

    async fn open() -> Opened<RedisUrl> {
        let url = RedisUrl::empty_on_a_cluster();
        Opened::at(&url.url.clone(), url).await
    }

    stayput_core::store_conformance!(open);
    stayput_core::event_log_conformance!(open);
}
