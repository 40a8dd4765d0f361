//! The threads on which clients over HTTP are served.

use std::{
    cell::RefCell,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use stayput_upstream::Lane;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::state::AppState;

/// More are not needed: before they are, whatever stands behind them has no processor left.
const MOST: usize = 16;

thread_local! {
    /// Houses, and the copies of them that are used on this thread.
    static OWN: RefCell<Vec<(Weak<AppState>, Weak<AppState>)>> = const { RefCell::new(Vec::new()) };
}

/// The house as this thread has it for itself, for as long as anybody uses it here. Every call counts itself in and
/// out of the house that it is in: of one that all share, the processors would take the count from each other.
pub(super) fn own(app: &Arc<AppState>) -> Arc<AppState> {
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

/// A thread for each processor, and each with a runtime of its own: a connection stays where it came in, and so
/// does what its calls need. Where threads share their work, every call wakes some of them.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Handle>,
    next: AtomicUsize,
    /// Dropped, they end.
    _going: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// Starts them.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MOST);
        let (mut all, mut going) = (Vec::new(), Vec::new());
        for number in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (stays, ends) = oneshot::channel();
            all.push(runtime.handle().clone());
            going.push(stays);
            thread::Builder::new().name(format!("lane {number}")).spawn(move || {
                Lane::new(number, runtime.handle().clone()).begin();
                let _: Result<(), _> = runtime.block_on(ends);
                // What does not end by itself is not waited for.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { all, next: AtomicUsize::new(0), _going: going })
    }

    /// The one whose turn it is.
    pub(crate) fn next(&self) -> Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len().max(1);
        self.all.get(turn).cloned().unwrap_or_else(Handle::current)
    }
}
