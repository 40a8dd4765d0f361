//! Opening of links: shared resources once, the handshake per link.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_http::Worker;
use stayput_http::{Client, ClientSettings, Proxy, Target, Trust};
use stayput_process::{Processes, Program, StartError};
use stayput_sync::Mutex;
use stayput_wire::Era;
use tokio::{runtime::Handle, time::Instant};

use crate::{
    Attachment, Budget, ClientInfo, Endpoint, Expansion, Identity, InitializeResult, Launch, Link,
    LinkOpenError, LossReason, Profile, ResolvedTransport, Scope, Server, ServerProtocol,
    SessionDirs,
    budget::link_permit::LinkPermit,
    link::{
        Core, LinkTransport, NegotiatedProtocol, PoolContext,
        transport::{
            sse::{self, Sse},
            stdio::Pump,
            streamable::{self, LinkRoute, Route, Routes, ServerSession, Streamable},
        },
    },
    open::{
        handshake::{self, HandshakeAttempt, HandshakeError},
        started_child::StartedChild,
    },
    util::flag::CompletionGuard,
};

/// Opens links. Expensive resources are created once and shared: HTTP clients with their connections, and the
/// process starter.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) runtime: Handle,
    pub(crate) processes: Processes,
    pub(crate) folders: SessionDirs,
    pub(crate) budget: Budget,
    /// Runtime and budget, shared by links.
    home: Arc<PoolContext>,
    clients: Mutex<HashMap<(Trust, Proxy), Client>>,
    pools: Mutex<HashMap<(Arc<str>, Identity), ClientPool>>,
    routes: Routes,
    /// Largest message, in bytes.
    limit: usize,
}

/// Connections to one server with one set of credentials.
#[derive(Debug)]
struct ClientPool {
    client: Client,
    /// Time at which a route last used them.
    since: Instant,
}

/// Parameters of a link to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRequest<'a> {
    pub(crate) server: &'a Server,
    pub(crate) scope: &'a Scope,
    pub(crate) client_info: &'a ClientInfo,
}

/// Resource that a link is opened with.
#[derive(Debug)]
pub(crate) enum LinkResource {
    /// Budget permit.
    LinkPermit(LinkPermit),
    /// Running process with its permit.
    Spare(StartedChild),
}

/// Link before its handshake. On drop it is ended, so that cancellation always takes effect.
pub(crate) struct Raw(Option<Arc<Core>>);

impl Raw {
    fn core(&self) -> Option<&Arc<Core>> {
        self.0.as_ref()
    }

    fn into_link(mut self, initialize_result: InitializeResult) -> Option<Link> {
        self.0.take().map(|core| {
            let initialize_result = core.server.last_initialize_result(initialize_result);
            Link::new(core, initialize_result)
        })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.leave();
            core.transport.begin_close(&core, LossReason::Released);
        }
    }
}

impl Opener {
    pub(crate) fn new(
        runtime: Handle,
        processes: Processes,
        folders: SessionDirs,
        budget: Budget,
        limit: usize,
    ) -> Self {
        let home = Arc::new(PoolContext {
            runtime: runtime.clone(),
            budget: budget.clone(),
            lists_changed: AtomicU64::default(),
        });
        let (clients, pools, routes) = (Mutex::default(), Mutex::default(), Routes::default());
        Self { runtime, processes, folders, budget, home, clients, pools, routes, limit }
    }

    /// Number of list changes that any server reported.
    pub(crate) fn lists_changed(&self) -> u64 {
        self.home.lists_changed.load(Ordering::Acquire)
    }

    /// Opens a link with a known transport and era, and performs its handshake.
    pub(crate) async fn open(
        &self,
        plan: OpenRequest<'_>,
        profile: &Profile,
        base: LinkResource,
    ) -> Result<Link, LinkOpenError> {
        let deadline = deadline(plan.server.options().timeouts.open);
        let raw = self.connect(plan, profile.protocol(), base, None).await?;
        if profile.protocol() == ServerProtocol::Modern {
            // Every modern request is self-contained: no handshake is needed.
            let initialize_result = profile.initialize_result().clone();
            if let Some(core) = raw.core() {
                let protocol =
                    NegotiatedProtocol::new(initialize_result.version().clone(), plan.client_info);
                for page in profile.pages("tools/list") {
                    protocol.learn_tools(str::from_utf8(page).unwrap_or_default());
                }
                let _ = core.protocol.set(protocol);
            }
            return raw.into_link(initialize_result).ok_or_else(|| ended(plan.server));
        }
        let attempt = HandshakeAttempt::Only(ServerProtocol::Legacy);
        perform_handshake(raw, plan, attempt, deadline)
            .await
            .map_err(|refusal| refusal.into_error())
    }

