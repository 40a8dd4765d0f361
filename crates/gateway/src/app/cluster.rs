//! This gateway among others on the same store: its registration, the listener for other replicas, and their liveness.

use std::{
    collections::{BTreeMap, HashSet},
    fs::DirBuilder,
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use stayput_core::{Digest, EventIds, EventLog, Holder, Sessions, Store};
use stayput_stores::Address;
use stayput_sync::Mutex;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
    time::Instant,
};

use super::{Plan, ServeError, build};
use crate::{
    cluster::{
        Cluster,
        registry::{LiveGateway, Registry, RegistryError, Row, differences},
    },
    config::ClusterKey,
    listen::{acceptor::Acceptor, workers::Workers},
    state::AppState,
};

/// Time beyond the lease that a start waits for the lease of a gateway that was killed.
const START_GRACE: Duration = Duration::from_secs(1);

/// Poll interval of that wait.
const START_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Longest pause between two reads of the registry.
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which the leases of replicas are read that owe an answer or have given none. Clients wait for it.
const AWAITED_INTERVAL: Duration = Duration::from_millis(250);

/// Number of connections of other replicas that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Interval at which a new lease is noticed.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Row of this gateway in the registry.
pub(super) struct Registration {
    registry: Registry,
    holder: Holder,
    row: Row,
    /// Differences from other gateways that were logged.
    logged: Mutex<HashSet<String>>,
}

/// Whether gateways of several machines can use the store.
fn is_common(plan: &Plan) -> bool {
    !matches!(plan.store.parse(), Ok(Address::Sqlite(_) | Address::Memory))
}

/// Refuses a cluster without a common store, or without a common key for what is stored.
pub(super) fn check(plan: &Plan) -> Result<(), ServeError> {
    match &plan.cluster {
        Some(_) if !is_common(plan) => Err(ServeError::ClusterStore),
        Some(_) if plan.seal.is_empty() => Err(ServeError::ClusterSeal),
        _ => Ok(()),
    }
}

/// Socket of the internal listener, and its configured address.
pub(super) struct ReplicaSocket(TcpSocket, SocketAddr);

impl ReplicaSocket {
    /// Begins to listen. Until then other replicas are refused at once, and claim the sessions of a gateway that starts
    /// anew when its former lease ends; in a backlog, their requests would wait for the end of the start.
    pub(super) fn listen(self) -> Result<TcpListener, ServeError> {
        let Self(socket, address) = self;
        socket.listen(BACKLOG).map_err(|error| ServeError::ClusterListen { address, error })
    }
}

/// Binds the internal listener, if there is one. Returns the holder with the address under which others reach it. A
/// gateway for local clients alone does not have the servers of requests that others would forward, so it has no address.
pub(super) fn bind(
    plan: &Plan,
    holder: Holder,
) -> Result<(Option<ReplicaSocket>, Holder), ServeError> {
    let Some(settings) = plan.cluster.as_ref().filter(|_| plan.listen.is_some()) else {
        return Ok((None, holder));
    };
    let address = settings.listen;
    let failed = |error: io::Error| ServeError::ClusterListen { address, error };
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    let url = match &settings.advertise {
        Some(url) => url.clone(),
        None => format!("http://{}", socket.local_addr().map_err(failed)?),
    };
    let holder = Holder { id: holder.id, ..Holder::at(&url)? };
    Ok((Some(ReplicaSocket(socket, address)), holder))
}

/// Registers this gateway in a store that others can use, too. Refuses to run beside gateways with which it does not
/// cooperate.
pub(super) async fn join(
    plan: &Plan,
    sessions: &Sessions,
    store: Arc<dyn Store>,
) -> Result<Option<Registration>, ServeError> {
    if !is_common(plan) {
        return Ok(None);
    }
    let keys = plan.cluster.iter().flat_map(|it| &it.keys).map(ClusterKey::fingerprint).collect();
    let started = sessions.current_lease().epoch.0;
    let row =
        Row { keys, servers: servers(plan), folders: volume(plan)?, started, draining: false };
    let (registry, holder) = (Registry::new(store), sessions.holder().clone());
    let registration = Registration { registry, holder, row, logged: Mutex::default() };
    if let Err(error) = registration.enter(plan, sessions).await {
        registration.leave().await;
        // The lease would keep others waiting.
        let _ = sessions.close().await;
        return Err(error);
    }
    Ok(Some(registration))
}

/// Returns the servers, each with a hash of how it is reached.
fn servers(plan: &Plan) -> BTreeMap<String, String> {
    let hashed = plan.servers.iter().map(|it| {
        let identity = it.server.written_identity().to_hex();
        let hash = Digest::compute("stayput.cluster.server", &[identity.as_bytes()]).short();
        (it.server.name().to_owned(), hash)
    });
    hashed.collect()
}

/// File in the folder of private folders that tells whether two gateways share it.
const VOLUME: &str = "volume";

/// Returns the id of the volume of private folders, if there is a cluster and one is configured. The first gateway that
/// uses the folder creates it. Warns if the folders of a server are on the disk of this gateway alone.
fn volume(plan: &Plan) -> Result<Option<String>, ServeError> {
    if plan.cluster.is_none() {
        return Ok(None);
    }
    if let Some(root) = &plan.folders {
        let id = read_or_create_volume(root);
        return id.map(Some).map_err(|error| ServeError::Data { path: root.clone(), error });
    }
    let using = plan.servers.iter().map(|it| &it.server).filter(|it| it.uses_private_dir());
    let using: Vec<_> = using.map(|it| format!("`{}`", it.name())).collect();
    if !using.is_empty() {
        tracing::warn!(
            "the private folders of {} are on the disk of this gateway: a session that moves to another gateway does not \
             find its files there; set `folders` to a volume that all gateways share",
            using.join(", ")
        );
    }
    Ok(None)
}

