//! Deadline of a client's next action.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Deadline of a client's next action. Moving it later does not touch the timer: when the timer fires, it is set
/// again if the deadline was moved.
pub(super) struct Deadline {
    due: Instant,
    set: Instant,
    sleep: Pin<Box<Sleep>>,
    /// Whether the waker is registered.
    known: bool,
}

impl Deadline {
    /// Creates a deadline after this time.
    pub(super) fn new(time: Duration) -> Self {
        let due = Instant::now() + time;
        Self { due, set: due, sleep: Box::pin(tokio::time::sleep_until(due)), known: false }
    }

    /// Moves the deadline.
    pub(super) fn set(&mut self, time: Duration) {
        self.set_from(Instant::now(), time);
    }

    /// Moves the deadline to this time after `now`.
    pub(super) fn set_from(&mut self, now: Instant, time: Duration) {
        self.due = now + time;
        if self.due < self.set {
            self.reset();
        }
    }

    fn reset(&mut self) {
        (self.set, self.known) = (self.due, false);
        self.sleep.as_mut().reset(self.due);
    }

    /// Ready when the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // A connection is one task, so the waker that was registered before is still the right one.
            if self.known && !self.sleep.is_elapsed() {
                return Poll::Pending;
            }
            self.known = true;
            ready!(self.sleep.as_mut().poll(cx));
            if self.due <= self.set {
                return Poll::Ready(());
            }
            self.reset();
        }
    }
}
