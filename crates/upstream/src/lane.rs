//! A thread that serves calls from one end to the other.

use std::cell::RefCell;

use tokio::runtime::Handle;

thread_local! {
    static HERE: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

/// A thread with a runtime of its own, on which calls stay: connections that are made for a call from here, and
/// the pipes of a child that is started for one, belong to this runtime. Nobody is woken on another thread
/// for such a call, and nobody from there is waited for.
///
/// Without lanes all of that belongs to the runtime that [`Links`](crate::Links) were made with.
#[derive(Clone, Debug)]
pub struct Lane {
    number: usize,
    runtime: Handle,
}

impl Lane {
    /// The lane with this number; they are counted from 0. Its runtime has to go on until all links are
    /// closed.
    #[must_use]
    pub fn new(number: usize, runtime: Handle) -> Self {
        Self { number, runtime }
    }

    /// The current thread is this lane from now on. It is the one that drives the runtime.
    pub fn begin(self) {
        HERE.with_borrow_mut(|here| *here = Some(self));
    }
}

/// The number of the lane that runs here, from 1 on; 0 where there is none.
pub(crate) fn number() -> usize {
    HERE.with_borrow(|here| here.as_ref().map_or(0, |lane| lane.number + 1))
}

/// Whether a lane runs here.
pub(crate) fn is_here() -> bool {
    HERE.with_borrow(|here| here.is_some())
}

/// Where something new is to live: here, if a lane runs here, or else there.
pub(crate) fn runtime(there: &Handle) -> Handle {
    HERE.with_borrow(|here| here.as_ref().map_or(there, |lane| &lane.runtime).clone())
}
