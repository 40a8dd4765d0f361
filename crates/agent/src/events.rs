//! Events of sessions: linked, called, lost, ended.

use std::{collections::HashMap, sync::Arc, time::Duration};

use stayput_core::{Generation, Record, SessionId};
use stayput_process::ExitStatus;
use stayput_sync::Mutex;
use tokio::sync::broadcast;

/// Event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link to a server was opened or resumed.
    Linked {
        /// The session; of a link that several sessions share, the first one that used it.
        session: SessionId,
        /// Name of the session, if it has one.
        name: Option<String>,
        /// The server.
        server: String,
        /// Generation of the link.
        generation: Generation,
    },
    /// The state behind a link was lost. Sent once, to however many scopes the loss is reported.
    Lost {
        /// The session.
        session: SessionId,
        /// Name of the session, if it has one.
        name: Option<String>,
        /// The server, or `None` if the state of the whole session was lost.
        server: Option<String>,
        /// Generation that begins.
        generation: Generation,
        /// Reason in one word, see [`StateLost::reason`](crate::StateLost::reason).
        reason: &'static str,
        /// Exit status of the server's process, if it ended by itself or was killed.
        exit_status: Option<ExitStatus>,
        /// Last lines of the process on stderr, see [`StateLost::detail`](crate::StateLost::detail).
        detail: String,
    },
    /// A tool call got its answer or failed. A call that was not sent has no such event.
    Called {
        /// The session.
        session: SessionId,
        /// Name of the session, if it has one.
        name: Option<String>,
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// Time from sending the call to its end.
        duration: Duration,
        /// Kind of the error, see [`Error::kind`](crate::Error::kind), if the call got no answer.
        error: Option<&'static str>,
    },
    /// The session ended.
    Ended {
        /// The session.
        session: SessionId,
        /// Name of the session, if it has one.
        name: Option<String>,
    },
}

impl Event {
    /// Emits the event to `tracing`, as a warning if state was lost.
    pub(crate) fn trace(&self) {
        match self {
            Self::Linked { session, server, generation, .. } => {
                tracing::info!(%session, server, %generation, "session linked");
            }
            Self::Lost { session, server, generation, reason, .. } => {
                let server = server.as_deref();
                tracing::warn!(%session, server, %generation, reason, "session lost its state");
            }
            // The span of the call says the same.
            Self::Called { .. } => {}
            Self::Ended { session, .. } => tracing::info!(%session, "session ended"),
        }
    }
}

/// Name of a session in events.
pub(crate) fn name_of(record: &Record) -> Option<String> {
    record.key.as_ref().map(|key| key.value().to_owned())
}

/// Subscription to events. A slow reader misses the oldest ones.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<Event>);

impl Events {
    /// Waits for the next event. Returns `None` when the hub is dropped.
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

/// Last lost generation by server and branch.
type LastLosses = HashMap<(Arc<str>, u64), Generation>;

/// Losses of live sessions for which an event was sent.
#[derive(Debug, Default)]
pub(crate) struct LossLog(Mutex<HashMap<SessionId, LastLosses>>);

impl LossLog {
    /// Records a loss. Returns `false` if it, or a later one, was recorded before.
    pub(crate) fn record(
        &self,
        session: SessionId,
        link: (Arc<str>, u64),
        generation: Generation,
    ) -> bool {
        let mut all = self.0.lock();
        let losses = all.entry(session).or_default();
        let before = losses.get(&link).copied();
        if before.is_some_and(|before| before >= generation) {
            return false;
        }
        losses.insert(link, generation);
        true
    }

    pub(crate) fn remove_branch(&self, session: SessionId, branch: u64) {
        if let Some(losses) = self.0.lock().get_mut(&session) {
            losses.retain(|(_, other), _| *other != branch);
        }
    }

    pub(crate) fn remove_session(&self, session: SessionId) {
        self.0.lock().remove(&session);
    }
}
