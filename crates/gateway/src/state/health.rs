//! Health of the gateway.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use stayput_core::{Clock as _, Outage, SystemClock, Timestamp};
use stayput_sync::Mutex;

/// State behind `/readyz` and `/admin/status`.
#[derive(Debug)]
pub(crate) struct Health {
    since: Timestamp,
    /// Address of the HTTP listener. Empty in the background process of `stayput stdio`.
    address: OnceLock<SocketAddr>,
    draining: AtomicBool,
    stopping: AtomicBool,
    without_store: AtomicBool,
    /// Known reason why the store cannot be used.
    outage: Mutex<Option<Outage>>,
    /// Reasons why servers did not start, by their names.
    failed_servers: Mutex<HashMap<String, String>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            since: SystemClock.now(),
            address: OnceLock::new(),
            draining: AtomicBool::default(),
            stopping: AtomicBool::default(),
            without_store: AtomicBool::default(),
            outage: Mutex::default(),
            failed_servers: Mutex::default(),
        }
    }
}

impl Health {
    /// Returns the time at which the gateway started.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Records the address of the HTTP listener.
    pub(crate) fn listens_on(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// Returns the address of the HTTP listener, if there is one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Records that a server could not be started or reached when the gateway started.
    pub(crate) fn server_fails(&self, name: &str, reason: String) {
        let mut failed = self.failed_servers.lock();
        failed.insert(name.to_owned(), reason);
    }

    /// Records that a server works.
    pub(crate) fn server_works(&self, name: &str) {
        self.failed_servers.lock().remove(name);
    }

    /// Returns the reason why a server could not be started or reached when the gateway started.
    pub(crate) fn server_failure(&self, name: &str) -> Option<String> {
        self.failed_servers.lock().get(name).cloned()
    }

    /// Marks the gateway as draining: its sessions move to other gateways, and requests are served.
    pub(crate) fn drains(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
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

    /// Records the known reason why the store cannot be used, or that there is none. Returns whether that has changed.
    pub(crate) fn store_fails(&self, outage: Option<Outage>) -> bool {
        let mut known = self.outage.lock();
        std::mem::replace(&mut *known, outage) != outage
    }

    /// Returns the reason why the gateway is not ready, or `None` if it is ready.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.is_stopping() {
            return Some("the gateway is stopping; what is under way may end");
        }
        if self.is_draining() {
            return Some("the gateway is draining: its sessions move to others");
        }
        if let Some(outage) = *self.outage.lock() {
            return Some(sentence(outage));
        }
        let without = self.without_store.load(Ordering::Relaxed);
        without.then_some("the store could not be reached; sessions cannot be opened or kept")
    }
}

/// Returns the problem in words for everyone: `/readyz` needs no credentials.
fn sentence(outage: Outage) -> &'static str {
    match outage {
        Outage::DiskFull => "the disk of the store is full; sessions cannot be opened or kept",
        Outage::FileDeleted => {
            "the database file was deleted; put it back, or restart the gateway, which loses its sessions"
        }
        Outage::FileReplaced => {
            "the database file was replaced by another one; restart the gateway to use that one"
        }
        Outage::FileCut => {
            "the database file was cut short; restore a backup and restart the gateway"
        }
        Outage::FileUnreadable => "the database file cannot be read or written any more",
        _ => "the disk of the store fails; sessions cannot be opened or kept",
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
        assert!(!health.store_fails(None), "nothing new");
        assert!(health.store_fails(Some(Outage::DiskFull)));
        assert!(!health.store_fails(Some(Outage::DiskFull)));
        assert!(health.problem().is_some_and(|it| it.contains("full")));
        assert!(health.store_fails(Some(Outage::FileDeleted)));
        assert!(health.problem().is_some_and(|it| it.contains("deleted")));
        assert!(health.store_fails(None));
        assert_eq!(health.problem(), None);
        health.drains();
        assert!(health.problem().is_some_and(|it| it.contains("draining")));
        health.stops();
        assert!(health.problem().is_some_and(|it| it.contains("stopping")));
    }
}
