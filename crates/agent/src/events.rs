//! What happens to sessions, for whoever wants to know.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use stayput_core::{Generation, SessionId};
use tokio::sync::broadcast;

use crate::closing::lock;

/// Something happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link to a server was opened, or taken up again.
    Linked {
        /// The session; of a link that several share, the one that was first.
        session: SessionId,
        /// The server.
        server: String,
        /// Its generation.
        generation: Generation,
    },
    /// What was behind a link is gone. It is said once, however many scopes are told of it.
    Lost {
        /// The session.
        session: SessionId,
        /// The server; none if the whole session is meant.
        server: Option<String>,
        /// The generation that begins.
        generation: Generation,
        /// Why, in one word.
        reason: &'static str,
    },
    /// The session is over.
    Ended {
        /// The session.
        session: SessionId,
    },
}

/// What happens from now on. Who does not read misses the oldest.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<Event>);

impl Events {
    /// What happens next; `None` when the hub is gone.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// By server and branch.
type Latest = HashMap<(Arc<str>, u64), Generation>;

/// The losses that were said, of sessions that live.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<HashMap<SessionId, Latest>>);

impl Losses {
    /// Whether this one was not said yet. From now on it was.
    pub(crate) fn is_news(
        &self,
        session: SessionId,
        of: (Arc<str>, u64),
        generation: Generation,
    ) -> bool {
        let mut all = lock(&self.0);
        let latest = all.entry(session).or_default();
        let before = latest.get(&of).copied();
        if before.is_some_and(|before| before >= generation) {
            return false;
        }
        latest.insert(of, generation);
        true
    }

    pub(crate) fn forget_branch(&self, session: SessionId, branch: u64) {
        if let Some(latest) = lock(&self.0).get_mut(&session) {
            latest.retain(|(_, of), _| *of != branch);
        }
    }

    pub(crate) fn forget(&self, session: SessionId) {
        lock(&self.0).remove(&session);
    }
}
