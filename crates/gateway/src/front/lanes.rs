//! The threads on which clients over HTTP are served.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use stayput_upstream::Lane;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// More are not needed: before they are, whatever stands behind them has no processor left.
const MOST: usize = 16;

/// A thread for each processor, and each with a runtime of its own: a connection stays where it came in, and so
/// does what its calls need. Where threads share their work, every call wakes some of them.
#[derive(Debug)]
pub(crate) struct Lanes {
    all: Vec<Handle>,
    next: AtomicUsize,
    /// Dropped, they end.
    _going: Vec<oneshot::Sender<()>>,
}

impl Lanes {
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
