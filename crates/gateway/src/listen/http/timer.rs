//! Timer of a connection, for all deadlines on it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep};

/// Timer of a connection, for all deadlines on it. The timer of the runtime is only touched for a deadline that is earlier
/// than the one it is set to; when it fires too early, it is set again. A timer that is set anew wakes its runtime, which
/// costs two system calls, so calls do not have timers of their own.
pub(super) struct ConnTimer {
    set: Instant,
    sleep: Pin<Box<Sleep>>,
    /// Whether the waker is registered.
    known: bool,
}

impl ConnTimer {
    /// Creates a timer whose first deadline this probably is.
    pub(super) fn new(due: Instant) -> Self {
        Self { set: due, sleep: Box::pin(tokio::time::sleep_until(due)), known: false }
    }

    fn reset(&mut self, due: Instant) {
        (self.set, self.known) = (due, false);
        self.sleep.as_mut().reset(due);
    }

    /// Ready at `due`.
    pub(super) fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if due < self.set {
            self.reset(due);
        }
        loop {
            // A connection is one task, so the waker that was registered before is still the right one.
            if self.known && !self.sleep.is_elapsed() {
                return Poll::Pending;
            }
            self.known = true;
            ready!(self.sleep.as_mut().poll(cx));
            if due <= self.set {
                return Poll::Ready(());
            }
            self.reset(due);
        }
    }
}
