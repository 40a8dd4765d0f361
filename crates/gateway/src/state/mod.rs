//! Application state: shared services and the current configuration.

mod connections;
pub(crate) mod drain;
pub(crate) mod health;
pub(crate) mod identify_rules;
mod metrics_page;
pub(crate) mod roster;
pub(crate) mod session_index;
mod sessions;
pub(crate) mod shared_generations;
pub(crate) mod shared_servers;
pub(crate) mod snapshot;
pub(crate) mod visibility;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use stayput_core::{
    ActiveSession, EndReason, EventIds, Expiry, OpenedSession, Owner, SessionId, SessionOpenError,
    Sessions, StoreError,
};
use stayput_engine::Engine;
use stayput_upstream::{Links, Server};
use tokio::sync::watch;

use crate::{
    auth::{
        Authenticator, Principal, body_budget::BodyBudget, call_limit::CallLimiter, login::Logins,
        rate_limit::RateLimiter,
    },
    catalog::{
        index::Indexes,
        list::{MergedPage, PageFacts},
        list_cache::ListCache,
        names::Names,
        tool_view::ToolViews,
    },
    cluster::Cluster,
    config::{Identify, Limits, OnLoss, ServerEntry, Tls, ToolFilter},
    connections::{
        legacy_clients::LegacyClients, question_ids::QuestionIds, registry::Connections,
        stream_cache::StreamCache,
    },
    observe::{Observers, metrics::Metrics, recent::RecentActivity},
    reply::loss::LossAcknowledgements,
    state::{
        drain::Drain, health::Health, roster::ServerOutages, session_index::SessionIndex,
        shared_generations::SharedGenerations, shared_servers::ServerClaims,
        snapshot::CurrentSnapshot, visibility::Visibility,
    },
};

/// Time to wait for a session that another process holds, beyond the lease: a process that was killed holds it until
/// its lease ends.
const TAKEOVER: Duration = Duration::from_secs(25);

/// Poll interval of that wait.
const TAKEOVER_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Application state: a snapshot of the configuration, and the services of the process.
///
/// A snapshot does not change. A reload makes the next one the current one ([`snapshot`]), and calls in flight finish
/// with theirs. A client that does not see all servers, or brings its own, gets another snapshot of the same services.
#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) services: Arc<Services>,
    pub(crate) servers: BTreeMap<String, Server>,
    /// Filter of the tools of each server.
    pub(crate) tools: BTreeMap<String, ToolFilter>,
    /// Visibility of the servers for each client.
    pub(crate) visibility: Arc<Visibility>,
    /// Servers that get a call again after a loss if the call surely did not run (`on_loss` is `restart`).
    pub(crate) restarting: BTreeSet<String>,
    pub(crate) aggregate: Arc<Aggregate>,
    /// Lists as clients see them.
    pub(crate) lists: Arc<CachedLists>,
    pub(crate) rules: RequestRules,
    /// Authentication.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Request rate limit of each owner.
    pub(crate) rate_limiter: Arc<RateLimiter>,
    /// Rules that find the session of a request.
    pub(crate) identify: Arc<identify_rules::IdentifyRules>,
    pub(crate) metrics: Arc<Metrics>,
    /// Servers that a reload has removed.
    pub(crate) removed: Arc<BTreeSet<String>>,
    /// Current snapshot after a reload.
    pub(crate) current: Arc<CurrentSnapshot>,
    /// Number of this snapshot, increased by each reload.
    pub(crate) number: u64,
}

