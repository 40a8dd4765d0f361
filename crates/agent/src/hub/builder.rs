//! Builder of a hub.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_config::{ConfigError, OnLoss};
use stayput_core::{
    Agent, Clock as _, Expiry, Holder, MemoryStore, Owner, SessionId, SessionLimits, Sessions,
    Settings, Store, SystemClock,
};
use stayput_engine::Engine;
use stayput_process::{Processes, WardenCommand};
use stayput_upstream::{
    Limits, LinkSettings, Links, Options, PerOwner, SealKey, Server, SessionDirs, TransportConfig,
};
use tokio::{runtime::Handle, sync::broadcast};

use super::{
    Hub, HubInner,
    close::HubResources,
    default_session::DefaultSessions,
    gateway::Gateway,
    headers::{HeaderTable, Headers},
    servers::{HubServer, Servers, check_name},
    thread::HubThread,
};
use crate::{Error, events::LossLog, handlers::Handlers};

/// Default time after which the lease on a persistent store runs out unless it is renewed.
#[cfg(feature = "stores")]
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// Shortest lease.
#[cfg(feature = "stores")]
const MIN_LEASE: Duration = Duration::from_secs(1);

/// Interval at which ended sessions are cleaned up.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Capacity of the event channel; a subscriber that is further behind misses the oldest events.
const EVENT_CAPACITY: usize = 256;

/// Id of the next hub. Scopes use it to find out which hub they belong to.
static NEXT_HUB_ID: AtomicU64 = AtomicU64::new(1);

/// Configuration of a hub. See [`Hub::builder`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    servers: Vec<(String, Result<HubServer, Error>)>,
    on_loss: Vec<(String, OnLoss)>,
    warm: Vec<(String, usize)>,
    #[cfg(feature = "stores")]
    store: Option<String>,
    #[cfg(feature = "stores")]
    lease: Option<Duration>,
    warnings: Vec<String>,
    takeover_timeout: Option<Duration>,
    folders: Option<PathBuf>,
    limits: Option<Limits>,
    expiry: Option<Expiry>,
    handlers: Handlers,
    headers: Option<Headers>,
    gateway: Option<Gateway>,
    warden: Option<WardenCommand>,
    runtime: Option<Handle>,
}

impl Builder {
    pub(super) fn connected(url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let gateway = Some(Gateway { url, token: None });
        Self { gateway, ..Self::default() }
    }

    /// Sets the bearer token with which the hub authenticates at the gateway, see [`Hub::connect`].
    pub fn token(mut self, token: &str) -> Self {
        if let Some(gateway) = &mut self.gateway {
            gateway.token = Some(token.to_owned());
        }
        self
    }

    /// Adds a server: [`Stdio`](crate::Stdio) or [`Http`](crate::Http). It is started by the first call.
    pub fn server(self, name: &str, transport: impl Into<TransportConfig>) -> Self {
        self.server_with(name, transport, Options::default())
    }

    /// Adds a server with options.
    pub fn server_with(
        mut self,
        name: &str,
        transport: impl Into<TransportConfig>,
        options: Options,
    ) -> Self {
        let server = check_name(name).and_then(|()| Ok(Server::with(name, transport, options)?));
        self.servers.push((name.to_owned(), server.map(HubServer::new)));
        self
    }

    /// Adds the servers of an existing configuration file: `mcpServers`, or VS Code's `servers`, with comments,
    /// `${NAME}` and a `stayput` object per entry. Settings at the top of the file concern only the gateway.
    ///
    /// [`Hub::warnings`] lists the entries that were ignored, such as Stayput itself.
    pub fn config(self, path: impl AsRef<Path>) -> Self {
        let servers = stayput_config::Servers::load(path.as_ref());
        self.add_configured(servers)
    }

    /// Adds the servers of a configuration text, see [`Builder::config`]. Relative paths in it are resolved
    /// against the folder of `origin`, the path that errors mention.
    pub fn config_text(self, text: &str, origin: impl AsRef<Path>) -> Self {
        self.add_configured(stayput_config::Servers::parse(text, origin.as_ref()))
    }

    fn add_configured(mut self, servers: Result<stayput_config::Servers, ConfigError>) -> Self {
        match servers {
            Ok(servers) => {
                self.warnings.extend(servers.warnings);
                let found = servers.entries.into_iter();
                self.servers.extend(found.map(|it| (it.server.name().to_owned(), Ok(it.into()))));
            }
            Err(error) => self.servers.push((String::new(), Err(error.into()))),
        }
        self
    }

    /// Sets how calls to this server react to a loss of state. By default they fail, and the agent decides.
    pub fn on_loss(mut self, server: &str, on_loss: OnLoss) -> Self {
        self.on_loss.push((server.to_owned(), on_loss));
        self
    }