    /// Resumes a server-side session without a request.
    pub(crate) async fn resume(
        &self,
        plan: OpenRequest<'_>,
        permit: LinkPermit,
        attachment: &Attachment,
    ) -> Result<Link, LinkOpenError> {
        let session = session(attachment).ok_or_else(|| ended(plan.server))?;
        let raw = self
            .connect(plan, ServerProtocol::Legacy, LinkResource::LinkPermit(permit), Some(session))
            .await?;
        if let Some(core) = raw.core() {
            let _ = core
                .protocol
                .set(NegotiatedProtocol::new(attachment.version.clone(), plan.client_info));
        }
        raw.into_link(InitializeResult::new(
            attachment.version.clone(),
            &attachment.initialize_result,
        ))
        .ok_or_else(|| ended(plan.server))
    }

    /// Deletes a server-side session without a link.
    pub(crate) async fn delete_upstream_session(
        &self,
        plan: OpenRequest<'_>,
        attachment: &Attachment,
    ) -> Result<(), LinkOpenError> {
        let expansion = self.folders.expansion(plan.server, plan.scope).await?;
        // The id is a secret of the server that it came from, which may be configured otherwise by now.
        if plan.server.identity(&expansion) != attachment.identity {
            return Ok(());
        }
        let ResolvedTransport::Http(endpoint) = plan.server.resolve(&expansion)? else {
            return Ok(());
        };
        let Some(session) = session(attachment) else { return Ok(()) };
        let wire = self.wire(plan, endpoint, &expansion)?;
        streamable::delete(&wire, &attachment.version, &session).await;
        Ok(())
    }

    /// Opens a link to probe the server. After a failure, waits until the link is gone, so that the next
    /// attempt starts afterwards. `limit` applies to the handshake.
    pub(crate) async fn discover(
        &self,
        plan: OpenRequest<'_>,
        attempt: HandshakeAttempt,
        permit: LinkPermit,
        limit: Duration,
    ) -> Result<Link, HandshakeError> {
        let start = deadline(plan.server.options().timeouts.open);
        let protocol = match attempt {
            HandshakeAttempt::Only(protocol) => protocol,
            HandshakeAttempt::ModernOrLegacy => ServerProtocol::Modern,
        };
        let raw = self.connect(plan, protocol, LinkResource::LinkPermit(permit), None).await;
        let raw = raw.map_err(HandshakeError::Failed)?;
        let core = raw.core().cloned();
        let result = perform_handshake(raw, plan, attempt, start.min(deadline(limit))).await;
        if result.is_err()
            && let Some(core) = core
        {
            core.gone.wait().await;
        }
        result
    }

    /// Returns the values for a link and creates its directories. If the future is dropped, the task keeps
    /// `trace` until the directories are created.
    pub(crate) async fn expansion(
        &self,
        server: &Server,
        scope: &Scope,
        completion: Option<&CompletionGuard>,
    ) -> Result<Expansion, LinkOpenError> {
        if !server.uses_session_dir() {
            return Ok(self.folders.expansion(server, scope).await?);
        }
        let (folders, of, scope) = (self.folders.clone(), server.clone(), scope.clone());
        let completion = completion.cloned();
        let task = self.runtime.spawn(async move {
            let expansion = folders.expansion(&of, &scope).await;
            drop(completion);
            expansion
        });
        Ok(task.await.map_err(|_| ended(server))??)
    }

    /// Identity of a profile. It needs no session directory.
    pub(crate) async fn profile_identity(
        &self,
        server: &Server,
        scope: &Scope,
    ) -> Result<Identity, LinkOpenError> {
        self.profile_identity_for(server.preferred_era(), server, scope).await
    }

    /// Identity of the profile that is learned in this era first.
    pub(crate) async fn profile_identity_for(
        &self,
        preferred: Era,
        server: &Server,
        scope: &Scope,
    ) -> Result<Identity, LinkOpenError> {
        let mut expansion = Expansion::new(scope);
        if server.uses_owner_dir() {
            let (folders, of, scope) = (self.folders.clone(), server.clone(), scope.clone());
            let create = move || folders.owner_dir(&scope, of.name());
            let folder = self.runtime.spawn_blocking(create).await;
            expansion = expansion.with_owner_dir(folder.map_err(|_| ended(server))??);
        }
        Ok(server.profile_identity_for(preferred, &expansion))
    }

