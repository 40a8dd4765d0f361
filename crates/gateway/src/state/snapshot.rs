//! The house as it is furnished now.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_upstream::Server;
use tokio::sync::watch;

use crate::state::AppState;

/// The house that is used now. A configuration that is read anew makes another one, which shares with the one
/// before all but what it says; what is under way goes on in the one that it began in.
#[derive(Default)]
pub(crate) struct CurrentSnapshot {
    number: AtomicU64,
    app: RwLock<Option<Arc<AppState>>>,
    /// The same number, for those who wait until it changes.
    changes: watch::Sender<u64>,
}

impl CurrentSnapshot {
    /// Everybody who comes from now on comes to this one.
    pub(crate) fn set(&self, app: Arc<AppState>) {
        let number = app.number;
        *self.app.write().unwrap_or_else(PoisonError::into_inner) = Some(app);
        self.number.store(number, Ordering::Release);
        self.changes.send_replace(number);
    }

    /// The number of the one that is used now.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Waits until one with a larger number than this is used.
    pub(crate) fn newer_than(&self, number: u64) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut changes = self.changes.subscribe();
        async move {
            if changes.wait_for(|now| *now > number).await.is_err() {
                // Nobody can set another one.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The one that is used now; none if there was only one.
    pub(crate) fn get(&self) -> Option<Arc<AppState>> {
        self.app.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of it: the two hold each other.
    pub(crate) fn clear(&self) {
        *self.app.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl AppState {
    /// The house that is used now, which is this one unless the configuration was read anew since.
    pub(crate) fn now(self: &Arc<Self>) -> Arc<Self> {
        self.newer().unwrap_or_else(|| self.clone())
    }

    /// The house that is used now, if it is another one.
    pub(crate) fn newer(&self) -> Option<Arc<Self>> {
        if self.latest.number() == self.number {
            return None;
        }
        self.latest.get()
    }

    /// A server as it is configured now.
    ///
    /// # Errors
    /// With a sentence, if there is none of this name any more.
    pub(crate) fn present(&self, server: &Server) -> Result<Server, String> {
        if self.latest.number() == self.number {
            return Ok(server.clone());
        }
        let Some(latest) = self.latest.get() else { return Ok(server.clone()) };
        let present = latest.servers.get(server.name()).cloned();
        present.ok_or_else(|| gone(server.name()))
    }
}

/// What is said of a server that was removed from the configuration.
pub(crate) fn gone(name: &str) -> String {
    format!("there is no server `{name}` any more: it was removed from the configuration")
}

impl fmt::Debug for CurrentSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CurrentSnapshot({})", self.number.load(Ordering::Relaxed))
    }
}
