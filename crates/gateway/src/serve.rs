//! `stayput serve`: from its settings to its end.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use stayput_core::{
    EndReason, EventIds, Expiry, Holder, HolderId, Record, SessionId, SessionLimits, Sessions,
    Settings, SystemClock,
};
use stayput_upstream::{
    Folders, Limits, LinkSettings, Links, SealKey, Server,
    process::{Processes, WardenCommand},
};
use tokio::{net::TcpListener, runtime::Handle, sync::watch};

use crate::{
    aggregate::Aggregate,
    config::{Config, Configured, Identify, OnLoss},
    connections::Connections,
    event::Event,
    front::{self, door::Door},
    health::Health,
    house::{House, Rules},
    identify,
    log::{Level, Log},
    losses::Telling,
    metrics::Metrics,
    shared::Generations,
    sight::Sights,
    streams::Shelf,
};

/// How long calls may go on after the first signal to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// How long another process has a session after this one was killed. On one machine a restart does not
/// wait for it: see [`Holding`].
const LEASE: Duration = Duration::from_secs(15);

/// What a gateway is made of.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) listen: SocketAddr,
    pub(crate) store: String,
    pub(crate) servers: Vec<Configured>,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) expiry: Expiry,
    pub(crate) sessions: SessionLimits,
    pub(crate) identify: Identify,
    /// Where keys and private folders are.
    pub(crate) data: PathBuf,
}

impl Plan {
    /// What a configuration asks for.
    pub(crate) fn of(config: Config) -> Result<Self, ServeError> {
        let rules = Rules {
            body_limit: config.limits.body,
            sockets: config.limits.sockets,
            allowed_hosts: config.allowed_hosts,
            allowed_origins: config.allowed_origins,
            ..Rules::default()
        };
        Ok(Self {
            listen: config.listen,
            data: data(&config.store)?,
            store: config.store,
            servers: config.servers,
            rules,
            limits: config.limits.links,
            expiry: config.expiry,
            sessions: config.limits.sessions,
            identify: config.identify,
        })
    }
}

/// Where keys and private folders are: beside a store that is a file, else in the user's data folder.
fn data(store: &str) -> Result<PathBuf, ServeError> {
    let file = store.strip_prefix("sqlite:").filter(|path| !path.is_empty());
    if let Some(file) = file {
        let file = Path::new(file.strip_prefix("//").unwrap_or(file));
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".d");
        return Ok(file.with_file_name(name));
    }
    let home = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    let home = home.ok_or(ServeError::NoHome)?;
    // One folder for each store: the name under which sessions are held is in it.
    let digest = stayput_core::content_digest(store.as_bytes()).to_hex();
    Ok(home.join("stayput").join(digest.get(..16).unwrap_or_default()))
}

/// A gateway that listens.
pub(crate) struct Gateway {
    house: Arc<House>,
    listener: TcpListener,
    log: Log,
    stopping: watch::Sender<bool>,
    _holding: Holding,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(
        "{address} can be reached from other machines, and there is no authentication yet: listen on \
         127.0.0.1 or [::1], and put something that authenticates in front"
    )]
    Exposed { address: SocketAddr },
    #[error("the folder {} cannot be used: {error}", path.display())]
    Data { path: PathBuf, error: io::Error },
    #[error("another stayput serves from {}; stop it, or choose another store", path.display())]
    Taken { path: PathBuf },
    #[error("the store cannot be opened: {0}")]
    Open(#[from] stayput_stores::OpenError),
    #[error("the store cannot be used: {0}")]
    Store(#[from] stayput_core::StoreError),
    #[error(
        "there is no folder for keys: set HOME or XDG_DATA_HOME, or choose a store that is a file"
    )]
    NoHome,
    #[error(transparent)]
    Seal(#[from] stayput_upstream::SealError),
}

/// The name under which sessions are held, the same after each restart: what an earlier life of this
/// gateway held is ours at once. The lock makes sure that there is no other one with this name.
struct Holding {
    holder: Holder,
    _lock: fs::File,
}