    /// Starts a process, or connects to an HTTP server.
    async fn connect(
        &self,
        plan: OpenRequest<'_>,
        protocol: ServerProtocol,
        base: LinkResource,
        session: Option<ServerSession>,
    ) -> Result<Raw, LinkOpenError> {
        let expansion = match &base {
            LinkResource::LinkPermit(permit) => {
                self.expansion(plan.server, plan.scope, permit.completion()).await?
            }
            LinkResource::Spare(_) => self.folders.expansion(plan.server, plan.scope).await?,
        };
        match (plan.server.resolve(&expansion)?, base) {
            (ResolvedTransport::Stdio(_), LinkResource::Spare(spare)) => {
                self.over_pipes(plan, spare)
            }
            (ResolvedTransport::Stdio(launch), LinkResource::LinkPermit(permit)) => {
                let started = self.start(plan.server, &launch, move || Some(permit)).await?;
                self.over_pipes(plan, started)
            }
            (ResolvedTransport::Http(endpoint), LinkResource::LinkPermit(permit))
                if protocol != ServerProtocol::Sse =>
            {
                let wire = self.wire(plan, endpoint, &expansion)?;
                let transport = LinkTransport::Streamable(Streamable::new(wire, session));
                Ok(Raw(Some(self.core(plan, transport, permit))))
            }
            (
                ResolvedTransport::Http(endpoint) | ResolvedTransport::Sse(endpoint),
                LinkResource::LinkPermit(permit),
            ) => {
                let wire = self.wire(plan, endpoint, &expansion)?;
                self.over_sse(plan, wire, permit).await
            }
            // Spares are always processes.
            (ResolvedTransport::Http(_) | ResolvedTransport::Sse(_), LinkResource::Spare(_)) => {
                Err(ended(plan.server))
            }
        }
    }

    /// Starts the process of a server. If the future is dropped, the process is ended and its permit freed
    /// afterwards.
    pub(crate) async fn start(
        &self,
        server: &Server,
        launch: &Launch,
        permit: impl FnOnce() -> Option<LinkPermit> + Send + 'static,
    ) -> Result<StartedChild, LinkOpenError> {
        let program = Program {
            command: launch.command.clone(),
            args: launch.args.clone(),
            env: launch.env.clone(),
            cwd: launch.cwd.clone(),
        };
        let (processes, runtime) = (self.processes.clone(), self.runtime.clone());
        let started = Worker::runtime_or(&self.runtime).spawn(async move {
            let child = processes.start_here(&program).await?;
            let permit = permit().ok_or(StartError::Closed)?;
            Ok(StartedChild::new(child, permit, runtime))
        });
        // The task is cancelled only when its runtime shuts down.
        let started = started.await.unwrap_or(Err(StartError::Closed));
        started.map_err(|error| LinkOpenError::Start { server: server.name().to_owned(), error })
    }

    fn over_pipes(
        &self,
        plan: OpenRequest<'_>,
        started: StartedChild,
    ) -> Result<Raw, LinkOpenError> {
        let server = plan.server;
        let (child, permit) = started.take().ok_or_else(|| ended(server))?;
        let pump = Pump::new(child, self.limit, |stdio| {
            self.core(plan, LinkTransport::Stdio(stdio), permit)
        });
        let pump = pump.map_err(|error| LinkOpenError::Protocol {
            server: server.name().to_owned(),
            what: error.to_string(),
        })?;
        let core = pump.core().clone();
        Worker::runtime_or(&self.runtime).spawn(pump.run(server.options().grace));
        Ok(Raw(Some(core)))
    }

