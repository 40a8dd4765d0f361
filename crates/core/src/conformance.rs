//! Conformance tests of [`Store`] and [`EventLog`] as functions. Each takes an empty store and
//! panics where the store breaks the contract.
//!
//! A store of your own runs them all, one test each:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use stayput_core::{MemoryStore, Store, SystemClock};
//! // in tests/my_store.rs
//! async fn open() -> Arc<dyn Store> {
//!     Arc::new(MemoryStore::new(Arc::new(SystemClock))) // yours
//! }
//! stayput_core::store_conformance!(open);
//! # fn main() {}
//! ```
//!
//! `open` may return any type with a method `store()` that returns the `Arc<dyn Store>`, so that it
//! can keep a directory or a server alive.

// These are tests of other crates: a panic is how they fail.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc)]

mod events;
mod handles;
mod leases;
mod records;
mod state;

use std::{sync::Arc, time::Duration};

use crate::{
    Agent, EventLog, Expiry, Holder, Key, Lease, Owner, Record, Store, StoreError, Timestamp,
};

pub use events::*;
pub use handles::*;
pub use leases::*;
pub use records::*;
pub use state::*;

/// Owner of the store under test and of the resources it needs.
pub trait Fixture {
    /// Returns the store.
    fn store(&self) -> Arc<dyn Store>;
}

impl Fixture for Arc<dyn Store> {
    fn store(&self) -> Arc<dyn Store> {
        self.clone()
    }
}

/// Owner of the event log under test and of the resources it needs.
pub trait EventLogFixture {
    /// Returns the event log.
    fn events(&self) -> Arc<dyn EventLog>;
}

impl EventLogFixture for Arc<dyn EventLog> {
    fn events(&self) -> Arc<dyn EventLog> {
        self.clone()
    }
}

/// Defines one test per function of the [`Store`] contract. Takes the path of an `async fn` that
/// opens an empty store.
#[macro_export]
macro_rules! store_conformance {
    ($open:path) => {
        $crate::store_conformance! { @each $open, Fixture, store;
            insert_stores_every_field
            missing_items_read_as_none
            insert_refuses_a_taken_key_and_names_its_session
            insert_refuses_a_taken_id
            keys_are_separate_per_owner_and_agent
            concurrent_inserts_of_one_key_create_one_session
            replace_raises_the_revision_and_refuses_a_stale_one
            concurrent_replaces_of_one_revision_succeed_once
            replace_refuses_a_missing_record
            replace_refuses_a_session_used_since
            replace_keeps_owner_agent_key_and_last_use
            end_frees_the_key_and_drops_the_state
            successor_gets_a_higher_generation
            revival_takes_the_key_back
            touch_moves_only_the_time_of_use_forward
            touch_skips_ended_missing_and_foreign_sessions
            remove_deletes_everything_of_a_session
            list_returns_live_records_in_pages_by_id
            list_due_returns_expired_sessions_by_deadline
            purge_removes_old_tombstones_only
            session_is_found_by_every_handle
            oldest_handle_above_the_limit_is_removed
            connection_outlives_the_end_of_its_session
            insert_stores_session_and_connection_together
            connection_can_move_to_another_session
            stale_connections_above_the_limit_are_removed
            connection_name_is_not_a_handle

            values_read_back_unchanged
            write_requires_the_expected_value
            revisions_of_values_grow_across_removal
            write_above_a_limit_is_refused_with_limit_and_size
            ended_session_has_no_state
            concurrent_updates_lose_nothing
            concurrent_writes_to_different_keys_do_not_conflict
            concurrent_writes_do_not_exceed_the_limit
            epochs_grow_and_leases_name_their_holder
            claim_of_a_held_session_is_refused
            expired_lease_cannot_be_renewed
            released_lease_frees_its_sessions_at_once
            late_holder_cannot_write
            held_session_refuses_writers_without_a_lease
            release_by_another_lease_has_no_effect
            ended_session_has_no_claim
            insert_claims_the_session_for_its_holder
            concurrent_claims_succeed_once
        }
    };
    (@each $open:path, $fixture:ident, $get:ident; $($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                use $crate::conformance::$fixture as _;
                let fixture = $open().await;
                $crate::conformance::$test(fixture.$get()).await;
            }
        )*
    };
}

/// Defines one test per function of the [`EventLog`] contract. Takes the path of an `async fn` that
/// opens an empty log.
#[macro_export]
macro_rules! event_log_conformance {
    ($open:path) => {
        $crate::store_conformance! { @each $open, EventLogFixture, events;
            events_are_read_in_order_after_a_number
            topics_are_separate
            trim_removes_events_and_keeps_counting
            remove_session_removes_its_topics_only
            concurrent_appends_get_distinct_numbers
        }
    };
}

/// Start time of the tests. Its value does not matter.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

const MINUTE: Duration = Duration::from_secs(60);

fn later(minutes: u32) -> Timestamp {
    NOW.after(MINUTE * minutes)
}

fn owner(name: &str) -> Owner {
    Owner::verified("https://id.example.com/ä", name).unwrap()
}

fn key(name: &str) -> Key {
    Key::named(name).unwrap()
}

fn record_without_key() -> Record {
    Record::new(owner("ann"), Expiry::default(), NOW)
}

fn record_with_key(name: &str) -> Record {
    record_without_key().with_key(Agent::none(), key(name))
}

async fn insert(store: &Arc<dyn Store>, record: Record) -> Record {
    let generation = store.insert(&record, None).await.unwrap();
    Record { generation, ..record }
}

async fn load(store: &Arc<dyn Store>, record: &Record) -> Record {
    store.load(record.id).await.unwrap().unwrap()
}

/// Acquires a lease that outlives every test.
async fn acquire_lease(store: &Arc<dyn Store>) -> Lease {
    store.acquire_lease(&Holder::unreachable(), Duration::from_secs(3_600)).await.unwrap()
}

/// Waits until a lease has expired. The store's clock decides that, so a test can only wait.
async fn wait_until_expired(store: &Arc<dyn Store>, lease: Lease) {
    for _ in 0..2_000 {
        if store.lease_holder(lease).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a lease of one millisecond is still valid after ten seconds");
}

/// Runs `work` for 0 to `count` in as many concurrent tasks.
#[allow(clippy::disallowed_methods)] // These tasks belong to no session, and all are awaited.
async fn run_concurrently<F, T>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(work(n))).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}

macro_rules! assert_fails {
    ($result:expr, $error:pat) => {
        match $result {
            Err($error) => {}
            other => panic!("expected {}, got {other:?}", stringify!($error)),
        }
    };
}
use assert_fails;

fn assert_one_winner<T: std::fmt::Debug>(results: &[Result<T, StoreError>]) -> usize {
    let winners: Vec<_> = (0..results.len()).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1, "exactly one must win: {results:?}");
    winners[0]
}
