//! What all rooms of the gateway share.

pub(crate) mod aggregate;
mod connections;
pub(crate) mod health;
pub(crate) mod identify_rules;
mod metrics_page;
pub(crate) mod roster;
mod sessions;
pub(crate) mod shared_generations;
pub(crate) mod snapshot;
pub(crate) mod visibility;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use stayput_core::{
    ActiveSession, EndReason, EventIds, Expiry, OpenedSession, Owner, SessionId, SessionOpenError,
    Sessions, StoreError,
};
use stayput_upstream::{Links, SealKey, Server};
use tokio::sync::watch;

use crate::{
    auth::{Authenticator, call_limit::CallLimiter, rate_limit::RateLimiter},
    catalog::tool_view::ToolViews,
    config::{Identify, Limits, OnLoss, ServerEntry, ToolFilter},
    connections::{
        legacy_clients::LegacyClients, registry::Connections, stream_cache::StreamCache,
    },
    observe::{Observers, log::Log, metrics::Metrics},
    reply::loss::LossAcknowledgements,
    state::{
        aggregate::Aggregate, health::Health, shared_generations::SharedGenerations,
        snapshot::CurrentSnapshot, visibility::Visibility,
    },
};

/// How long a session that another process has is waited for: a process that was killed has it for as
/// long as its lease lasts.
const TAKEOVER: Duration = Duration::from_secs(40);

/// How often it is looked whether it has come free.
const PAUSE: Duration = Duration::from_millis(250);

/// What all rooms share: the servers, the sessions, the links and the connections of clients.
///
/// A process has one, and for each client that brings servers of its own along one more, which shares
/// with the first all but these.
#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) servers: BTreeMap<String, Server>,
    /// Which tools of each are passed on.
    pub(crate) tools: BTreeMap<String, ToolFilter>,
    /// Which of the servers each client sees.
    pub(crate) views: Arc<Visibility>,
    /// Servers to which a call that surely did not run is sent once more after a loss.
    pub(crate) restarting: BTreeSet<String>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    pub(crate) connections: Arc<Connections>,
    /// Clients of the transport of 2024-11-05.
    pub(crate) callers: Arc<LegacyClients>,
    /// Losses that are being noted as told.
    pub(crate) telling: Arc<LossAcknowledgements>,
    /// What owners have seen of links that all share.
    pub(crate) generations: Arc<SharedGenerations>,
    pub(crate) aggregate: Arc<Aggregate>,
    /// Streams that ended, of all connections.
    pub(crate) shelf: Arc<StreamCache>,
    pub(crate) ids: EventIds,
    pub(crate) seal: SealKey,
    /// What this process is told from those before it by.
    pub(crate) life: String,
    pub(crate) rules: RequestRules,
    /// Whom it lets in.
    pub(crate) owners: Arc<Authenticator>,
    /// How fast each of them may ask.
    pub(crate) pace: Arc<RateLimiter>,
    /// Whose calls are in flight that belong to no session.
    pub(crate) crowd: Arc<CallLimiter>,
    /// How requests say which session they mean.
    pub(crate) identify: Arc<identify_rules::IdentifyRules>,
    pub(crate) log: Log,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    /// Who wants to know of every call, if anybody does.
    pub(crate) watch: Option<Arc<Observers>>,
    /// True when it is about to close: who listens is told that nothing more comes.
    pub(crate) closing: watch::Receiver<bool>,
    /// Servers that were there before the configuration was read anew.
    pub(crate) removed: Arc<BTreeSet<String>>,
    /// Which house is used since then.
    pub(crate) latest: Arc<CurrentSnapshot>,
    /// Which of all it is.
    pub(crate) number: u64,
}

/// What the front lets in.
#[derive(Clone, Debug)]
pub(crate) struct RequestRules {
    /// The largest body of a request.
    pub(crate) body_limit: usize,
    /// The largest headers of a request.
    pub(crate) header_limit: usize,
    /// How long a request may not go on while it is sent.
    pub(crate) stall: Duration,
    /// How long calls may go on where they should end, if somebody says how long.
    pub(crate) drain: Option<Duration>,
    /// The most calls in flight on one session.
    pub(crate) calls: u64,
    /// The most sockets at once.
    pub(crate) sockets: usize,
    /// The URL under which clients know the gateway.
    pub(crate) public_url: Option<String>,
    /// Hosts and origins beside those of this machine.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    /// How long a call may take before its answer becomes a stream that can be taken up again.
    pub(crate) patience: Duration,
}

