//! Limit of messages on their way over HTTP that need no answer.

use std::sync::{Arc, atomic::Ordering};

use crate::link::Core;

/// Largest number of messages of one link that are on their way at once. Each has a task and a connection of its
/// own, and a server that sends requests without end gets one answer for each.
const MAX_POSTING: usize = 256;

/// Permit to send one message.
pub(crate) struct PostingPermit {
    core: Arc<Core>,
}

impl PostingPermit {
    /// Returns a permit. If too many messages are on their way, counts this one as unsent instead.
    pub(crate) fn acquire(core: &Arc<Core>) -> Option<Self> {
        let counts = core.counts();
        if counts.posting.fetch_add(1, Ordering::Relaxed) < MAX_POSTING {
            return Some(Self { core: core.clone() });
        }
        counts.posting.fetch_sub(1, Ordering::Relaxed);
        counts.unsent.fetch_add(1, Ordering::Relaxed);
        None
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for PostingPermit {
    fn drop(&mut self) {
        self.core.counts().posting.fetch_sub(1, Ordering::Relaxed);
    }
}
