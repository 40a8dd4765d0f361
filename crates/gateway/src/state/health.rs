//! Whether the gateway can do its work.

use std::sync::atomic::{AtomicBool, Ordering};

use stayput_core::{Clock as _, SystemClock, Timestamp};

/// What `/readyz` tells.
#[derive(Debug)]
pub(crate) struct Health {
    since: Timestamp,
    stopping: AtomicBool,
    without_store: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            since: SystemClock.now(),
            stopping: AtomicBool::default(),
            without_store: AtomicBool::default(),
        }
    }
}

impl Health {
    /// When it began.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// It was told to stop: what is under way goes on, nothing new begins.
    pub(crate) fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether the store could be reached when the lease was renewed. Says whether that is new.
    pub(crate) fn reached_store(&self, reached: bool) -> bool {
        self.without_store.swap(!reached, Ordering::Relaxed) == reached
    }

    /// Why it is not ready, if it is not.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.is_stopping() {
            return Some("the gateway is stopping; what is under way may end");
        }
        let without = self.without_store.load(Ordering::Relaxed);
        without.then_some("the store could not be reached; sessions cannot be opened or kept")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_unless_it_stops_or_has_no_store() {
        let health = Health::default();
        assert_eq!(health.problem(), None);
        assert!(!health.reached_store(true), "nothing new");
        assert!(health.reached_store(false));
        assert!(!health.reached_store(false));
        assert!(health.problem().is_some_and(|it| it.contains("store")));
        assert!(health.reached_store(true));
        assert_eq!(health.problem(), None);
        health.stops();
        assert!(health.problem().is_some_and(|it| it.contains("stopping")));
    }
}
