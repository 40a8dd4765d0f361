//! `stayput serve`: starts the gateway, runs it, and drains it at the end.

mod banner;
mod build;
mod cluster;
pub(crate) mod daemon;
mod descriptors;
pub(crate) mod instance_lock;
mod maintenance;
mod missing_program;
mod plan;
pub(crate) mod reload;
mod server_probe;
pub(crate) mod standalone;
mod store_watch;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use stayput_core::{Sessions, Settings, SystemClock};
use stayput_stores::DatabaseFile;
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::{
    app::{cluster::Registration, instance_lock::InstanceLock, reload::ConfigReader},
    cluster::registry::{Registry, RegistryError},
    config::ConfigError,
    listen::{
        acceptor::Acceptor,
        unix_socket::{self, Socket},
        workers::Workers,
    },
    observe::ObserveError,
    state::AppState,
};

pub(crate) use self::plan::{Plan, exposed};
pub(crate) use crate::app::build::authenticator;

/// Time after the drain in which other gateways learn that the sessions have moved, and requests on connections from before the
/// signal to stop arrive.
const SETTLE: Duration = Duration::from_millis(500);

/// Time limit for writing the answers of calls that outlasted the drain.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Running gateway: application state, listeners and the lock of its data folder.
pub(crate) struct Gateway {
    app: Arc<AppState>,
    /// HTTP listener and the worker threads that serve its connections. `None` if it does not listen over HTTP.
    listener: Option<(TcpListener, Arc<Workers>)>,
    socket: Option<Socket>,
    /// Listener for other replicas.
    replica_listener: Option<TcpListener>,
    /// Row of this gateway in a store that others use, too.
    registration: Option<Arc<Registration>>,
    /// Clients on the Unix socket.
    socket_clients: SocketClients,
    /// Reader of the configuration file. `None` if the configuration is not reloaded.
    reading: Option<ConfigReader>,
    stopping: watch::Sender<bool>,
    /// Database file, if the store is one.
    file: Option<Arc<DatabaseFile>>,
    _holding: InstanceLock,
}

/// Reason why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(
        "{address} can be reached from other machines, and there is no `auth`: configure \
         it, or listen on 127.0.0.1 or [::1]; if all who can reach it may share everything, say \
         --open-to-all"
    )]
    Exposed { address: SocketAddr },
    #[error("the folder {} cannot be used: {error}", path.display())]
    Data { path: PathBuf, error: io::Error },
    #[error(
        "another stayput{} has the sessions in {}; stop it, or choose another store", holder_name(path),
        path.display()
    )]
    Taken { path: PathBuf },
    #[error("the socket in {} cannot be used: {error}", path.display())]
    Socket { path: PathBuf, error: io::Error },
    #[error("there are no threads to serve on: {0}")]
    Threads(io::Error),
    #[error("the store cannot be opened: {0}")]
    Open(#[from] stayput_stores::StoreOpenError),
    #[error("the store cannot be used: {0}")]
    Store(#[from] stayput_core::StoreError),
    #[error(
        "there is no folder for keys: set HOME or XDG_DATA_HOME, or choose a store that is a file"
    )]
    NoHome,
    #[error("the keys of the issuer cannot be asked for: {0}")]
    Keys(#[from] stayput_http::ClientError),
    #[error(transparent)]
    Seal(#[from] stayput_upstream::SealError),
    #[error(
        "cannot listen on {address} for other gateways: {error}; choose another `cluster.listen`"
    )]
    ClusterListen { address: SocketAddr, error: io::Error },
    #[error(
        "`cluster` needs a database that all gateways reach: set `store` to postgres://… or redis://…"
    )]
    ClusterStore,
    #[error(
        "`cluster` needs `seal`, with the same key in every gateway: without it no gateway could open what another one \
         has stored; make one with \"openssl rand -hex 32\""
    )]
    ClusterSeal,
    #[error("the address of this gateway cannot be used: {0}")]
    Advertise(#[from] stayput_core::InvalidText),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Observers(#[from] ObserveError),
}

