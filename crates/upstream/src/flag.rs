//! Something that happens once.

use std::sync::atomic::{AtomicBool, Ordering};

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