impl Holding {
    fn take(data: &Path) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Data { path: data.to_owned(), error };
        fs::create_dir_all(data).map_err(failed)?;
        fs::set_permissions(data, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let path = data.join("holder");
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(ServeError::Taken { path: data.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let kept = fs::read_to_string(&path).map_err(failed)?;
        let id = match kept.trim().parse::<HolderId>() {
            Ok(id) => id,
            Err(_) => {
                let id = HolderId::generate();
                lock.set_len(0).map_err(failed)?;
                lock.write_all(id.to_string().as_bytes()).map_err(failed)?;
                id
            }
        };
        Ok(Self { holder: Holder { id, address: String::new() }, _lock: lock })
    }
}

impl Gateway {
    /// Opens the store, takes the sessions, and listens. Nothing is started yet.
    pub(crate) async fn start(plan: Plan, log: Log) -> Result<Self, ServeError> {
        if !plan.listen.ip().is_loopback() {
            return Err(ServeError::Exposed { address: plan.listen });
        }
        let holding = Holding::take(&plan.data)?;
        let database = stayput_stores::open(&plan.store).await?;
        let settings = Settings {
            lease: LEASE,
            expiry: plan.expiry,
            sessions: plan.sessions,
            ..Settings::default()
        };
        let clock = Arc::new(SystemClock);
        let holder = holding.holder.clone();
        let sessions = Sessions::start(database.store, clock, holder, settings).await?;
        let key = plan.data.join("key");
        let seal = SealKey::at(&key)?;
        let tools = plan.servers.iter().map(|it| (it.server.name().to_owned(), it.tools.clone()));
        let handles = plan.servers.iter().map(|it| (it.server.name().to_owned(), it.handles));
        let identify = identify::Rules {
            configured: plan.identify,
            handles: handles.collect(),
            expiry: plan.expiry,
            sights: Sights::default(),
        };
        let metrics = Metrics::new(plan.servers.iter().map(|it| it.server.name()));
        let restarting = plan.servers.iter().filter(|it| it.on_loss == OnLoss::Restart);
        let restarting = restarting.map(|it| it.server.name().to_owned()).collect();
        let (tools, servers) = (tools.collect(), named(plan.servers));
        let (stopping, closing) = watch::channel(false);
        let house = House {
            metrics,
            health: Health::default(),
            tools,
            restarting,
            aggregate: Aggregate::new(servers.keys().map(String::as_str)),
            servers,
            sessions,
            links: links(&plan.data, plan.limits)?,
            connections: Connections::default(),
            callers: front::sse::Callers::default(),
            telling: Telling::default(),
            generations: Generations::default(),
            shelf: Shelf::default(),
            ids: EventIds::new(&secret()),
            seal,
            life: stayput_core::content_digest(&secret()).to_hex(),
            rules: plan.rules,
            identify,
            log,
            closing,
        };
        let listener = TcpListener::bind(plan.listen).await;
        let address = plan.listen;
        let listener = listener.map_err(|error| ServeError::Listen { address, error })?;
        Ok(Self { house: Arc::new(house), listener, log, stopping, _holding: holding })
    }

    /// Says where it listens, and what to do with that.
    pub(crate) fn announce(&self) -> io::Result<()> {
        let address = self.listener.local_addr()?;
        let url = format!("http://{address}");
        let fields = [("event", "listening"), ("url", &*url)];
        self.log.event(Level::Info, &format!("stayput listens on {url}"), &fields);
        for name in self.house.servers.keys() {
            let url = format!("http://{address}/mcp/{name}");
            let fields = [("event", "serving"), ("server", name), ("url", &*url)];
            self.log.event(Level::Info, &format!("  {name}: {url}"), &fields);
            self.recommend(name, &url);
        }
        if self.house.servers.len() > 1 {
            let url = format!("http://{address}/mcp");
            let fields = [("event", "serving"), ("server", "all"), ("url", &*url)];
            let line = format!("  all of them at once, tools named SERVER__TOOL: {url}");
            self.log.event(Level::Info, &line, &fields);
            self.recommend("stayput", &url);
        }
        Ok(())
    }

    /// Takes in whoever connects, each until `stopped`.
    async fn accept(&self, door: &Door, stopped: &watch::Receiver<bool>) {
        loop {
            match self.listener.accept().await {
                Ok((socket, _)) => door.enter(&self.house, socket, stopped.clone()),
                // Too many open files, most likely: they come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// What to put into which client.
    fn recommend(&self, name: &str, url: &str) {
        if self.log.json {
            // How clients are set up is for people.
            return;
        }
        self.log.info(&format!(
            "    in a client's mcpServers: \"{name}\": {{ \"type\": \"http\", \"url\": \"{url}\" }}"
        ));
        self.log.info(&format!("    Claude Code: claude mcp add --transport http {name} {url}"));
    }

    /// Serves until `stop`; then lets what is in flight end within a grace period, and lets go of
    /// everything.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let (house, stopped) = (self.house.clone(), self.stopping.subscribe());
        let runtime = Handle::current();
        let renewing = runtime.spawn(renew(house.clone(), self.log));
        let ticking = runtime.spawn(tick(house.clone(), stopped.clone()));
        let door = Door::new(house.rules.sockets);
        tokio::select! {
            () = self.accept(&door, &stopped) => {}
            () = stop => {}
        }
        house.health.stops();
        let _ = self.stopping.send(true);
        let end = tokio::time::Instant::now() + DRAIN;
        // Who comes now is told that it stops, and whoever asks for its health, too.
        let late = Door::new(house.rules.sockets);
        let (_going_on, never) = watch::channel(false);
        tokio::select! {
            () = self.accept(&late, &never) => {}
            () = drained(&house, end) => {}
        }
        drop(self.listener);
        // Who only listens is told that this is all, and what was answered is written to its end.
        house.connections.hush();
        door.empty(end).await;
        let _ = ticking.await;
        let _ = house.sessions.flush().await;
        house.links.close(Duration::from_secs(10)).await;
        // The lease is kept to the end: what was told late is still noted.
        renewing.abort();
        let _ = house.sessions.close().await;
    }
}

/// Waits for calls in flight, but not for ever.
async fn drained(house: &House, end: tokio::time::Instant) {
    while tokio::time::Instant::now() < end {
        let answered = house.links.status().iter().all(|link| link.in_flight == 0);
        if answered && !house.connections.is_busy() && !house.callers.is_busy() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Keeps the lease, whatever else takes long.
async fn renew(house: Arc<House>, log: Log) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        every.tick().await;
        let renewed = house.sessions.renew().await;
        let changed = house.health.reached_store(renewed.is_ok());
        match renewed {
            Err(error) => log.warn(&format!("the store cannot be reached: {error}")),
            Ok(_) if changed => log.info("the store can be reached again"),
            Ok(_) => {}
        }
        // What was let go of is taken up again by its next call, with the links it has.
        drop(house.sessions.lost());
    }
}

/// What has to be done from time to time: write times of use back, end what is over.
async fn tick(house: Arc<House>, mut stopped: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let _ = house.sessions.flush().await;
        let swept = house.sessions.sweep().await;
        let held: HashMap<_, _> =
            house.sessions.held().into_iter().map(|it| (it.id(), it)).collect();
        for record in swept.ended {
            // It may live again: then what is there belongs to its next life.
            let again = held.get(&record.id).is_some_and(|it| it.record().life != record.life);
            note_end(&house, &record);
            if !again {
                end(&house, record.id);
            }
        }
        // What the store knows need not be remembered here.
        house.connections.forget_idle(|session| held.contains_key(&session));
    }
}

/// Notes that a session ended by itself. Of one that was closed whoever closed it has told.
fn note_end(house: &House, record: &Record) {
    let reason = record.ended.map(|ended| ended.reason);
    if let Some(reason) = reason.filter(|reason| *reason != EndReason::Closed) {
        let known = house.connections.server_of(record.id);
        let linked = || record.attachments.keys().next().map(|it| it.as_str());
        let server = known.as_deref().or_else(linked);
        house.note(record.id, Event::Ended { server, reason });
    }
}

/// Ends the links of a session. A child that takes its time keeps nobody waiting.
fn end(house: &Arc<House>, session: SessionId) {
    house.connections.forget_session(session);
    let house = house.clone();
    Handle::current().spawn(async move { house.links.end(session).await });
}

/// Streams are kept in memory, so nothing that was sealed by an earlier process leads anywhere.
fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    // Without randomness nothing here works: keys are made from it, too.
    let _ = getrandom::fill(&mut bytes);
    bytes
}

fn named(servers: Vec<Configured>) -> BTreeMap<String, Server> {
    let servers = servers.into_iter().map(|configured| configured.server);
    servers.map(|server| (server.name().to_owned(), server)).collect()
}

fn links(data: &Path, limits: Limits) -> Result<Links, ServeError> {
    let failed = |error| ServeError::Data { path: data.to_owned(), error };
    let program = std::env::current_exe().map_err(failed)?;
    let warden = WardenCommand::new(program, ["warden"]);
    let processes = Processes::wardened(warden, Handle::current());
    let folders = Folders::new(&data.join("folders")).map_err(failed)?;
    let settings = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
    Ok(Links::new(settings, Handle::current()))
}