    /// Keeps this many processes of a server ready before a session needs them. Each one serves one session, and is
    /// then replaced. Defaults to none, or to `warm` in the configuration file. A server behind a URL has no processes,
    /// so that [`Builder::build`] fails.
    pub fn warm(mut self, server: &str, count: usize) -> Self {
        self.warm.push((server.to_owned(), count));
        self
    }

    /// Stores sessions under this URL, such as `sqlite:sessions.db`, so that another process can continue them.
    /// Defaults to memory.
    #[cfg(feature = "stores")]
    pub fn store(mut self, url: &str) -> Self {
        self.store = Some(url.to_owned());
        self
    }

    /// Sets the lease on the store: the time for which this hub may use its sessions while the store cannot be reached,
    /// less a tenth, and for which another process waits for the sessions of a killed one. Defaults to 15 seconds.
    #[cfg(feature = "stores")]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the time to wait for a session that another process holds, before [`Error::SessionHeldElsewhere`]. By default it
    /// is a little longer than the lease, so that the sessions of a killed process are taken over.
    #[cfg(feature = "stores")]
    pub fn takeover_timeout(mut self, timeout: Duration) -> Self {
        self.takeover_timeout = Some(timeout);
        self
    }

    /// Creates the private folders of sessions, `${session.dir}`, here instead of in a temporary folder.
    pub fn folders(mut self, root: impl Into<PathBuf>) -> Self {
        self.folders = Some(root.into());
        self
    }

    /// Limits the number of links and processes, and their memory.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets when sessions expire. Defaults to 30 minutes without use and 24 hours in total.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Sets the handlers for requests of servers: elicitation, sampling, roots. By default the hub declares none of
    /// these capabilities.
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// Asks this callback for headers before each request to an HTTP server. Each session has its own links then, so that
    /// no request has the credentials of another session. [`Hub::set_headers`] and
    /// [`Session::set_headers`](crate::Session::set_headers) override it.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Starts and ends child processes by a warden, a separate process that runs this command. Without it, a
    /// watchdog ends them if this process is killed.
    pub fn warden(mut self, command: WardenCommand) -> Self {
        self.warden = Some(command);
        self
    }

    /// Runs links on this runtime instead of on the hub's own thread. They end with the runtime.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Builds the hub. Blocks until the store is open.
    ///
    /// # Errors
    /// If the configuration of a server is wrong, or the store or the folders cannot be used.
    pub fn build(mut self) -> Result<Hub, Error> {
        let (gateway, headers) = (self.gateway.clone(), self.headers.take());
        let needed = headers.is_some() || gateway.is_some();
        let headers = needed.then(|| HeaderTable::new(headers, gateway.is_some()));
        let servers = self.servers(headers.as_ref())?;
        let handlers = Arc::new(std::mem::take(&mut self.handlers));
        let takeover_timeout = self.takeover_timeout;
        let (runtime, warnings) = (self.runtime.take(), std::mem::take(&mut self.warnings));
        let (thread, (resources, seal)) =
            HubThread::start(runtime, async move |handle| self.open(handle).await)
                .map_err(|StartError(error)| error)?;
        // Unique across processes.
        let incarnation = SessionId::generate(SystemClock.now()).to_string();
        let (sessions, links) = (resources.sessions.clone(), resources.links.clone());
        if let Some(headers) = &headers {
            headers.set_sessions(&resources.sessions);
        }
        let engine = Engine::new(sessions, links, seal, &incarnation);
        let inner = Arc::new(HubInner {
            id: NEXT_HUB_ID.fetch_add(1, Ordering::Relaxed),
            owner: resources.owner.clone(),
            sessions: resources.sessions.clone(),
            links: resources.links.clone(),
            resources,
            engine,
            servers,
            gateway,
            warnings,
            takeover_timeout,
            handlers,
            headers,
            losses: LossLog::default(),
            next_branch: AtomicU64::new(1),
            links_opened: AtomicU64::new(0),
            events: broadcast::channel(EVENT_CAPACITY).0,
            closed: AtomicBool::new(false),
            thread,
        });
        spawn_maintenance(&inner);
        inner.servers.all().iter().for_each(|entry| inner.links.warm(&entry.server));
        Ok(Hub { inner, agent: Agent::none() })
    }

    fn servers(&mut self, headers: Option<&Arc<HeaderTable>>) -> Result<Servers, Error> {
        let (servers, mut on_loss) = (Servers::default(), std::mem::take(&mut self.on_loss));
        let mut warm = std::mem::take(&mut self.warm);
        for (name, entry) in std::mem::take(&mut self.servers) {
            let mut entry = entry?;
            if let Some(headers) = headers {
                entry.server = headers.apply(&entry.server, &name);
            }
            for (_, chosen) in on_loss.extract_if(.., |(other, _)| *other == name) {
                entry.on_loss = chosen;
            }
            for (_, count) in warm.extract_if(.., |(other, _)| *other == name) {
                entry.server = entry.server.warmed(count)?;
            }
            if servers.insert(&Agent::none(), &name, entry).is_some() {
                return Err(Error::InvalidInput(format!("there are two servers `{name}`")));
            }
        }
        let unknown = on_loss.first().map(|(server, _)| ("on_loss", server));
        match unknown.or_else(|| warm.first().map(|(server, _)| ("warm", server))) {
            Some((key, server)) => Err(Error::InvalidInput(format!(
                "`{key}` is set for `{server}`, but there is no such server"
            ))),
            None => Ok(servers),
        }
    }

