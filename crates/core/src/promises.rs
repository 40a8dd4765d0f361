//! The contract of [`Store`] and [`Events`] as functions: each takes an empty store and panics where
//! a promise is broken.
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
//! stayput_core::store_promises!(open);
//! # fn main() {}
//! ```
//!
//! What `open` returns may be anything with a method `store()` that gives the `Arc<dyn Store>`, so that
//! it can keep a folder or a server alive beside it.

// These are tests, though not of this crate: to panic is how they say no.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc)]

mod events;
mod leases;
mod names;
mod records;
mod state;

use std::{sync::Arc, time::Duration};

use crate::{
    Agent, Events, Expiry, Holder, Key, Lease, Owner, Record, Store, StoreError, Timestamp,
};

pub use events::*;
pub use leases::*;
pub use names::*;
pub use records::*;
pub use state::*;

/// Gives the store under test, whatever else must live beside it.
pub trait Fixture {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;
}

impl Fixture for Arc<dyn Store> {
    fn store(&self) -> Arc<dyn Store> {
        self.clone()
    }
}

/// Gives the events under test, whatever else must live beside them.
pub trait EventsFixture {
    /// The events.
    fn events(&self) -> Arc<dyn Events>;
}

impl EventsFixture for Arc<dyn Events> {
    fn events(&self) -> Arc<dyn Events> {
        self.clone()
    }
}

/// Makes a test of every promise of a [`Store`], given the path of an `async fn` that opens an empty one.
#[macro_export]
macro_rules! store_promises {
    ($open:path) => {
        $crate::store_promises! { @each $open, Fixture, store;
            a_record_reads_back_as_it_was_inserted
            what_is_not_there_reads_as_nothing
            insert_refuses_a_taken_key_and_says_by_whom
            insert_refuses_a_taken_id
            owners_and_agents_have_keys_of_their_own
            of_many_inserts_of_one_key_one_wins
            replace_moves_the_revision_and_refuses_a_stale_one
            of_many_replaces_of_one_revision_one_wins
            replace_never_creates
            replace_refuses_what_was_used_since
            replace_never_changes_whose_it_is
            ending_frees_the_key_and_drops_the_state
            a_successor_inherits_the_generation
            reviving_takes_the_key_back
            touch_moves_time_forward_and_nothing_else
            touch_passes_over_what_it_may_not_touch
            remove_forgets_all_that_belongs_to_a_session
            list_pages_through_live_records_in_order
            due_lists_what_is_over_earliest_first
            purge_forgets_old_tombstones_alone
            several_handles_name_a_session
            the_oldest_of_too_many_handles_is_forgotten
            a_connection_lives_until_its_session_is_forgotten
            a_session_can_come_with_its_connection
            a_connection_can_lead_elsewhere
            of_many_connections_the_unused_are_forgotten
            a_connection_is_no_handle
            contents_are_kept_once
            values_read_back_as_they_were_put
            a_put_happens_only_on_what_it_expects
            revisions_of_values_grow_across_removal
            limits_are_named_with_their_sizes
            what_is_over_has_no_state
            concurrent_updates_lose_nothing
            concurrent_updates_of_other_keys_do_not_meet
            of_many_puts_at_the_limit_none_goes_past_it
            epochs_grow_and_holders_can_be_found
            a_live_holder_keeps_its_sessions
            a_dead_lease_is_dead_for_good
            leaving_frees_at_once
            a_late_holder_cannot_write
            nobody_writes_what_somebody_holds
            release_frees_only_ones_own
            what_is_over_is_held_by_nobody
            insert_can_claim
            of_many_claims_one_wins
        }
    };
    (@each $open:path, $fixture:ident, $get:ident; $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                use $crate::promises::$fixture as _;
                let fixture = $open().await;
                $crate::promises::$promise(fixture.$get()).await;
            }
        )*
    };
}

/// Makes a test of every promise of [`Events`], given the path of an `async fn` that opens empty ones.
#[macro_export]
macro_rules! events_promises {
    ($open:path) => {
        $crate::store_promises! { @each $open, EventsFixture, events;
            events_are_read_in_order_after_a_place
            topics_are_kept_apart
            trimmed_events_are_gone_and_numbers_go_on
            forgetting_a_session_forgets_its_topics_alone
            concurrent_events_get_numbers_of_their_own
        }
    };
}

/// A moment to begin with. Nothing depends on which.
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

fn unnamed() -> Record {
    Record::new(owner("ann"), Expiry::default(), NOW)
}

fn named(name: &str) -> Record {
    unnamed().keyed(Agent::none(), key(name))
}

async fn inserted(store: &Arc<dyn Store>, record: Record) -> Record {
    let generation = store.insert(&record, None).await.unwrap();
    Record { generation, ..record }
}

async fn loaded(store: &Arc<dyn Store>, record: &Record) -> Record {
    store.load(record.id).await.unwrap().unwrap()
}

/// A lease that outlives every test.
async fn lease(store: &Arc<dyn Store>) -> Lease {
    store.hold(&Holder::unreachable(), Duration::from_secs(3_600)).await.unwrap()
}

/// What a lease is worth is judged by the store's clock, so a test can only wait for its end.
async fn until_dead(store: &Arc<dyn Store>, lease: Lease) {
    for _ in 0..2_000 {
        if store.holder(lease).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a lease of a moment lives for ten seconds");
}

/// Runs `work` for 0 to `count` in as many tasks at once.
#[allow(clippy::disallowed_methods)] // These tasks belong to no session, and all are awaited.
async fn at_once<F, T>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
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

fn one_winner<T: std::fmt::Debug>(results: &[Result<T, StoreError>]) -> usize {
    let winners: Vec<_> = (0..results.len()).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1, "one of them wins: {results:?}");
    winners[0]
}
