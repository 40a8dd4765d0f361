//! Worker threads that serve HTTP clients.

use std::{
    cell::RefCell,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use stayput_http::Worker;
use stayput_process::lower_thread_priority;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};

use crate::state::AppState;

/// Largest number of workers. More are not needed: the servers behind the gateway run out of processors first.
const MAX_WORKERS: usize = 16;

/// Number of polls after which a worker looks for new events of its sockets, if it is busy. While a large body is received,
/// each poll copies up to a few hundred kilobytes; with the default of 61, all other clients would wait for several
/// megabytes.
const EVENT_INTERVAL: u32 = 8;

thread_local! {
    /// Runtime for requests with large bodies.
    static LARGE_REQUESTS: RefCell<Option<Handle>> = const { RefCell::new(None) };
    /// Application states, with the copies of them that this thread uses.
    static OWN: RefCell<Vec<(Weak<AppState>, Weak<AppState>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's copy of the application state, which lives as long as something on this thread uses it.
/// Every call increments and decrements the reference count of the state. With one shared count, the processors would
/// contend for its cache line.
pub(super) fn worker_copy(app: &Arc<AppState>) -> Arc<AppState> {
    OWN.with_borrow_mut(|own| {
        own.retain(|(of, copy)| of.strong_count() > 0 && copy.strong_count() > 0);
        let known = own.iter().find(|(of, _)| of.as_ptr() == Arc::as_ptr(app));
        if let Some(copy) = known.and_then(|(_, copy)| copy.upgrade()) {
            return copy;
        }
        let copy = Arc::new(AppState::clone(app));
        own.push((Arc::downgrade(app), Arc::downgrade(&copy)));
        copy
    })
}

/// Returns the runtime that answers requests with large bodies, if this thread is a worker. Parsing such a body takes
/// many milliseconds, for which all other clients of the worker would wait.
pub(super) fn large_requests() -> Option<Handle> {
    LARGE_REQUESTS.with_borrow(Clone::clone)
}

/// One thread per processor, each with its own current-thread runtime. A connection and the calls on it stay on the
/// thread that accepted it. With a work-stealing runtime, every call would wake several threads.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Handle>,
    next: AtomicUsize,
    /// Dropping the senders ends the threads.
    _going: Vec<oneshot::Sender<()>>,
    _large_requests: LargeRequests,
}

/// Runtime for requests with large bodies, with half as many threads as there are processors.
#[derive(Debug)]
struct LargeRequests(Option<Runtime>);

impl LargeRequests {
    fn start(workers: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        // Clients with small requests go first.
        builder.on_thread_start(lower_thread_priority);
        builder.worker_threads(workers.div_ceil(2)).thread_name("large requests").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for LargeRequests {
    fn drop(&mut self) {
        // Do not wait for tasks that do not end by themselves.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Workers {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        let large_requests = LargeRequests::start(count)?;
        let (mut all, mut going) = (Vec::new(), Vec::new());
        for number in 0..count {
            let mut builder = Builder::new_current_thread();
            let runtime = builder.enable_all().event_interval(EVENT_INTERVAL).build()?;
            let (stays, ends) = oneshot::channel();
            let large = large_requests.handle();
            all.push(runtime.handle().clone());
            going.push(stays);
            thread::Builder::new().name(format!("worker {number}")).spawn(move || {
                Worker::new(number, runtime.handle().clone()).register();
                LARGE_REQUESTS.set(large);
                let _: Result<(), _> = runtime.block_on(ends);
                // Do not wait for tasks that do not end by themselves.
                runtime.shutdown_background();
            })?;
        }
        let next = AtomicUsize::new(0);
        Ok(Self { all, next, _going: going, _large_requests: large_requests })
    }

    /// Returns the next worker in turn.
    pub(crate) fn next(&self) -> Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len().max(1);
        self.all.get(turn).cloned().unwrap_or_else(Handle::current)
    }
}