fn read_or_create_volume(root: &Path) -> io::Result<String> {
    let file = root.join(VOLUME);
    if let Ok(id) = std::fs::read_to_string(&file) {
        return Ok(id);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let id = stayput_core::content_digest(&bytes).to_hex();
    let own = root.join(format!("{VOLUME}.{id}"));
    std::fs::write(&own, &id)?;
    // Linked, so that of several gateways one wins, and no one reads half of a file.
    let linked = std::fs::hard_link(&own, &file);
    std::fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => std::fs::read_to_string(&file),
    }
}

impl Registration {
    /// Registers this gateway. A gateway that was killed keeps its lease for a while, so this waits until it is gone.
    async fn enter(&self, plan: &Plan, sessions: &Sessions) -> Result<(), ServeError> {
        let end = Instant::now() + plan.lease.saturating_add(START_GRACE);
        loop {
            self.registry.write(&self.holder, sessions.current_lease(), &self.row).await?;
            match self.registry.check(&self.holder, &self.row).await {
                Ok(()) => break,
                Err(RegistryError::Store(error)) => return Err(error.into()),
                Err(refusal) if Instant::now() >= end => return Err(refusal.into()),
                Err(_) => {}
            }
            tokio::time::sleep(START_POLL_INTERVAL).await;
            // Without the lease, the row of this gateway would count as that of a dead one.
            sessions.renew().await?;
        }
        if plan.cluster.is_some() {
            let seal = build::seal(plan.seal.clone(), &plan.data.join("key"))?;
            self.registry.check_seal(&seal).await?;
        }
        Ok(())
    }

    /// Writes the row whenever the lease has changed, and reads which other replicas live. Never returns.
    pub(super) async fn refresh(self: Arc<Self>, app: Arc<AppState>) {
        let interval = (app.sessions.settings().lease / 3).min(MAX_REFRESH_INTERVAL);
        loop {
            let lease = app.sessions.current_lease();
            // An outage of the store is reported by the renewal of the lease.
            let _ = self.refresh_once(&app).await;
            let due = Instant::now() + interval;
            // The others learn at once that this gateway drains.
            // A row with a lost lease looks like that of a dead gateway, so a new lease is written at once.
            let is_draining = app.health.is_draining();
            let mut checked = Instant::now();
            while Instant::now() < due
                && app.sessions.current_lease() == lease
                && app.health.is_draining() == is_draining
            {
                tokio::time::sleep(LEASE_POLL_INTERVAL).await;
                if checked.elapsed() < AWAITED_INTERVAL {
                    continue;
                }
                checked = Instant::now();
                if let Some(cluster) = &app.cluster
                    && cluster.has_lost_awaited_peer().await
                {
                    break;
                }
            }
        }
    }

    async fn refresh_once(&self, app: &AppState) -> Result<(), stayput_core::StoreError> {
        let lease = app.sessions.current_lease();
        let row = Row { draining: app.health.is_draining(), ..self.row.clone() };
        self.registry.write(&self.holder, lease, &row).await?;
        if let Some(cluster) = &app.cluster {
            self.log_differences(&cluster.read_peers().await?);
            let cluster = cluster.clone();
            tokio::runtime::Handle::current().spawn(async move { cluster.greet_replicas().await });
        }
        Ok(())
    }

    /// Logs what other gateways have configured differently, each sentence once.
    fn log_differences(&self, live: &[LiveGateway]) {
        let others = live.iter().filter(|it| it.holder.id != self.holder.id);
        let mut logged = self.logged.lock();
        let sentences: HashSet<_> = others.flat_map(|it| differences(&self.row, it)).collect();
        sentences.difference(&logged).for_each(|sentence| tracing::warn!("{sentence}"));
        *logged = sentences;
    }

    /// Removes the row.
    pub(super) async fn leave(&self) {
        let _ = self.registry.remove(&self.holder).await;
    }
}

/// Prepares the cooperation with other replicas, if it is configured.
pub(super) async fn cluster(
    plan: &Plan,
    sessions: &Sessions,
    (registry, events): (Registry, Arc<dyn EventLog>),
) -> Result<Option<Arc<Cluster>>, ServeError> {
    let Some(settings) = &plan.cluster else { return Ok(None) };
    let seal = build::seal(plan.seal.clone(), &plan.data.join("key"))?;
    let secret = registry.event_secret(&seal, &build::secret()?).await?;
    let (own, events) = (sessions.holder().clone(), (events, EventIds::new(&secret)));
    Ok(Some(Arc::new(Cluster::new(own, &settings.keys, registry, events)?)))
}

/// Accepts connections of other replicas, until the task is aborted.
pub(super) async fn accept(
    app: Arc<AppState>,
    (listener, workers): (TcpListener, Arc<Workers>),
    stopped: watch::Receiver<bool>,
) {
    let acceptor = Acceptor::for_replicas();
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                let socket = (socket, from.ip(), &workers.next());
                acceptor.enter(&app.now(), socket, stopped.clone());
            }
            // Most likely too many open files. Some of them are closed after a while.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