/// Acceptor of connections that come after the signal to stop. They are served until they end.
struct LateAcceptor {
    acceptor: Acceptor,
    never: watch::Receiver<bool>,
    _sender: watch::Sender<bool>,
}

impl Default for LateAcceptor {
    fn default() -> Self {
        let (sender, never) = watch::channel(false);
        Self { acceptor: Acceptor::for_clients(), never, _sender: sender }
    }
}

impl LateAcceptor {
    /// Waits for a moment until requests that other gateways can run have been answered.
    async fn served(&self, app: &AppState) {
        if let Some(cluster) = &app.cluster {
            let end = Instant::now() + LAST_ANSWERS;
            self.acceptor.empty(end).await;
            cluster.receipts_settled(end).await;
        }
    }
}

/// Counter of the clients on the Unix socket.
#[derive(Clone, Default)]
struct SocketClients(Arc<watch::Sender<usize>>);

impl SocketClients {
    fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Counts a client until the guard is dropped.
    fn enter(&self) -> SocketClientGuard {
        self.0.send_modify(|count| *count += 1);
        SocketClientGuard(self.clone())
    }

    /// Waits until all clients have disconnected, at most until `until`.
    async fn leave(&self, until: Instant) {
        let mut count = self.0.subscribe();
        let _ = tokio::time::timeout_at(until, count.wait_for(|count| *count == 0)).await;
    }
}

/// Guard of one client on the Unix socket.
struct SocketClientGuard(SocketClients);

impl Drop for SocketClientGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl Gateway {
    /// Opens the store, takes over the sessions, and binds the listeners. No server is started yet.
    pub(crate) async fn start(mut plan: Plan) -> Result<Self, ServeError> {
        cluster::check(&plan)?;
        let authenticator = authenticator(std::mem::take(&mut plan.auth), None)?;
        plan::warn_if_exposed(&plan, &authenticator)?;
        plan.socket_note.iter().for_each(|note| tracing::info!("{note}"));
        let holding = InstanceLock::take(&plan.data)?;
        instance_lock::lock_store(&plan.store)?;
        let socket = socket(&plan)?;
        let database = stayput_stores::open(&plan.store).await?;
        database.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let file = database.file;
        let settings = Settings {
            lease: plan.lease,
            expiry: plan.expiry,
            sessions: plan.sessions,
            restore: true,
            ..Settings::default()
        };
        let clock = Arc::new(SystemClock);
        let (replica_socket, holder) = cluster::bind(&plan, holding.holder.clone())?;
        let store = database.store.clone();
        let registry = Registry::new(store.clone());
        let sessions = Sessions::start(database.store, clock, holder, settings).await?;
        let listen = plan.listen;
        let registration = cluster::join(&plan, &sessions, store).await?;
        let cluster = cluster::cluster(&plan, &sessions, (registry, database.events)).await?;
        let (app, stopping) = build::app(plan, (authenticator, sessions, cluster))?;
        maintenance::close_lost_links(&app);
        maintenance::log_losses(&app);
        maintenance::sweep_leftovers(&app);
        let listener = match listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let replica_listener = replica_socket.map(cluster::ReplicaSocket::listen).transpose()?;
        if let Some(address) = listener.as_ref().and_then(|(it, _)| it.local_addr().ok()) {
            app.health.listens_on(address);
        }
        let (app, socket_clients) = (Arc::new(app), SocketClients::default());
        app.current.set(app.clone());
        let reading = None;
        Ok(Self {
            app,
            listener,
            socket,
            replica_listener,
            registration: registration.map(Arc::new),
            socket_clients,
            reading,
            stopping,
            file,
            _holding: holding,
        })
    }

    /// Reloads the configuration whenever it changes while the gateway runs.
    pub(crate) fn reading(self, reading: ConfigReader) -> Self {
        Self { reading: Some(reading), ..self }
    }

    /// Logs the URLs it listens on, one line per server with its state. `broken` are the servers whose entry is
    /// invalid.
    pub(crate) fn announce(&self, broken: &[(String, ConfigError)]) -> io::Result<()> {
        let Some((listener, _)) = &self.listener else { return Ok(()) };
        let scheme = if self.app.rules.tls.is_some() { "https" } else { "http" };
        banner::log(&self.app, (scheme, listener.local_addr()?), broken);
        Ok(())
    }

