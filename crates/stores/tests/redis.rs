//! The Redis store keeps every promise of the contract (R061), on a server and on a node of a cluster,
//! and what is its own to promise.

#![cfg(feature = "redis")]
// A test stops at the first surprise, and so does what it is made of.
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

use stayput_core::promises::Fixture;
use stayput_testkit::{fixture::Opened, redis::RedisUrl};

async fn open() -> Opened<RedisUrl> {
    let url = RedisUrl::empty();
    Opened::at(&url.url.clone(), url).await
}

stayput_core::store_promises!(open);
stayput_core::events_promises!(open);

#[test]
fn redis_follows_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(open());
    stayput_testkit::stories::one_by_one(&runtime, &opened.store(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_adds_up_when_all_act_at_once() {
    stayput_testkit::stories::all_at_once(open().await.store(), 8, 60).await;
}

/// A node of a cluster refuses whatever touches two slots.
mod cluster {
    use super::{Opened, RedisUrl};

    async fn open() -> Opened<RedisUrl> {
        let url = RedisUrl::empty_on_a_cluster();
        Opened::at(&url.url.clone(), url).await
    }

    stayput_core::store_promises!(open);
    stayput_core::events_promises!(open);
}