impl Default for RequestRules {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            body_limit: limits.body,
            header_limit: limits.headers,
            stall: limits.stall,
            drain: limits.drain,
            calls: limits.calls,
            sockets: limits.sockets,
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            patience: Duration::from_millis(1_500),
        }
    }
}

/// The servers of a house, and what follows from how they are configured.
pub(crate) struct ServerSet {
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) tools: BTreeMap<String, ToolFilter>,
    pub(crate) views: Arc<Visibility>,
    pub(crate) restarting: BTreeSet<String>,
    pub(crate) aggregate: Arc<Aggregate>,
    pub(crate) identify: Arc<identify_rules::IdentifyRules>,
}

impl ServerSet {
    pub(crate) fn new(servers: Vec<ServerEntry>, configured: Identify, expiry: Expiry) -> Self {
        let name = |it: &ServerEntry| it.server.name().to_owned();
        let restarting = servers.iter().filter(|it| it.on_loss == OnLoss::Restart);
        let restarting = restarting.map(name).collect();
        let handles = servers.iter().map(|it| (name(it), it.handles)).collect();
        let tools = servers.iter().map(|it| (name(it), it.tools.clone())).collect();
        let views = Visibility::new(servers.iter().map(|it| (name(it), it.claims.clone())));
        let sights = ToolViews::default();
        let identify =
            Arc::new(identify_rules::IdentifyRules { configured, handles, expiry, sights });
        let servers: BTreeMap<_, _> =
            servers.into_iter().map(|it| (name(&it), it.server)).collect();
        let aggregate = Arc::new(Aggregate::new(servers.keys().map(String::as_str)));
        Self { servers, tools, views: views.into(), restarting, aggregate, identify }
    }
}

impl AppState {
    /// The same house with other servers.
    pub(crate) fn furnished(&self, furnishing: ServerSet) -> Self {
        let ServerSet { servers, tools, views, restarting, aggregate, identify } = furnishing;
        // Whoever brings servers along keeps them, however the others are configured.
        let (latest, removed) = (Arc::default(), Arc::default());
        Self {
            servers,
            tools,
            views,
            restarting,
            aggregate,
            identify,
            latest,
            removed,
            number: 0,
            ..self.clone()
        }
    }

    /// Why there is no link, in words for a client. What the server's process wrote, and paths, are told to
    /// whoever runs it alone.
    pub(crate) fn blame(&self, error: &stayput_upstream::OpenError) -> String {
        if !matches!(error, stayput_upstream::OpenError::Resting { .. }) {
            self.log.warn(&error.to_string());
        }
        error.brief()
    }

    /// The session of a connection, in use. One that is over is begun anew, and the loss is told.
    pub(crate) async fn session(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<ActiveSession, SessionOpenError> {
        match self.sessions.find_by_id(owner, id).await {
            // In a box, as all that is rare: every call would have to be as large.
            Err(SessionOpenError::HeldElsewhere { .. } | SessionOpenError::Ended(_)) => {
                Box::pin(self.patiently(|| self.found_or_revived(owner, id))).await
            }
            found => found,
        }
    }

    async fn found_or_revived(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<ActiveSession, SessionOpenError> {
        match self.sessions.find_by_id(owner, id).await {
            Err(SessionOpenError::Ended(over)) => {
                if over.ended.is_some_and(|ended| ended.reason == EndReason::Closed) {
                    // Somebody ended it on purpose: it is not for us to call it back.
                    return Err(SessionOpenError::Ended(over));
                }
                // What is left of its former life goes before the next one begins.
                let _ = self.links.end(id).await;
                match self.sessions.revive(owner, id).await {
                    // Its name has a session again, which is the one that is meant.
                    Err(SessionOpenError::Store(StoreError::Taken { by })) => {
                        self.sessions.find_by_id(owner, by).await
                    }
                    revived => revived.map(|OpenedSession { session, .. }| session),
                }
            }
            found => found,
        }
    }

    /// What `attempt` gives. A session that another process has is waited for.
    pub(crate) async fn patiently<T, A>(
        &self,
        attempt: impl Fn() -> A,
    ) -> Result<T, SessionOpenError>
    where
        A: Future<Output = Result<T, SessionOpenError>>,
    {
        let mut waited = Duration::ZERO;
        loop {
            match attempt().await {
                Err(SessionOpenError::HeldElsewhere { .. }) if waited < TAKEOVER => {
                    tokio::time::sleep(PAUSE).await;
                    waited += PAUSE;
                }
                found => return found,
            }
        }
    }
}

impl fmt::Debug for AppState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppState")
            .field("servers", &self.servers.keys())
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}