/// Services that live as long as the process.
pub(crate) struct Services {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    /// The same sessions and links, joined.
    pub(crate) engine: Engine,
    pub(crate) connections: Connections,
    /// Clients of the HTTP+SSE transport of 2024-11-05.
    pub(crate) legacy_clients: LegacyClients,
    /// Loss acknowledgements that are being written to the store.
    pub(crate) loss_acknowledgements: LossAcknowledgements,
    /// Generations of shared links that each user has seen.
    pub(crate) generations: SharedGenerations,
    /// Processes that this replica holds for several sessions.
    pub(crate) server_claims: Arc<ServerClaims>,
    /// Event streams that have ended, of all connections.
    pub(crate) stream_cache: StreamCache,
    pub(crate) ids: EventIds,
    pub(crate) question_ids: Arc<QuestionIds>,
    /// Limit of calls in flight without a session.
    pub(crate) call_limiter: Arc<CallLimiter>,
    /// Memory budget of request bodies.
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) health: Health,
    pub(crate) drain: Drain,
    /// Other gateways on the same store, if they cooperate.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Last calls, events and samples, for the dashboard.
    pub(crate) recent: RecentActivity,
    /// Sessions as the dashboard lists them.
    pub(crate) session_index: SessionIndex,
    /// Logins of browsers at the dashboard.
    pub(crate) logins: Logins<Principal>,
    /// Audit log and spans, if configured.
    pub(crate) observers: Option<Arc<Observers>>,
    /// True when the gateway is about to stop: event streams end.
    pub(crate) closing: watch::Receiver<bool>,
}

impl Deref for AppState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// State of `/mcp`, where all servers are behind one path.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    pub(crate) names: Names,
    pub(crate) indexes: Indexes,
    pub(crate) absences: ServerOutages,
}

impl Aggregate {
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        Self { names: Names::new(servers), ..Self::default() }
    }
}

/// Parts of a snapshot that follow from the configuration besides its servers.
pub(crate) struct ConfiguredRules {
    pub(crate) rules: RequestRules,
    pub(crate) authenticator: Authenticator,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) metrics: Metrics,
}

/// Limits and rules for requests of clients.
#[derive(Clone, Debug)]
pub(crate) struct RequestRules {
    /// Certificate and key of the HTTP listener, if it uses TLS.
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: Limits,
    /// Public URL of the gateway.
    pub(crate) public_url: Option<String>,
    /// Allowed hosts and origins in addition to those of this machine.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    /// Whether the dashboard shows the arguments of calls.
    pub(crate) show_arguments: bool,
    /// Time after which the answer of a call becomes a stream that can be resumed.
    pub(crate) stream_after: Duration,
}

impl Default for RequestRules {
    fn default() -> Self {
        Self {
            tls: None,
            limits: Limits::default(),
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            show_arguments: false,
            stream_after: Duration::from_millis(1_500),
        }
    }
}

/// Servers, with everything that follows from their configuration.
pub(crate) struct ServerSet {
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) tools: BTreeMap<String, ToolFilter>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) restarting: BTreeSet<String>,
    pub(crate) aggregate: Arc<Aggregate>,
    pub(crate) identify: Arc<identify_rules::IdentifyRules>,
}

/// Lists as clients see them. A new configuration begins with empty caches.
#[derive(Debug, Default)]
pub(crate) struct CachedLists {
    /// Pages of one server.
    pub(crate) pages: ListCache<Bytes>,
    /// Merged pages of all servers.
    pub(crate) merged: ListCache<Arc<MergedPage>>,
    /// Facts about pages.
    pub(crate) facts: ListCache<PageFacts>,
}

impl ServerSet {
    pub(crate) fn new(servers: Vec<ServerEntry>, configured: Identify, expiry: Expiry) -> Self {
        let name = |it: &ServerEntry| it.server.name().to_owned();
        let restarting = servers.iter().filter(|it| it.on_loss == OnLoss::Restart);
        let restarting = restarting.map(name).collect();
        let handles = servers.iter().map(|it| (name(it), it.handles)).collect();
        let tools = servers.iter().map(|it| (name(it), it.tools.clone())).collect();
        let visibility = Visibility::new(servers.iter().map(|it| (name(it), it.claims.clone())));
        let tool_views = ToolViews::default();
        let identify =
            Arc::new(identify_rules::IdentifyRules { configured, handles, expiry, tool_views });
        let servers: BTreeMap<_, _> =
            servers.into_iter().map(|it| (name(&it), it.server)).collect();
        let aggregate = Arc::new(Aggregate::new(servers.keys().map(String::as_str)));
        Self { servers, tools, visibility: visibility.into(), restarting, aggregate, identify }
    }
}

