//! Failure backoff of one pool entry.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{LinkOpenError, Loss, util::backoff::Backoff};

/// Failures of the links of one pool entry, and the backoff that follows. An entry without failures has none.
#[derive(Debug)]
pub(super) struct FailureBackoff {
    /// Attempt number and error of the last attempt to open, if it failed.
    pub(super) failed: Option<(u64, Arc<LinkOpenError>)>,
    /// Number of consecutive links that ended too soon.
    failures: u32,
    backoff: Backoff,
    rest_until: Option<Instant>,
}

impl Default for FailureBackoff {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        Self { failed: None, failures: 0, backoff, rest_until: None }
    }
}

impl FailureBackoff {
    /// Records a link that ended too soon.
    pub(super) fn short_life(&mut self) {
        self.failures += 1;
        // A single failure is tolerated.
        if self.failures > 1 {
            self.rest();
        }
    }

    /// Starts the next backoff period.
    pub(super) fn rest(&mut self) {
        self.rest_until = Some(Instant::now() + self.backoff.next());
    }

    /// Remaining backoff time.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.rest_until?.checked_duration_since(Instant::now())
    }

    /// Returns the error for requests during the backoff. `loss` is that of the last link.
    pub(super) fn resting(&self, server: &str, loss: Option<&Loss>) -> Option<LinkOpenError> {
        let pause = self.pause()?;
        let (last, brief) = match (&self.failed, loss) {
            (Some((_, error)), _) => (error.to_string(), error.brief()),
            (None, Some(loss)) => (loss.to_string(), loss.to_string()),
            (None, None) => Default::default(),
        };
        Some(LinkOpenError::BackingOff { server: server.to_owned(), pause, last, brief })
    }
}
