//! Builder of a hub.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use stayput_config::{ConfigError, OnLoss};
use stayput_core::{Expiry, Store};
use stayput_process::WardenCommand;
use stayput_upstream::{Limits, Options, Server, TransportConfig};
use tokio::runtime::Handle;

use super::{
    config_source::ConfigSource,
    gateway::Gateway,
    headers::Headers,
    servers::{HubServer, check_name},
    stderr::{StderrCallback, StderrLine},
    trace_context::TraceContext,
};
use crate::{Error, handlers::Handlers};

/// Configuration of a hub. See [`Hub::builder`](crate::Hub::builder).
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    pub(super) servers: Vec<(String, Result<HubServer, Error>)>,
    pub(super) on_loss: Vec<(String, OnLoss)>,
    pub(super) warm: Vec<(String, usize)>,
    pub(super) store: Option<StoreChoice>,
    pub(super) seal: Vec<String>,
    pub(super) lease: Option<Duration>,
    pub(super) warnings: Vec<String>,
    pub(super) takeover_timeout: Option<Duration>,
    pub(super) release_after: Option<Duration>,
    pub(super) folders: Option<PathBuf>,
    pub(super) limits: Option<Limits>,
    pub(super) expiry: Option<Expiry>,
    pub(super) handlers: Handlers,
    pub(super) headers: Option<Headers>,
    pub(super) stderr: Option<StderrCallback>,
    pub(super) trace_context: Option<TraceContext>,
    pub(super) gateway: Option<Gateway>,
    pub(super) warden: Option<WardenCommand>,
    pub(super) runtime: Option<Handle>,
}

/// Store of a hub that does not keep its sessions in memory.
#[derive(Debug)]
pub(super) enum StoreChoice {
    /// Database that `stayput-stores` opens.
    #[cfg(feature = "stores")]
    Url(String),
    /// Store of the caller.
    Own(Arc<dyn Store>),
}

impl Builder {
    pub(super) fn connected(url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let gateway = Some(Gateway::new(url));
        Self { gateway, ..Self::default() }
    }

    /// Sets the bearer token with which the hub authenticates at the gateway, see [`Hub::connect`](crate::Hub::connect).
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
    /// [`Hub::warnings`](crate::Hub::warnings) lists the entries that were ignored, such as Stayput itself.
    ///
    /// Variables must be set when the hub is built, and get their values at the first use of the server, as they are
    /// then. Processes that [`Builder::warm`] keeps ready have the values of the start.
    pub fn config(self, path: impl AsRef<Path>) -> Self {
        self.add_configured(ConfigSource::file(path.as_ref()))
    }

    /// Adds the servers of a configuration text, see [`Builder::config`]. Relative paths in it are resolved
    /// against the folder of `origin`, the path that errors mention.
    pub fn config_text(self, text: &str, origin: impl AsRef<Path>) -> Self {
        self.add_configured(Ok(ConfigSource::text(text, origin.as_ref())))
    }

    fn add_configured(mut self, source: Result<ConfigSource, ConfigError>) -> Self {
        let servers = source.and_then(|source| Ok((source.read()?, Arc::new(source))));
        match servers {
            Ok((servers, source)) => {
                self.warnings.extend(servers.warnings);
                for entry in servers.entries {
                    let name = entry.server.name().to_owned();
                    let server = HubServer { source: Some(source.clone()), ..entry.into() };
                    self.servers.push((name, Ok(server)));
                }
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
    /// Defaults to memory. Such a hub is opened by [`Builder::open`].
    #[cfg(feature = "stores")]
    pub fn store(mut self, url: &str) -> Self {
        self.store = Some(StoreChoice::Url(url.to_owned()));
        self
    }

    /// Stores sessions in a store of your own, see [`Store`]. `stayput_core::conformance` tests it. Such a hub is opened
    /// by [`Builder::open`].
    pub fn own_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(StoreChoice::Own(store));
        self
    }

    /// Encrypts the secrets in the store with this key, 64 hexadecimal digits, instead of with a generated one in
    /// [`Builder::folders`]. Repeat it for older keys: the first one encrypts, all of them decrypt. [`Builder::open`] fails
    /// if the store has secrets that none of them decrypts.
    pub fn seal(mut self, key: &str) -> Self {
        self.seal.push(key.to_owned());
        self
    }

    /// Sets the lease on the store: the time for which this hub may use its sessions while the store cannot be reached,
    /// less a tenth, and for which another process waits for the sessions of a killed one. Defaults to 15 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the time to wait for a session that another process holds, before [`Error::SessionHeldElsewhere`]. By default it
    /// is a little longer than the lease, so that the sessions of a killed process are taken over; a session with a server
    /// that runs as a child process is not waited for, because its state cannot move.
    pub fn takeover_timeout(mut self, timeout: Duration) -> Self {
        self.takeover_timeout = Some(timeout);
        self
    }

    /// Sets the time without use after which this process gives up a named session of its store, so that the next call
    /// claims it, here or in another process. Defaults to one second. Sessions with a link to a child process are not given
    /// up. [`Duration::MAX`] gives up none.
    pub fn release_after(mut self, idle: Duration) -> Self {
        self.release_after = Some(idle);
        self
    }

    /// Calls `callback` with each line that a server's process writes to stderr, without the configured secrets. It runs
    /// on the hub's thread, and must not block.
    pub fn on_stderr(mut self, callback: impl Fn(StderrLine) + Send + Sync + 'static) -> Self {
        self.stderr = Some(StderrCallback::new(callback));
        self
    }

    /// Calls `callback` for each request to a server, in the task of its caller, and adds what it returns to the `_meta` of
    /// the request: the W3C trace context, `traceparent` and `tracestate`, of the current span.
    ///
    /// ```no_run
    /// # fn current_traceparent() -> Option<String> { None }
    /// let builder = stayput::Hub::builder().trace_context(|| {
    ///     current_traceparent().map(|parent| ("traceparent".to_owned(), parent)).into_iter().collect()
    /// });
    /// ```
    pub fn trace_context(
        mut self,
        callback: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        self.trace_context = Some(TraceContext::new(callback));
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
    /// no request has the credentials of another session. [`Hub::set_headers`](crate::Hub::set_headers) and
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
}