impl AppState {
    /// Builds the first snapshot, with the services of the process.
    pub(crate) fn new(services: Services, server_set: ServerSet, rules: ConfiguredRules) -> Self {
        let ServerSet { servers, tools, visibility, restarting, aggregate, identify } = server_set;
        let ConfiguredRules { rules, authenticator, rate_limiter, metrics } = rules;
        Self {
            services: services.into(),
            servers,
            tools,
            visibility,
            restarting,
            aggregate,
            lists: Arc::default(),
            rules,
            authenticator: authenticator.into(),
            rate_limiter: rate_limiter.into(),
            identify,
            metrics: metrics.into(),
            removed: Arc::default(),
            current: Arc::default(),
            number: 0,
        }
    }

    /// Returns a snapshot with other servers.
    pub(crate) fn with_servers(&self, server_set: ServerSet) -> Self {
        let ServerSet { servers, tools, visibility, restarting, aggregate, identify } = server_set;
        // A client that brings its own servers keeps them across reloads, so the copy gets a snapshot history of its
        // own.
        let (current, removed) = (Arc::default(), Arc::default());
        let number = 0;
        Self {
            servers,
            tools,
            visibility,
            restarting,
            aggregate,
            lists: Arc::default(),
            identify,
            current,
            removed,
            number,
            ..self.clone()
        }
    }

    /// Describes why there is no link, in words for a client. Paths and the output of the server's process are only
    /// logged.
    pub(crate) fn describe_open_error(&self, error: &stayput_upstream::LinkOpenError) -> String {
        if !matches!(error, stayput_upstream::LinkOpenError::BackingOff { .. }) {
            tracing::warn!("{error}");
        }
        // A client whose own server it is sees its stderr anyway, and needs the reason.
        let own = error.server().and_then(|name| self.servers.get(name)?.stderr_sink());
        match own.and_then(|_| error.last_output_line()) {
            Some(line) => format!("{}; its last line: {line}", error.brief()),
            None => error.brief(),
        }
    }

    /// Returns the session of a connection, in use. An expired session is revived, and its loss is reported.
    pub(crate) async fn session(
        &self,
        owner: &Owner,
        id: SessionId,
    ) -> Result<ActiveSession, SessionOpenError> {
        match self.sessions.find_by_id(owner, id).await {
            // Boxed because it is rare: otherwise the future of every call would be as large.
            Err(SessionOpenError::HeldElsewhere { .. } | SessionOpenError::Ended(_)) => {
                Box::pin(self.wait_for_holder(|| self.found_or_revived(owner, id))).await
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
                    // It was closed on purpose, so it is not revived.
                    return Err(SessionOpenError::Ended(over));
                }
                // Links of the former incarnation end before the next one begins.
                let _ = self.links.end(id).await;
                match self.sessions.revive(owner, id).await {
                    // Its key has a new session, which is the one to use.
                    Err(SessionOpenError::Store(StoreError::Taken { by })) => {
                        self.sessions.find_by_id(owner, by).await
                    }
                    revived => revived.map(|OpenedSession { session, .. }| session),
                }
            }
            found => found,
        }
    }

    /// Repeats `attempt` while another process holds the session.
    pub(crate) async fn wait_for_holder<T, A>(
        &self,
        attempt: impl Fn() -> A,
    ) -> Result<T, SessionOpenError>
    where
        A: Future<Output = Result<T, SessionOpenError>>,
    {
        let limit = self.sessions.settings().lease.saturating_add(TAKEOVER);
        let mut waited = Duration::ZERO;
        loop {
            match attempt().await {
                // The request is forwarded to a process with an address.
                Err(SessionOpenError::HeldElsewhere { holder })
                    if waited < limit && (self.cluster.is_none() || holder.address.is_empty()) =>
                {
                    tokio::time::sleep(TAKEOVER_POLL_INTERVAL).await;
                    waited += TAKEOVER_POLL_INTERVAL;
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
