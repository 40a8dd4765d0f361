//! Random stories for stores.
//!
//! [`one_by_one`] runs a story step by step on a store and on the model and compares every answer. [`all_at_once`]
//! lets several tasks of two holders act concurrently and checks what must hold in any order.

mod concurrent;
mod sequential;

use std::sync::Arc;

use proptest::test_runner::{Config, TestError, TestRunner};
use stayput_core::Store;
use tokio::runtime::Runtime;

pub use concurrent::all_at_once;

/// Runs `cases` random stories on the store, each compared with the model. A story that fails is shrunk.
///
/// The store is emptied before each story.
pub fn one_by_one(runtime: &Runtime, store: &Arc<dyn Store>, cases: u32) {
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let told = TestRunner::new(config).run(&sequential::story(), |story| {
        runtime.block_on(sequential::tell(store, &story));
        Ok(())
    });
    match told {
        Ok(()) => {}
        Err(TestError::Fail(why, story)) => panic!("{why}\nin the story {story:#?}"),
        Err(other) => panic!("{other}"),
    }
}
