//! What a hub is made from.

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
use stayput_upstream::{
    Folders, Limits, LinkSettings, Links, Options, PerOwner, SealKey, Server, Transport,
    process::{Processes, WardenCommand},
};
use tokio::{runtime::Handle, sync::broadcast};

use crate::{
    Error, Hub,
    closing::{Automatics, Closing},
    events::Losses,
    handlers::Handlers,
    home::Home,
    hub::Inner,
    servers::{Entry, Servers, check_name},
};

/// How long the lease on a store that outlives the process runs without being renewed.
const LEASE: Duration = Duration::from_secs(15);

/// How often what is over is closed.
const TICK: Duration = Duration::from_secs(5);

/// Makes hubs apart: a scope belongs to one.
static HUBS: AtomicU64 = AtomicU64::new(1);

/// What a hub is made from. See [`Hub::builder`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    servers: Vec<(String, Result<Entry, Error>)>,
    on_loss: Vec<(String, OnLoss)>,
    #[cfg(feature = "stores")]
    store: Option<String>,
    warnings: Vec<String>,
    folders: Option<PathBuf>,
    limits: Option<Limits>,
    expiry: Option<Expiry>,
    handlers: Handlers,
    warden: Option<WardenCommand>,
    runtime: Option<Handle>,
}

impl Builder {
    /// With a server of this name: [`Stdio`](crate::Stdio) or [`Http`](crate::Http). Nothing is started before
    /// the first call.
    pub fn server(self, name: &str, transport: impl Into<Transport>) -> Self {
        self.server_with(name, transport, Options::default())
    }

    /// With a server of this name, and what can be chosen for it.
    pub fn server_with(
        mut self,
        name: &str,
        transport: impl Into<Transport>,
        options: Options,
    ) -> Self {
        let server = check_name(name).and_then(|()| Ok(Server::with(name, transport, options)?));
        self.servers.push((name.to_owned(), server.map(Entry::new)));
        self
    }

    /// With the servers of a file that people already have: `mcpServers`, or VS Code's `servers`, with comments,
    /// `${NAME}` and what `stayput` says in an entry. Settings at the top of the file are the gateway's.
    ///
    /// What was passed over, such as an entry that is Stayput itself, is told by [`Hub::warnings`].
    pub fn config(self, path: impl AsRef<Path>) -> Self {
        let servers = stayput_config::Servers::load(path.as_ref());
        self.configured(servers)
    }

    /// As [`Builder::config`], with the text of the file at hand. What is relative in it is so to the folder of
    /// `origin`, which errors name.
    pub fn config_text(self, text: &str, origin: impl AsRef<Path>) -> Self {
        self.configured(stayput_config::Servers::parse(text, origin.as_ref()))
    }

    fn configured(mut self, servers: Result<stayput_config::Servers, ConfigError>) -> Self {
        match servers {
            Ok(servers) => {
                self.warnings.extend(servers.warnings);
                let found = servers.found.into_iter();
                self.servers.extend(found.map(|it| (it.server.name().to_owned(), Ok(it.into()))));
            }
            Err(error) => self.servers.push((String::new(), Err(error.into()))),
        }
        self
    }

    /// Chooses what becomes of calls to this server that a loss of state has hit. As long as nothing is chosen
    /// they fail, and the agent decides.
    pub fn on_loss(mut self, server: &str, on_loss: OnLoss) -> Self {
        self.on_loss.push((server.to_owned(), on_loss));
        self
    }

    /// Keeps sessions in this store, such as `sqlite:sessions.db`, so that another process can go on with
    /// them. Without one they are kept in memory.
    #[cfg(feature = "stores")]
    pub fn store(mut self, url: &str) -> Self {
        self.store = Some(url.to_owned());
        self
    }

    /// Private folders of sessions, `${session.dir}`, are here and not in a temporary place.
    pub fn folders(mut self, root: impl Into<PathBuf>) -> Self {
        self.folders = Some(root.into());
        self
    }

    /// How many links, processes and bytes of memory there may be.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// When sessions end by themselves. Defaults to 30 minutes idle and 24 hours in all.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Who answers what servers ask: elicitation, sampling, roots. Without it servers are told that nobody
    /// can be asked.
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// Children are started and ended by a warden, a program of its own that runs this command. Without
    /// one, a watchdog ends them if this process is killed.
    pub fn warden(mut self, command: WardenCommand) -> Self {
        self.warden = Some(command);
        self
    }

