//! Worker thread that serves whole calls.

use std::cell::RefCell;

use tokio::runtime::Handle;

thread_local! {
    static HERE: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

/// Thread with its own runtime, to which calls are bound: connections and child pipes that are created for a
/// call on this thread belong to its runtime. Such a call needs no wake-up of or by another thread.
///
/// Without workers, all of them belong to the runtime of [`Links`](crate::Links).
#[derive(Clone, Debug)]
pub struct Lane {
    number: usize,
    runtime: Handle,
}

impl Lane {
    /// Creates the worker with this number, starting at 0. Its runtime must run until all links are closed.
    #[must_use]
    pub fn new(number: usize, runtime: Handle) -> Self {
        Self { number, runtime }
    }

    /// Registers the current thread as this worker. It must be the thread that drives the runtime.
    pub fn begin(self) {
        HERE.with_borrow_mut(|here| *here = Some(self));
    }
}

/// Number of the worker on this thread, starting at 1; 0 if there is none.
pub(crate) fn number() -> usize {
    HERE.with_borrow(|here| here.as_ref().map_or(0, |lane| lane.number + 1))
}

/// Whether this thread is a worker.
pub(crate) fn is_here() -> bool {
    HERE.with_borrow(|here| here.is_some())
}

/// Returns the runtime of the worker on this thread, or `there` if there is none.
pub(crate) fn runtime(there: &Handle) -> Handle {
    HERE.with_borrow(|here| here.as_ref().map_or(there, |lane| &lane.runtime).clone())
}
