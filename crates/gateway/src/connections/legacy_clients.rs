//! Clients of the 2024-11-05 transport: each has one event stream, and posts its messages elsewhere.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use stayput_core::{ActiveSession, Handle, HandleHash};

use crate::{
    auth::Principal,
    config::target::Target,
    connections::{connection::Connection, event_stream::EventStream},
};

/// All who called and have not hung up, by their secret.
#[derive(Default)]
pub(crate) struct LegacyClients {
    all: RwLock<HashMap<HandleHash, Arc<LegacyClient>>>,
    /// Counts the messages that are being heeded.
    pub(crate) heeding: AtomicUsize,
}

impl LegacyClients {
    pub(crate) fn get(&self, hash: &HandleHash) -> Option<Arc<LegacyClient>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    pub(crate) fn insert(&self, hash: HandleHash, caller: Arc<LegacyClient>) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).insert(hash, caller);
    }

    pub(crate) fn remove(&self, hash: &HandleHash) -> Option<Arc<LegacyClient>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(hash)
    }

    /// Whether something that was posted is still being heeded.
    pub(crate) fn is_busy(&self) -> bool {
        self.heeding.load(Ordering::Acquire) > 0
    }
}

impl fmt::Debug for LegacyClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LegacyClients({})",
            self.all.read().unwrap_or_else(PoisonError::into_inner).len()
        )
    }
}

/// A client with its stream, from the moment it called.
pub(crate) struct LegacyClient {
    pub(crate) principal: Principal,
    pub(crate) target: Target,
    pub(crate) line: Arc<EventStream>,
    pub(crate) progress: Mutex<Progress>,
}

/// How far a caller has come.
pub(crate) enum Progress {
    Called,
    /// It has sent `initialize`.
    Greeting,
    Connected {
        /// The secret name of the connection, which is told to nobody.
        name: Handle,
        connection: Arc<Connection>,
        /// While the stream is open, the session does not idle.
        kept: Option<ActiveSession>,
    },
    HungUp,
}
