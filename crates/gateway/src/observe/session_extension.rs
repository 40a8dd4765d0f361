//! Data of a session in memory: the link that it used last, and its statistics.

use stayput_core::Session;
use stayput_sync::Mutex;
use stayput_upstream::{LinkHint, PooledLink, Server};

use crate::observe::session_stats::SessionStats;

/// Extension of a session, so that a call needs no lookup for it.
#[derive(Debug, Default)]
pub(crate) struct SessionExtension {
    /// Link that was used last.
    link: Mutex<LinkHint>,
    pub(super) stats: SessionStats,
}

impl SessionExtension {
    /// Returns the extension of a session.
    pub(crate) fn get(session: &Session) -> Option<&Self> {
        session.extension()
    }

    /// Returns the link to a server, if it is the one that was used last and is still alive.
    pub(crate) fn link(&self, server: &Server) -> Option<PooledLink> {
        let hint = self.link.lock().clone();
        hint.find(server)
    }

    /// Stores the link that was used last.
    pub(crate) fn set_link(&self, link: &PooledLink) {
        *self.link.lock() = link.hint();
    }
}