    async fn open(
        self,
        runtime: Handle,
    ) -> Result<((HubResources, SealKey), HubResources), StartError> {
        let processes = match self.warden.clone() {
            Some(command) => Processes::wardened(command, runtime.clone()),
            None => Processes::local(runtime.clone()),
        };
        let folders = match &self.folders {
            Some(root) => SessionDirs::new(root)?,
            None => SessionDirs::temporary()?,
        };
        let limits = self.limits.unwrap_or_else(single_owner_limits);
        let links = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
        let links = Links::new(links, runtime.clone());
        let (store, lease, seal) = self.open_store().await?;
        let mut settings = Settings { lease, restore: true, ..Settings::default() };
        // A hub has only one owner.
        settings.sessions = SessionLimits { per_owner: usize::MAX, ..settings.sessions };
        // The gateway decides when its sessions expire.
        let usual = if self.gateway.is_some() { Expiry::NEVER } else { settings.expiry };
        settings.expiry = self.expiry.unwrap_or(usual);
        let sessions =
            Sessions::start(store, Arc::new(SystemClock), Holder::unreachable(), settings);
        let sessions = sessions.await.map_err(|error| StartError(Error::invalid(error)))?;
        let resources = HubResources {
            owner: Owner::local(),
            sessions: Arc::new(sessions),
            links,
            default_sessions: DefaultSessions::default(),
            persistent: lease != Duration::MAX,
            keeps_named: lease != Duration::MAX || self.gateway.is_some(),
        };
        resources.close_lost_links();
        resources.sweep_leftovers(&runtime);
        Ok(((resources.clone(), seal), resources))
    }

    #[cfg(feature = "stores")]
    async fn open_store(&self) -> Result<(Arc<dyn Store>, Duration, SealKey), StartError> {
        let failed =
            |error: &dyn std::fmt::Display| StartError(Error::InvalidInput(error.to_string()));
        let Some(url) = &self.store else { return open_memory_store() };
        let Some(folders) = &self.folders else {
            let message = "a hub with a store also needs `folders`: the key that encrypts secrets in the \
                           store is kept there";
            return Err(StartError(Error::InvalidInput(message.to_owned())));
        };
        let lease = self.lease.unwrap_or(DEFAULT_LEASE);
        if lease < MIN_LEASE {
            let message =
                format!("a lease of {lease:?} cannot be renewed in time: use a second or more");
            return Err(StartError(Error::InvalidInput(message)));
        }
        let database = stayput_stores::open(url).await.map_err(|error| failed(&error))?;
        let mut dir = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(dir.recursive(true), 0o700).create(folders)?;
        let seal = SealKey::at(&folders.join("key")).map_err(|error| failed(&error))?;
        Ok((database.store, lease, seal))
    }

    #[cfg(not(feature = "stores"))]
    async fn open_store(&self) -> Result<(Arc<dyn Store>, Duration, SealKey), StartError> {
        open_memory_store()
    }
}

/// Spawns the periodic tasks, which run until the hub is dropped.
fn spawn_maintenance(inner: &Arc<HubInner>) {
    let (weak, runtime) = (Arc::downgrade(inner), inner.thread.handle());
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
            let Some(inner) = weak.upgrade() else { return };
            inner.maintain().await;
        }
    });
    if inner.resources.persistent {
        // In its own task, so that slow maintenance does not delay the renewal.
        let weak = Arc::downgrade(inner);
        runtime.spawn(async move {
            while let Some(resources) = weak.upgrade().map(|inner| inner.resources.clone()) {
                let pause = resources.renew_lease().await;
                drop(resources);
                tokio::time::sleep(pause).await;
            }
        });
    }
}

/// Default limits, with the limits per owner raised to the total: a hub has only one owner.
fn single_owner_limits() -> Limits {
    let limits = Limits::default();
    let per_owner = PerOwner { processes: limits.processes, links: limits.links };
    Limits { per_owner, ..limits }
}

fn open_memory_store() -> Result<(Arc<dyn Store>, Duration, SealKey), StartError> {
    let seal = SealKey::generate().map_err(|error| StartError(Error::invalid(error)))?;
    let store = MemoryStore::new(Arc::new(SystemClock));
    // No other process can open these sessions, so the lease never runs out.
    Ok((Arc::new(store), Duration::MAX, seal))
}

/// Error of the start, sent from the hub's thread to the builder.
struct StartError(Error);

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self(Error::invalid(error))
    }
}
