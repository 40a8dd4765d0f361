//! Clients of the 2024-11-05 transport: each has one event stream, and posts its messages to another address.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use stayput_core::{Handle, HandleHash};
use stayput_sync::{Mutex, RwLock};

use crate::{
    auth::Principal,
    config::target::Target,
    connections::{connection::ConnectionGuard, event_stream::EventStream},
    observe::session_stats::ConnectedSession,
};

/// Connected clients, by the hash of their secret.
#[derive(Default)]
pub(crate) struct LegacyClients {
    all: RwLock<HashMap<HandleHash, Arc<LegacyClient>>>,
    /// Number of posted messages that are being handled.
    pub(crate) in_progress: AtomicUsize,
}

impl LegacyClients {
    pub(crate) fn get(&self, hash: &HandleHash) -> Option<Arc<LegacyClient>> {
        self.all.read().get(hash).cloned()
    }

    pub(crate) fn insert(&self, hash: HandleHash, caller: Arc<LegacyClient>) {
        self.all.write().insert(hash, caller);
    }

    pub(crate) fn remove(&self, hash: &HandleHash) -> Option<Arc<LegacyClient>> {
        self.all.write().remove(hash)
    }

    /// Whether a posted message is still being handled.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_progress.load(Ordering::Acquire) > 0
    }
}

impl fmt::Debug for LegacyClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LegacyClients({})", self.all.read().len())
    }
}

/// Client with its stream, from the moment it opened the stream.
pub(crate) struct LegacyClient {
    pub(crate) principal: Principal,
    pub(crate) target: Target,
    pub(crate) line: Arc<EventStream>,
    pub(crate) progress: Mutex<Progress>,
}

/// Progress of the client's handshake.
pub(crate) enum Progress {
    Called,
    /// The client has sent `initialize`.
    Initializing,
    Connected {
        /// Secret name of the connection. It is never sent to the client.
        name: Handle,
        connection: ConnectionGuard,
        /// Keeps the session from going idle while the stream is open.
        kept: Option<ConnectedSession>,
    },
    HungUp,
}