    async fn over_sse(
        &self,
        plan: OpenRequest<'_>,
        wire: LinkRoute,
        permit: LinkPermit,
    ) -> Result<Raw, LinkOpenError> {
        let name = plan.server.name().to_owned();
        let limit = plan.server.options().timeouts.open;
        let connected = tokio::time::timeout(limit, sse::connect(wire)).await;
        let (transport, stream) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(LinkOpenError::of_first_call(&name, error)),
            Err(_) => {
                let method = "the stream of events".to_owned();
                let hint = String::new();
                let not_messages = 0;
                return Err(LinkOpenError::Silent {
                    server: name,
                    method,
                    limit,
                    not_messages,
                    hint,
                });
            }
        };
        let core = self.core(plan, LinkTransport::Sse(transport), permit);
        Sse::start(&core, stream);
        Ok(Raw(Some(core)))
    }

    fn core(
        &self,
        plan: OpenRequest<'_>,
        transport: LinkTransport,
        permit: LinkPermit,
    ) -> Arc<Core> {
        let shared = plan.scope.session().is_none();
        Core::new(plan.server.clone(), transport, self.home.clone(), permit, shared)
    }

    fn wire(
        &self,
        plan: OpenRequest<'_>,
        endpoint: Endpoint,
        expansion: &Expansion,
    ) -> Result<LinkRoute, LinkOpenError> {
        let (server, scope) = (plan.server, plan.scope.clone());
        let route =
            self.routes.get(server, expansion, || self.route(server, endpoint, expansion))?;
        Ok(LinkRoute { route, scope })
    }

    fn route(
        &self,
        server: &Server,
        endpoint: Endpoint,
        expansion: &Expansion,
    ) -> Result<Route, LinkOpenError> {
        let client = self.client(server, &endpoint, expansion)?;
        let target = Target::parse(endpoint.url.as_str());
        let target = target.map_err(|error| LinkOpenError::Protocol {
            server: server.name().to_owned(),
            what: error.to_string(),
        })?;
        Ok(Route { client, target, endpoint, server: server.clone(), limit: self.limit })
    }

    /// Returns a client. Links to the same server with the same credentials share its connections, other
    /// links do not: data that the server writes to a used connection could reach the next user.
    fn client(
        &self,
        server: &Server,
        endpoint: &Endpoint,
        expansion: &Expansion,
    ) -> Result<Client, LinkOpenError> {
        let base = self.base_client(endpoint, server.options().timeouts.connect)?;
        // No other link has the same credentials.
        if server.depends_on_session() {
            return Ok(base.with_own_pool());
        }
        let (now, key) = (Instant::now(), (server.shared_name(), server.identity(expansion)));
        let mut pools = self.pools.lock();
        // By then the idle connections have timed out. While a link uses a client, further links get it from the route of
        // that link, and do not come here.
        let idle = ClientSettings::default().idle;
        pools.retain(|_, it| now.duration_since(it.since) < idle);
        let pooled = pools
            .entry(key)
            .or_insert_with(|| ClientPool { client: base.with_own_pool(), since: now });
        pooled.since = now;
        Ok(pooled.client.clone())
    }

    /// Returns the base client for this trust and proxy, from which the others are derived.
    fn base_client(&self, endpoint: &Endpoint, connect: Duration) -> Result<Client, LinkOpenError> {
        let key = (endpoint.trust.clone(), endpoint.proxy.clone());
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = Client::new(&ClientSettings {
            trust: endpoint.trust.clone(),
            proxy: endpoint.proxy.clone(),
            connect,
            runtime: Some(self.runtime.clone()),
            ..ClientSettings::default()
        })?;
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// Sends the first requests on a transport, in the order of the attempt, and returns the link once the server has answered.
async fn perform_handshake(
    raw: Raw,
    plan: OpenRequest<'_>,
    attempt: HandshakeAttempt,
    deadline: Instant,
) -> Result<Link, HandshakeError> {
    let failed = || HandshakeError::Failed(ended(plan.server));
    let core = raw.core().ok_or_else(failed)?;
    let limit = deadline.saturating_duration_since(Instant::now());
    let initialize_result = match attempt {
        HandshakeAttempt::Only(ServerProtocol::Legacy | ServerProtocol::Sse) => {
            handshake::initialize(core, plan.client_info, limit).await?
        }
        HandshakeAttempt::Only(ServerProtocol::Modern) => {
            handshake::discover(core, plan.client_info, limit).await?
        }
        HandshakeAttempt::ModernOrLegacy => {
            handshake::discover_or_initialize(core, plan.client_info, limit).await?
        }
    };
    raw.into_link(initialize_result).ok_or_else(failed)
}

fn deadline(limit: Duration) -> Instant {
    crate::link::expiry(limit)
}

fn ended(server: &Server) -> LinkOpenError {
    LinkOpenError::Ended { server: server.name().to_owned() }
}

/// Session id of the server.
fn session(attachment: &Attachment) -> Option<ServerSession> {
    ServerSession::new(attachment.session.as_deref()?.as_bytes())
}
