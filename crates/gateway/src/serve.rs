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
    EventIds, Expiry, Holder, HolderId, SessionId, SessionLimits, Sessions, Settings, SystemClock,
};
use stayput_upstream::{
    Folders, Limits, LinkSettings, Links, SealKey, Server,
    process::{Processes, WardenCommand},
};
use tokio::{net::TcpListener, runtime::Handle, sync::watch};

use crate::{
    config::{Config, Configured, Identify},
    connections::Connections,
    front,
    house::{House, Rules},
    identify,
    log::Log,
    sight::Sights,
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
        let house = House {
            tools: tools.collect(),
            servers: named(plan.servers),
            sessions,
            links: links(&plan.data, plan.limits)?,
            connections: Connections::default(),
            ids: EventIds::new(&secret()),
            seal,
            rules: plan.rules,
            identify,
            log,
        };
        let listener = TcpListener::bind(plan.listen).await;
        let address = plan.listen;
        let listener = listener.map_err(|error| ServeError::Listen { address, error })?;
        Ok(Self { house: Arc::new(house), listener, log, _holding: holding })
    }

    /// Says where it listens, and what to do with that.
    pub(crate) fn announce(&self) -> io::Result<()> {
        let address = self.listener.local_addr()?;
        self.log.info(&format!("stayput listens on http://{address}"));
        for name in self.house.servers.keys() {
            let url = format!("http://{address}/mcp/{name}");
            self.log.info(&format!("  {name}: {url}"));
            self.log.info(&format!(
                "    in a client's mcpServers: \"{name}\": {{ \"type\": \"http\", \"url\": \"{url}\" }}"
            ));
            self.log
                .info(&format!("    Claude Code: claude mcp add --transport http {name} {url}"));
        }
        Ok(())
    }

    /// Serves until `stop`; then lets what is in flight end within a grace period, and lets go of
    /// everything.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let house = self.house.clone();
        let runtime = Handle::current();
        let renewing = runtime.spawn(renew(house.clone(), self.log));
        let ticking = runtime.spawn(tick(house.clone(), self.log, stopped.clone()));
        tokio::pin!(stop);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        let mut stopped = stopped.clone();
                        let stop = async move {
                            let _ = stopped.wait_for(|stopped| *stopped).await;
                        };
                        runtime.spawn(front::http::serve(house.clone(), socket, stop));
                    }
                    // Too many open files, most likely: they come back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
                () = &mut stop => break,
            }
        }
        drop(self.listener);
        let _ = stopping.send(true);
        drained(&house).await;
        let _ = ticking.await;
        let _ = house.sessions.flush().await;
        house.links.close(Duration::from_secs(10)).await;
        // The lease is kept to the end: what was told late is still noted.
        renewing.abort();
        let _ = house.sessions.close().await;
    }
}

/// Waits for calls in flight, but not for ever.
async fn drained(house: &House) {
    let end = tokio::time::Instant::now() + DRAIN;
    while tokio::time::Instant::now() < end {
        if house.links.status().iter().all(|link| link.in_flight == 0) {
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
        if let Err(error) = house.sessions.renew().await {
            log.warn(&format!("the store cannot be reached: {error}"));
        }
        // What was let go of is taken up again by its next call, with the links it has.
        drop(house.sessions.lost());
    }
}

/// What has to be done from time to time: write times of use back, end what is over.
async fn tick(house: Arc<House>, log: Log, mut stopped: watch::Receiver<bool>) {
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
            if !again {
                log.info(&format!("session {} ended", record.id));
                end(&house, record.id);
            }
        }
        // What the store knows need not be remembered here.
        house.connections.forget(|it| !held.contains_key(&it.default_session()) && it.is_idle());
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
