//! Something that happens once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Raised once, and then for good. Any number of tasks can wait for it.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    raised: AtomicBool,
    notify: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Waits until it is raised.
    pub(crate) async fn wait(&self) {
        let notified = self.notify.notified();
        tokio::pin!(notified);
        // Enlisted before the look, or a flag that is raised between the two would be missed.
        notified.as_mut().enable();
        if !self.is_raised() {
            notified.await;
        }
    }
}

/// That something is still there. Its clones go along with all that belongs to it, and when the last
/// one is dropped, nothing of it is left. It tells what was only begun and then given up, too.
#[derive(Clone, Debug)]
pub(crate) struct Trace(
    #[allow(dead_code, reason = "it does its work when it is dropped")] Arc<Last>,
);

#[derive(Debug)]
struct Last(Arc<Flag>);

impl Trace {
    /// A trace, and the flag that is raised when nothing of it is left.
    pub(crate) fn new() -> (Self, Arc<Flag>) {
        let gone = Arc::new(Flag::default());
        (Self(Arc::new(Last(gone.clone()))), gone)
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.0.raise();
    }
}
