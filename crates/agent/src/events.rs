//! What happens to sessions, for whoever wants to know.

use stayput_core::{Generation, SessionId};
use tokio::sync::broadcast;

/// Something happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link to a server was opened, or taken up again.
    Linked {
        /// The session.
        session: SessionId,
        /// The server.
        server: String,
        /// Its generation.
        generation: Generation,
    },
    /// What was behind a link is gone.
    Lost {
        /// The session.
        session: SessionId,
        /// The server.
        server: String,
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