    /// Links live on this runtime instead of on a thread of the hub's own. When it ends, so do they.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The hub. If sessions are kept in a store, this waits for the store.
    ///
    /// # Errors
    /// If a server is written wrong, or the store or the folders cannot be used.
    pub fn build(mut self) -> Result<Hub, Error> {
        let servers = self.servers()?;
        let handlers = Arc::new(std::mem::take(&mut self.handlers));
        let (runtime, warnings) = (self.runtime.take(), std::mem::take(&mut self.warnings));
        let (home, (closing, seal)) =
            Home::found(runtime, async move |handle| self.open(handle).await)
                .map_err(|Failed(error)| error)?;
        let life = SessionId::generate(SystemClock.now()).to_string();
        let inner = Arc::new(Inner {
            id: HUBS.fetch_add(1, Ordering::Relaxed),
            owner: closing.owner.clone(),
            sessions: closing.sessions.clone(),
            links: closing.links.clone(),
            closing,
            seal,
            life,
            servers,
            warnings,
            handlers,
            losses: Losses::default(),
            branches: AtomicU64::new(1),
            opened: AtomicU64::new(0),
            events: broadcast::channel(256).0,
            closed: AtomicBool::new(false),
            home,
        });
        begin(&inner);
        Ok(Hub { inner, agent: Agent::none() })
    }

    fn servers(&mut self) -> Result<Servers, Error> {
        let (servers, mut on_loss) = (Servers::default(), std::mem::take(&mut self.on_loss));
        for (name, entry) in std::mem::take(&mut self.servers) {
            let mut entry = entry?;
            for (_, chosen) in on_loss.extract_if(.., |(other, _)| *other == name) {
                entry.on_loss = chosen;
            }
            if servers.insert(&Agent::none(), &name, entry).is_some() {
                return Err(Error::Invalid(format!("there are two servers `{name}`")));
            }
        }
        match on_loss.first() {
            Some((server, _)) => Err(Error::Invalid(format!(
                "`on_loss` is chosen for `{server}`, and there is no such server"
            ))),
            None => Ok(servers),
        }
    }

    async fn open(self, runtime: Handle) -> Result<((Closing, SealKey), Closing), Failed> {
        let processes = match self.warden.clone() {
            Some(command) => Processes::wardened(command, runtime.clone()),
            None => Processes::local(runtime.clone()),
        };
        let folders = match &self.folders {
            Some(root) => Folders::new(root)?,
            None => Folders::temporary()?,
        };
        let limits = self.limits.unwrap_or_else(all_for_one);
        let links = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
        let links = Links::new(links, runtime);
        let (store, lease, seal) = self.database().await?;
        let mut settings = Settings { lease, ..Settings::default() };
        // Everything here is one owner's.
        settings.sessions = SessionLimits { per_owner: usize::MAX, ..settings.sessions };
        settings.expiry = self.expiry.unwrap_or(settings.expiry);
        let sessions =
            Sessions::start(store, Arc::new(SystemClock), Holder::unreachable(), settings);
        let sessions = sessions.await.map_err(|error| Failed(Error::invalid(error)))?;
        let closing = Closing {
            owner: Owner::local(),
            sessions: Arc::new(sessions),
            links,
            automatics: Automatics::default(),
            lasting: lease != Duration::MAX,
        };
        Ok(((closing.clone(), seal), closing))
    }

    #[cfg(feature = "stores")]
    async fn database(&self) -> Result<(Arc<dyn Store>, Duration, SealKey), Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed(Error::Invalid(error.to_string()));
        let Some(url) = &self.store else { return in_memory() };
        let Some(folders) = &self.folders else {
            let sentence = "a hub with a store needs `folders`, too: the key for what is secret in the \
                            store is kept there";
            return Err(Failed(Error::Invalid(sentence.to_owned())));
        };
        let database = stayput_stores::open(url).await.map_err(|error| failed(&error))?;
        let mut made = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(made.recursive(true), 0o700).create(folders)?;
        let seal = SealKey::at(&folders.join("key")).map_err(|error| failed(&error))?;
        Ok((database.store, LEASE, seal))
    }

    #[cfg(not(feature = "stores"))]
    async fn database(&self) -> Result<(Arc<dyn Store>, Duration, SealKey), Failed> {
        in_memory()
    }
}

/// Begins what has to be done from time to time, for as long as there is a hub.
fn begin(inner: &Arc<Inner>) {
    let (weak, runtime) = (Arc::downgrade(inner), inner.home.handle());
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            let Some(inner) = weak.upgrade() else { return };
            inner.tick().await;
        }
    });
    if inner.closing.lasting {
        // In a task of its own: whatever takes long above, the lease is kept.
        let weak = Arc::downgrade(inner);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(LEASE / 3).await;
                let Some(closing) = weak.upgrade().map(|inner| inner.closing.clone()) else {
                    return;
                };
                closing.renew().await;
            }
        });
    }
}

/// The usual limits. Everything here is one owner's, so what one may have is what there may be.
fn all_for_one() -> Limits {
    let limits = Limits::default();
    let per_owner = PerOwner { processes: limits.processes, links: limits.links };
    Limits { per_owner, ..limits }
}

fn in_memory() -> Result<(Arc<dyn Store>, Duration, SealKey), Failed> {
    let seal = SealKey::generate().map_err(|error| Failed(Error::invalid(error)))?;
    let store = MemoryStore::new(Arc::new(SystemClock));
    // It ends with this process: nobody else can want its sessions.
    Ok((Arc::new(store), Duration::MAX, seal))
}

/// An error on its way out of the hub's thread.
struct Failed(Error);

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self(Error::invalid(error))
    }
}