    /// Starts every server once, in the background, and logs which of them work.
    pub(crate) fn probe_servers(&self) {
        Handle::current().spawn(server_probe::run(self.app.clone()));
    }

    /// Application state, for a listener outside of this module.
    pub(crate) fn app(&self) -> &Arc<AppState> {
        &self.app
    }

    /// Accepts HTTP connections and passes each one to a worker. Each is served until `stopped`.
    async fn accept(&self, door: &Acceptor, stopped: &watch::Receiver<bool>) {
        let Some((listener, lanes)) = &self.listener else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((socket, from)) => {
                    let socket = (socket, from.ip(), &lanes.next());
                    door.enter(&self.app.now(), socket, stopped.clone());
                }
                // Most likely too many open files. Some of them are closed after a while.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Accepts the HTTP connections that wait to be accepted.
    fn accept_waiting(&self, late: &LateAcceptor) {
        let Some((listener, lanes)) = &self.listener else { return };
        while let Some(Ok((socket, from))) = listener.accept().now_or_never() {
            let socket = (socket, from.ip(), &lanes.next());
            late.acceptor.enter(&self.app.now(), socket, late.never.clone());
        }
    }

    /// Accepts clients on the Unix socket. Each is served until `stopped`.
    async fn admit(&self, stopped: &watch::Receiver<bool>) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        loop {
            let stream = socket.accept().await;
            let (app, guest) = (self.app.now(), self.socket_clients.enter());
            let served = unix_socket::serve(app, stream, self.listener.is_some(), stopped.clone());
            Handle::current().spawn(async move {
                served.await;
                drop(guest);
            });
        }
    }

    /// Waits until there was no client on the socket and no session for as long as `grace`.
    pub(crate) fn idle(&self, grace: Duration) -> impl Future<Output = ()> + use<> {
        let (app, socket_clients) = (self.app.clone(), self.socket_clients.clone());
        async move {
            let mut since = Instant::now();
            while since.elapsed() < grace {
                tokio::time::sleep(Duration::from_millis(250)).await;
                if socket_clients.count() > 0 || app.sessions.count() > 0 {
                    since = Instant::now();
                }
            }
        }
    }

