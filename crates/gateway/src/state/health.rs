//! Health of the gateway.

use std::sync::atomic::{AtomicBool, Ordering};

use stayput_core::{Clock as _, SystemClock, Timestamp};

/// State behind `/readyz`.
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
    /// Returns the time at which the gateway started.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Marks the gateway as stopping: calls in flight go on, new ones are refused.
    pub(crate) fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Records whether the store was reached when the lease was renewed. Returns whether that has changed.
    pub(crate) fn reached_store(&self, reached: bool) -> bool {
        self.without_store.swap(!reached, Ordering::Relaxed) == reached
    }

    /// Returns the reason why the gateway is not ready, or `None` if it is ready.
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
    fn health_has_no_problem_unless_stopping_or_without_store() {
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
