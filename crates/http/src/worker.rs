//! Worker thread that serves whole calls.

use std::cell::RefCell;

use tokio::runtime::Handle;

thread_local! {
    static CURRENT: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Thread with its own runtime, to which calls are bound: connections and child pipes that are created for a
/// call on this thread belong to its runtime. Such a call needs no wake-up of or by another thread.
///
/// Without workers, all of them belong to one shared runtime.
#[derive(Clone, Debug)]
pub struct Worker {
    number: usize,
    runtime: Handle,
}

impl Worker {
    /// Creates the worker with this number, starting at 0. Its runtime must run until all links are closed.
    #[must_use]
    pub fn new(number: usize, runtime: Handle) -> Self {
        Self { number, runtime }
    }

    /// Registers the current thread as this worker. It must be the thread that drives the runtime.
    pub fn register(self) {
        CURRENT.with_borrow_mut(|current| *current = Some(self));
    }

    /// Number of the worker on this thread, starting at 1; 0 if there is none.
    pub(crate) fn current_number() -> usize {
        CURRENT.with_borrow(|current| current.as_ref().map_or(0, |worker| worker.number + 1))
    }

    /// Returns whether the current thread is a worker.
    #[must_use]
    pub fn is_current() -> bool {
        CURRENT.with_borrow(Option::is_some)
    }

    /// Returns the runtime of the worker on this thread, or `shared` if there is none.
    #[must_use]
    pub fn runtime_or(shared: &Handle) -> Handle {
        CURRENT.with_borrow(|current| {
            current.as_ref().map_or(shared, |worker| &worker.runtime).clone()
        })
    }
}
