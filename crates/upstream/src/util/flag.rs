//! One-time event and a drop guard that raises it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Event that is raised once, for good. Any number of tasks can wait for it.
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

    /// Waits until the flag is raised.
    pub(crate) async fn wait(&self) {
        let notified = self.notify.notified();
        tokio::pin!(notified);
        // Enabled before the check, so that a raise between the two is not missed.
        notified.as_mut().enable();
        if !self.is_raised() {
            notified.await;
        }
    }
}

/// Drop guard with clones. When the last clone is dropped, its flag is raised. Every part of an operation
/// holds a clone, so that the flag also reports the end of an aborted operation.
#[derive(Clone, Debug)]
pub(crate) struct CompletionGuard(
    #[allow(dead_code, reason = "it does its work when it is dropped")] Arc<LastClone>,
);

#[derive(Debug)]
struct LastClone(Arc<Flag>);

impl CompletionGuard {
    /// Creates a guard and the flag that is raised when all clones are dropped.
    pub(crate) fn new() -> (Self, Arc<Flag>) {
        let gone = Arc::new(Flag::default());
        (Self(Arc::new(LastClone(gone.clone()))), gone)
    }
}

impl Drop for LastClone {
    fn drop(&mut self) {
        self.0.raise();
    }
}
