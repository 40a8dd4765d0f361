//! Sessions that a connection uses: the default session, and the sessions that calls have named.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use stayput_core::{ActiveSession, Session, SessionId, Sessions};
use stayput_upstream::LinkOwner;

use super::Connection;

/// Largest number of sessions that are remembered per connection.
const MAX_SESSIONS: usize = 256;

/// Sessions that the connection uses, besides the one that it was created with.
#[derive(Default)]
pub(super) struct UsedSessions {
    /// Default session of the connection, cached after its first use.
    cached: Weak<Session>,
    /// Id of the default session, if it is not the original one any more.
    replacement: Option<SessionId>,
    /// Sessions that calls have named, the latest last.
    named: VecDeque<SessionId>,
}

impl UsedSessions {
    /// Whether the default session is not the original one any more.
    pub(super) fn is_replaced(&self) -> bool {
        self.replacement.is_some()
    }

    fn set_default(&mut self, session: SessionId) {
        (self.replacement, self.cached) = (Some(session), Weak::new());
    }
}

impl Connection {
    /// Returns the owner and the default session, for requests to servers.
    pub(crate) fn link_owner(&self) -> LinkOwner {
        LinkOwner::new(self.owner.clone(), self.default_session())
    }

    /// Returns the session of calls that name none.
    pub(crate) fn default_session(&self) -> SessionId {
        self.used_sessions.lock().replacement.unwrap_or(self.session)
    }

    /// Returns the default session in use, if it is cached and still valid. Needs no lookup and no waiting.
    pub(crate) fn reenter_default_session(&self, sessions: &Sessions) -> Option<ActiveSession> {
        let cached = self.used_sessions.lock().cached.upgrade()?;
        sessions.reenter(cached)
    }

    /// Caches the default session after a call has used it. The cache is weak: after the session has ended, the next
    /// call looks it up by its id and learns of the end.
    pub(crate) fn cache_default_session(&self, session: &Arc<Session>) {
        let mut used_sessions = self.used_sessions.lock();
        if used_sessions.replacement.unwrap_or(self.session) == session.id() {
            used_sessions.cached = Arc::downgrade(session);
        }
    }

    /// Makes this session the default session.
    pub(crate) fn set_default_session(&self, session: SessionId) {
        self.used_sessions.lock().set_default(session);
    }

    /// Replaces an ended default session, unless another session has replaced it already. Returns the current default
    /// session.
    pub(crate) fn replace_default_session(&self, ended: SessionId, next: SessionId) -> SessionId {
        let mut used_sessions = self.used_sessions.lock();
        let now = used_sessions.replacement.unwrap_or(self.session);
        if now != ended {
            return now;
        }
        used_sessions.set_default(next);
        next
    }

    /// Records that a call named this session.
    pub(crate) fn note_named_session(&self, session: SessionId) {
        let mut used_sessions = self.used_sessions.lock();
        if used_sessions.named.back() == Some(&session) {
            return;
        }
        used_sessions.named.retain(|used| *used != session);
        used_sessions.named.push_back(session);
        if used_sessions.named.len() > MAX_SESSIONS {
            used_sessions.named.pop_front();
        }
    }

    /// Returns all sessions that the connection uses.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let own = self.default_session();
        let used_sessions = self.used_sessions.lock();
        let others = used_sessions.named.iter().copied().filter(|used| *used != own);
        std::iter::once(own).chain(others).collect()
    }
}
