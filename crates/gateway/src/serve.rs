//! `stayput serve`: from its settings to its end.

mod furnish;
mod plan;
mod upkeep;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use stayput_core::{Sessions, Settings, SystemClock};
use tokio::{net::TcpListener, runtime::Handle, sync::watch, time::Instant};

pub(crate) use self::{
    furnish::owners,
    plan::{Plan, exposed},
};
use crate::{
    front::{
        door::Door,
        lanes::Lanes,
        socket::{self, Socket},
    },
    holding::Holding,
    house::House,
    log::{Level, Log},
    reload::Reading,
    watch::WatchError,
};

/// How long calls may go on after the first signal to stop, if nobody says how long.
const DRAIN: Duration = Duration::from_secs(10);

/// How long another process has a session after this one was killed. On one machine a restart does not
/// wait for it: see [`Holding`].
const LEASE: Duration = Duration::from_secs(15);

/// A gateway that listens.
pub(crate) struct Gateway {
    house: Arc<House>,
    /// Where to listen over HTTP, and who serves whoever comes.
    listener: Option<(TcpListener, Lanes)>,
    socket: Option<Socket>,
    /// A clone for each who came in by the socket and has not left.
    guests: Arc<()>,
    log: Log,
    /// Its configuration, if that is read anew when it changes.
    reading: Option<Reading>,
    stopping: watch::Sender<bool>,
    _holding: Holding,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(
        "{address} can be reached from other machines, and nobody is asked who they are: configure \
         `auth`, or listen on 127.0.0.1 or [::1]; if all who can reach it may share everything, say \
         --open-to-all"
    )]
    Exposed { address: SocketAddr },
    #[error("the folder {} cannot be used: {error}", path.display())]
    Data { path: PathBuf, error: io::Error },
    #[error(
        "another stayput{} has the sessions in {}; stop it, or choose another store", who(path),
        path.display()
    )]
    Taken { path: PathBuf },
    #[error("the socket in {} cannot be used: {error}", path.display())]
    Socket { path: PathBuf, error: io::Error },
    #[error("there are no threads to serve on: {0}")]
    Threads(io::Error),
    #[error("the store cannot be opened: {0}")]
    Open(#[from] stayput_stores::OpenError),
    #[error("the store cannot be used: {0}")]
    Store(#[from] stayput_core::StoreError),
    #[error(
        "there is no folder for keys: set HOME or XDG_DATA_HOME, or choose a store that is a file"
    )]
    NoHome,
    #[error("the keys of the issuer cannot be asked for: {0}")]
    Keys(#[from] stayput_upstream::http::ClientError),
    #[error(transparent)]
    Seal(#[from] stayput_upstream::SealError),
    #[error(transparent)]
    Watch(#[from] WatchError),
}

impl Gateway {
    /// Opens the store, takes the sessions, and listens. Nothing is started yet.
    pub(crate) async fn start(mut plan: Plan, log: Log) -> Result<Self, ServeError> {
        let owners = owners(std::mem::take(&mut plan.auth), None)?;
        plan::warn_if_exposed(&plan, &owners, log)?;
        let holding = Holding::take(&plan.data)?;
        let socket = socket(&plan, log)?;
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
        let listen = plan.listen;
        let (house, stopping) = furnish::house(plan, (owners, sessions), log)?;
        let listener = match listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (house, guests) = (Arc::new(house), Arc::default());
        let reading = None;
        Ok(Self { house, listener, socket, guests, log, reading, stopping, _holding: holding })
    }

    /// While it runs, its configuration is read anew when that changes.
    pub(crate) fn reading(self, reading: Reading) -> Self {
        Self { reading: Some(reading), ..self }
    }

    /// Says where it listens, and what to do with that.
    pub(crate) fn announce(&self) -> io::Result<()> {
        let Some((listener, _)) = &self.listener else { return Ok(()) };
        let address = listener.local_addr()?;
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

    /// The house, for whoever comes in by another door.
    pub(crate) fn house(&self) -> &Arc<House> {
        &self.house
    }

    /// Takes in whoever connects, each until `stopped`.
    async fn accept(&self, door: &Door, stopped: &watch::Receiver<bool>) {
        let Some((listener, lanes)) = &self.listener else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    door.enter(&self.house.now(), (socket, &lanes.next()), stopped.clone());
                }
                // Too many open files, most likely: they come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Takes in whoever comes by the socket, each until `stopped`.
    async fn admit(&self, stopped: &watch::Receiver<bool>) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        loop {
            let stream = socket.accept().await;
            let (house, guest) = (self.house.now(), self.guests.clone());
            let served = socket::serve(house, stream, self.listener.is_some(), stopped.clone());
            Handle::current().spawn(async move {
                served.await;
                drop(guest);
            });
        }
    }

    /// Waits until nobody has been here for as long as this, and no session is left.
    pub(crate) fn idle(&self, grace: Duration) -> impl Future<Output = ()> + use<> {
        let (house, guests) = (self.house.clone(), self.guests.clone());
        async move {
            let mut since = Instant::now();
            while since.elapsed() < grace {
                tokio::time::sleep(Duration::from_millis(250)).await;
                // One is the gateway's, and one is ours.
                if Arc::strong_count(&guests) > 2 || house.sessions.count() > 0 {
                    since = Instant::now();
                }
            }
        }
    }

    /// Waits until whoever came by the socket has left, but not for longer than `until`.
    async fn farewell(guests: &Arc<()>, until: Instant) {
        while Arc::strong_count(guests) > 1 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
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
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) {
        let (house, stopped) = (self.house.clone(), self.stopping.subscribe());
        let runtime = Handle::current();
        let renewing = runtime.spawn(upkeep::renew(house.clone(), self.log));
        let ticking = runtime.spawn(upkeep::tick(house.clone(), stopped.clone()));
        let (door, reading) = (Door::default(), self.reading.take());
        tokio::select! {
            () = self.accept(&door, &stopped) => {}
            () = self.admit(&stopped) => {}
            () = self.reload(reading) => {}
            () = stop => {}
        }
        // Who comes by the socket waits for whoever holds the sessions next.
        drop(self.socket.take());
        house.health.stops();
        let _ = self.stopping.send(true);
        let end = Instant::now() + house.now().rules.drain.unwrap_or(DRAIN);
        // Who comes now is told that it stops, and whoever asks for its health, too.
        let late = Door::default();
        let (_going_on, never) = watch::channel(false);
        tokio::select! {
            () = self.accept(&late, &never) => {}
            () = drained(&house, end) => {}
        }
        // To the end: links live on the lanes.
        let _lanes = self.listener.take().map(|(_, lanes)| lanes);
        // Who only listens is told that this is all, and what was answered is written to its end.
        house.connections.hush();
        door.empty(end).await;
        Self::farewell(&self.guests, end).await;
        let _ = ticking.await;
        let _ = house.sessions.flush().await;
        house.links.close(Duration::from_secs(10)).await;
        // The lease is kept to the end: what was told late is still noted.
        if let Some(watch) = &house.watch {
            watch.close().await;
        }
        renewing.abort();
        let _ = house.sessions.close().await;
        house.latest.clear();
    }

    /// Reads the configuration anew whenever it changes.
    async fn reload(&self, reading: Option<Reading>) {
        if let Some(reading) = reading
            && let Err(error) = reading.run(&self.house).await
        {
            self.log.warn(&format!("the configuration is not read anew: {error}"));
        }
        std::future::pending::<()>().await;
    }
}

/// Waits for calls in flight, but not for ever.
async fn drained(house: &House, end: Instant) {
    while Instant::now() < end {
        let answered = house.links.status().iter().all(|link| link.in_flight == 0);
        if answered && !house.connections.is_busy() && !house.callers.is_busy() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Where clients come in, and the threads on which they are served.
async fn bind(address: SocketAddr) -> Result<(TcpListener, Lanes), ServeError> {
    let failed = |error| ServeError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok((listener, Lanes::start().map_err(ServeError::Threads)?))
}

/// The socket, if it is wanted. Who also listens over HTTP can do without.
fn socket(plan: &Plan, log: Log) -> Result<Option<Socket>, ServeError> {
    if !plan.socket {
        return Ok(None);
    }
    match Socket::bind(&plan.data) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if plan.listen.is_some() => {
            log.warn(&format!("`stayput stdio` cannot come in: {error}"));
            Ok(None)
        }
        Err(error) => Err(ServeError::Socket { path: plan.data.clone(), error }),
    }
}

/// Which process has the sessions, if it can be told.
fn who(data: &Path) -> String {
    socket::holder(data).map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