    /// Serves until `stop` resolves. Then lets calls in flight end within the drain time, and closes everything.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) {
        let (app, stopped) = (self.app.clone(), self.stopping.subscribe());
        maintenance::start_spares(&app);
        let runtime = Handle::current();
        let renew_task = runtime.spawn(maintenance::renew(app.clone()));
        let watch_task = runtime.spawn(store_watch::run(app.clone(), self.file.take()));
        let tick_task = runtime.spawn(maintenance::tick(app.clone(), stopped.clone()));
        let registration_task =
            self.registration.clone().map(|it| runtime.spawn(it.refresh(app.clone())));
        let replica_listener = self.serve_replicas(&app);
        let (acceptor, reading) = (Acceptor::for_clients(), self.reading.take());
        tokio::select! {
            () = self.accept(&acceptor, &stopped) => {}
            () = self.admit(&stopped) => {}
            () = self.reload(reading) => {}
            () = stop => {}
        }
        let end = Instant::now() + app.now().drain_time();
        let late = LateAcceptor::default();
        self.move_sessions(&late, &stopped).await;
        // With the socket removed, `stayput stdio` waits for the next process that holds the sessions.
        drop(self.socket.take());
        app.health.stops();
        let _ = self.stopping.send(true);
        // New requests are still accepted, and forwarded to another gateway, or answered that the gateway stops.
        tokio::select! {
            () = self.accept(&late.acceptor, &late.never) => {}
            () = drained(&app, end) => {}
        }
        self.accept_waiting(&late);
        // Links run on the worker threads, so the workers live until the end.
        let _workers = self.listener.take().map(|(_, workers)| workers);
        // Event streams end here. Answers are still written to their end.
        app.connections.stop_listening();
        acceptor.empty(end).await;
        late.served(&app).await;
        self.socket_clients.leave(end).await;
        let _ = tick_task.await;
        let _ = app.sessions.flush().await;
        app.links.close(Duration::from_secs(10)).await;
        // Calls that outlasted the drain are answered now, and the answers are written to their end.
        let written = Instant::now() + LAST_ANSWERS;
        acceptor.empty(written).await;
        self.socket_clients.leave(written).await;
        losses_acknowledged(&app, written).await;
        // The lease is kept until the end, because losses that are acknowledged late are still written to the store.
        if let Some(observers) = &app.observers {
            observers.close().await;
        }
        watch_task.abort();
        renew_task.abort();
        registration_task.iter().for_each(JoinHandle::abort);
        let _ = app.sessions.close().await;
        if let Some(registration) = &self.registration {
            registration.leave().await;
        }
        // From now on other gateways can claim the sessions of requests that are forwarded.
        late.served(&app).await;
        drop(replica_listener);
        app.current.clear();
    }

    /// Lets the sessions move to other gateways, if there are any. Requests are served meanwhile. New connections are not
    /// closed while their first request is under way.
    async fn move_sessions(&self, late: &LateAcceptor, stopped: &watch::Receiver<bool>) {
        let app = self.app.now();
        if app.begin_drain().await.is_err() {
            return;
        }
        let over = async {
            app.drained().await;
            tokio::time::sleep(SETTLE).await;
        };
        tokio::select! {
            () = self.accept(&late.acceptor, &late.never) => {}
            () = self.admit(stopped) => {}
            () = over => {}
        }
    }

    /// Starts the listener for replicas. It ends when the set is dropped.
    fn serve_replicas(&mut self, app: &Arc<AppState>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let workers = self.listener.as_ref().map(|(_, workers)| workers.clone());
        if let (Some(listener), Some(workers)) = (self.replica_listener.take(), workers) {
            let (alive, stopped) = watch::channel(false);
            let accept = cluster::accept(app.clone(), (listener, workers), stopped);
            tasks.spawn(async move {
                accept.await;
                drop(alive);
            });
        }
        tasks
    }

    /// Reloads the configuration whenever it changes. Never returns.
    async fn reload(&self, reading: Option<ConfigReader>) {
        if let Some(reading) = reading
            && let Err(error) = reading.run(&self.app).await
        {
            tracing::warn!("the configuration is not read anew: {error}");
        }
        std::future::pending::<()>().await;
    }
}

/// Waits until the losses that clients were told of are acknowledged in the store, at most until `end`.
async fn losses_acknowledged(app: &AppState, end: Instant) {
    if let Some(cluster) = &app.cluster {
        cluster.receipts_settled(end).await;
    }
    while Instant::now() < end && !app.loss_acknowledgements.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until no call is in flight, at most until `end`.
async fn drained(app: &AppState, end: Instant) {
    while Instant::now() < end {
        let answered = app.links.status().iter().all(|link| link.in_flight == 0);
        if answered && !app.connections.is_busy() && !app.legacy_clients.is_busy() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Binds the HTTP listener and starts the threads that serve it.
async fn bind(address: SocketAddr) -> Result<(TcpListener, Arc<Workers>), ServeError> {
    let failed = |error| ServeError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok((listener, Arc::new(Workers::start().map_err(ServeError::Threads)?)))
}

/// Binds the Unix socket if the plan has one. If the gateway also listens over HTTP, a failure is only a warning.
fn socket(plan: &Plan) -> Result<Option<Socket>, ServeError> {
    if !plan.socket {
        return Ok(None);
    }
    match Socket::bind(&plan.data) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if plan.listen.is_some() => {
            tracing::warn!("`stayput stdio` cannot come in: {error}");
            Ok(None)
        }
        Err(error) => Err(ServeError::Socket { path: plan.data.clone(), error }),
    }
}

/// Process that holds the sessions, as part of an error message. Empty if it cannot be found out.
fn holder_name(data: &Path) -> String {
    unix_socket::holder_pid(data).map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
