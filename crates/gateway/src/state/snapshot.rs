//! Current snapshot of the application state.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_sync::RwLock;
use stayput_upstream::Server;
use tokio::sync::watch;

use crate::state::AppState;

/// Application state in use. A reload creates the next one, which shares everything but the configuration. Calls in
/// flight finish with the state they started with.
#[derive(Default)]
pub(crate) struct CurrentSnapshot {
    number: AtomicU64,
    app: RwLock<Option<Arc<AppState>>>,
    /// The same number, as a channel to wait for changes.
    changes: watch::Sender<u64>,
}

impl CurrentSnapshot {
    /// Swaps in a reloaded state: later requests use it.
    pub(crate) fn set(&self, app: Arc<AppState>) {
        let number = app.number;
        *self.app.write() = Some(app);
        self.number.store(number, Ordering::Release);
        self.changes.send_replace(number);
    }

    /// Returns the number of the current state.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Waits until the current state has a larger number than this.
    pub(crate) fn newer_than(&self, number: u64) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut changes = self.changes.subscribe();
        async move {
            if changes.wait_for(|now| *now > number).await.is_err() {
                // The sender is gone, so no other state will be set.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the current state, or `None` if the configuration was never reloaded.
    pub(crate) fn get(&self) -> Option<Arc<AppState>> {
        self.app.read().clone()
    }

    /// Drops the state: it and this struct hold references to each other.
    pub(crate) fn clear(&self) {
        *self.app.write() = None;
    }
}

impl AppState {
    /// Returns the current state: this one, unless the configuration was reloaded since.
    pub(crate) fn now(self: &Arc<Self>) -> Arc<Self> {
        self.newer().unwrap_or_else(|| self.clone())
    }

    /// Returns the current state if it is another one.
    pub(crate) fn newer(&self) -> Option<Arc<Self>> {
        if self.current.number() == self.number {
            return None;
        }
        self.current.get()
    }

    /// Returns a server as it is configured now.
    ///
    /// # Errors
    /// A sentence for the client, if no server has this name any more.
    pub(crate) fn present(&self, server: &Server) -> Result<Server, String> {
        if self.current.number() == self.number {
            return Ok(server.clone());
        }
        let Some(current) = self.current.get() else { return Ok(server.clone()) };
        let present = current.servers.get(server.name());
        let present = present.map(|present| present.for_same_era_as(server).clone());
        present.ok_or_else(|| gone(server.name()))
    }
}

/// Message about a server that was removed from the configuration.
pub(crate) fn gone(name: &str) -> String {
    format!("there is no server `{name}` any more: it was removed from the configuration")
}

impl fmt::Debug for CurrentSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CurrentSnapshot({})", self.number.load(Ordering::Relaxed))
    }
}
