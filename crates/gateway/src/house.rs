//! What all rooms of the gateway share.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use stayput_core::{
    EndReason, EventIds, InUse, OpenError, Opened, Owner, SessionId, Sessions, StoreError,
};
use stayput_upstream::{Links, SealKey, Server};
use tokio::sync::watch;

use crate::{
    aggregate::Aggregate, config::Tools, connections::Connections, front::sse::Callers,
    health::Health, identify, log::Log, losses::Telling, metrics::Metrics, shared::Generations,
    streams::Shelf,
};

/// How long a session that another process has is waited for: a process that was killed has it for as
/// long as its lease lasts.
const TAKEOVER: Duration = Duration::from_secs(40);

/// How often it is looked whether it has come free.
const PAUSE: Duration = Duration::from_millis(250);

/// What all rooms share: the servers, the sessions, the links and the connections of clients.
pub(crate) struct House {
    pub(crate) servers: BTreeMap<String, Server>,
    /// Which tools of each are passed on.
    pub(crate) tools: BTreeMap<String, Tools>,
    /// Servers to which a call that surely did not run is sent once more after a loss.
    pub(crate) restarting: BTreeSet<String>,
    pub(crate) sessions: Sessions,
    pub(crate) links: Links,
    pub(crate) connections: Connections,
    /// Clients of the transport of 2024-11-05.
    pub(crate) callers: Callers,
    /// Losses that are being noted as told.
    pub(crate) telling: Telling,
    /// What owners have seen of links that all share.
    pub(crate) generations: Generations,
    pub(crate) aggregate: Aggregate,
    /// Streams that ended, of all connections.
    pub(crate) shelf: Shelf,
    pub(crate) ids: EventIds,
    pub(crate) seal: SealKey,
    /// What this process is told from those before it by.
    pub(crate) life: String,
    pub(crate) rules: Rules,
    /// How requests say which session they mean.
    pub(crate) identify: identify::Rules,
    pub(crate) log: Log,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    /// True when it is about to close: who listens is told that nothing more comes.
    pub(crate) closing: watch::Receiver<bool>,
}

/// What the front lets in.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The largest body of a request.
    pub(crate) body_limit: usize,
    /// The most sockets at once.
    pub(crate) sockets: usize,
    /// Hosts and origins beside those of this machine.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    /// How long a call may take before its answer becomes a stream that can be taken up again.
    pub(crate) patience: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            body_limit: stayput_wire::Message::SIZE_LIMIT,
            sockets: 10_000,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            patience: Duration::from_millis(1_500),
        }
    }
}

impl House {
    /// Why there is no link, in words for a client. What the server's process wrote is told to whoever
    /// runs it alone.
    pub(crate) fn blame(&self, error: &stayput_upstream::OpenError) -> String {
        if !matches!(error, stayput_upstream::OpenError::Resting { .. }) {
            self.log.warn(&error.to_string());
        }
        error.brief()
    }

    /// The session of a connection, in use. One that is over is begun anew, and the loss is told.
    pub(crate) async fn session(&self, owner: &Owner, id: SessionId) -> Result<InUse, OpenError> {
        self.patiently(|| self.found_or_revived(owner, id)).await
    }

    async fn found_or_revived(&self, owner: &Owner, id: SessionId) -> Result<InUse, OpenError> {
        match self.sessions.by_id(owner, id).await {
            Err(OpenError::Over(over)) => {
                if over.ended.is_some_and(|ended| ended.reason == EndReason::Closed) {
                    // Somebody ended it on purpose: it is not for us to call it back.
                    return Err(OpenError::Over(over));
                }
                // What is left of its former life goes before the next one begins.
                let _ = self.links.end(id).await;
                match self.sessions.revive(owner, id).await {
                    // Its name has a session again, which is the one that is meant.
                    Err(OpenError::Store(StoreError::Taken { by })) => {
                        self.sessions.by_id(owner, by).await
                    }
                    revived => revived.map(|Opened { session, .. }| session),
                }
            }
            found => found,
        }
    }

    /// What `attempt` gives. A session that another process has is waited for.
    pub(crate) async fn patiently<T, A>(&self, attempt: impl Fn() -> A) -> Result<T, OpenError>
    where
        A: Future<Output = Result<T, OpenError>>,
    {
        let mut waited = Duration::ZERO;
        loop {
            match attempt().await {
                Err(OpenError::HeldElsewhere { .. }) if waited < TAKEOVER => {
                    tokio::time::sleep(PAUSE).await;
                    waited += PAUSE;
                }
                found => return found,
            }
        }
    }
}

impl fmt::Debug for House {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("House")
            .field("servers", &self.servers.keys())
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}
