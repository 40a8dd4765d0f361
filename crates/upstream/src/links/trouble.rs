//! What went wrong with the links of one slot.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{Loss, OpenError, backoff::Backoff};

/// What went wrong with the links of one slot, and until when it rests for that. A slot whose links
/// were all well has none.
#[derive(Debug)]
pub(super) struct Trouble {
    /// How the last attempt to open one ended, if not well.
    pub(super) failed: Option<(u64, Arc<OpenError>)>,
    /// How many links in a row were not worth opening.
    failures: u32,
    backoff: Backoff,
    rest_until: Option<Instant>,
}

impl Default for Trouble {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        Self { failed: None, failures: 0, backoff, rest_until: None }
    }
}

impl Trouble {
    /// A link ended too soon.
    pub(super) fn short_life(&mut self) {
        self.failures += 1;
        // Once can happen to anybody.
        if self.failures > 1 {
            self.rest();
        }
    }

    /// Opens nothing for a while.
    pub(super) fn rest(&mut self) {
        self.rest_until = Some(Instant::now() + self.backoff.next());
    }

    /// How long nothing is opened.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.rest_until?.checked_duration_since(Instant::now())
    }

    /// What whoever comes meanwhile is told. `loss` is that of the link before.
    pub(super) fn resting(&self, server: &str, loss: Option<&Loss>) -> Option<OpenError> {
        let pause = self.pause()?;
        let (last, brief) = match (&self.failed, loss) {
            (Some((_, error)), _) => (error.to_string(), error.brief()),
            (None, Some(loss)) => (loss.to_string(), loss.to_string()),
            (None, None) => Default::default(),
        };
        Some(OpenError::Resting { server: server.to_owned(), pause, last, brief })
    }
}
