//! Start of a hub: its thread, its store, and its periodic tasks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_core::{
    Agent, Clock as _, Expiry, Holder, MemoryStore, Owner, SessionId, SessionLimits, Sessions,
    Settings, Store, SystemClock,
};
use stayput_engine::Engine;
use stayput_process::Processes;
use stayput_upstream::{
    Attachment, Limits, LinkSettings, Links, PerOwner, SealKey, SessionDirs, SharedStateId,
};
use tokio::{runtime::Handle, sync::broadcast};

use super::{
    Builder, Hub, HubInner,
    builder::StoreChoice,
    close::HubResources,
    default_session::DefaultSessions,
    headers::HeaderTable,
    servers::{ServerHooks, Servers},
    thread::HubThread,
};
use crate::{Error, events::LossLog};

/// Default time after which the lease on a persistent store runs out unless it is renewed.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// Shortest lease.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// Default time without use after which a named session of a store is given up.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// Interval at which ended sessions are cleaned up.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest and longest interval at which idle sessions are looked for.
const RELEASE_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// Capacity of the event channel; a subscriber that is further behind misses the oldest events.
const EVENT_CAPACITY: usize = 256;

/// Number of records of which the secrets are decrypted at the start, to see whether the key is right.
const CHECKED_RECORDS: usize = 200;

/// Id of the next hub. Scopes use it to find out which hub they belong to.
static NEXT_HUB_ID: AtomicU64 = AtomicU64::new(1);

/// Resources that the hub's thread has opened.
type Opened = (HubResources, SealKey);

impl Builder {
    /// Builds the hub. It waits for nothing: a hub with a store is opened by [`Builder::open`].
    ///
    /// # Errors
    /// If the configuration of a server is wrong, the folders cannot be used, or there is a store.
    pub fn build(self) -> Result<Hub, Error> {
        if self.store.is_some() {
            let message = "a hub with a store waits for its database: use `open().await` instead of `build()`";
            return Err(Error::InvalidInput(message.to_owned()));
        }
        open_blocking(self)
    }

    /// Builds the hub, and waits until its store is open.
    ///
    /// # Errors
    /// If the configuration of a server is wrong, or the store or the folders cannot be used.
    pub async fn open(mut self) -> Result<Hub, Error> {
        let (parts, runtime) = (HubParts::take(&mut self)?, self.runtime.take());
        let start =
            HubThread::start(runtime, async move |handle| self.open_resources(handle).await);
        Ok(parts.join(start?.opened().await?))
    }

    fn take_servers(&mut self, hooks: &ServerHooks) -> Result<Servers, Error> {
        let (servers, mut on_loss) = (Servers::default(), std::mem::take(&mut self.on_loss));
        let mut warm = std::mem::take(&mut self.warm);
        for (name, entry) in std::mem::take(&mut self.servers) {
            let mut entry = entry?;
            entry.server = hooks.apply(entry.server, &name);
            for (_, chosen) in on_loss.extract_if(.., |(other, _)| *other == name) {
                entry.on_loss = chosen;
            }
            for (_, count) in warm.extract_if(.., |(other, _)| *other == name) {
                entry.server = entry.server.warmed(count)?;
            }
            // Its processes are started now, with the present values of the variables.
            entry.source = entry.source.filter(|_| entry.server.options().warm.count == 0);
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

    async fn open_resources(self, runtime: Handle) -> Result<(Opened, HubResources), Error> {
        let processes = match self.warden.clone() {
            Some(command) => Processes::wardened(command, runtime.clone()),
            None => Processes::local(runtime.clone()),
        };
        let folders = match &self.folders {
            Some(root) => SessionDirs::new(root),
            None => SessionDirs::temporary(),
        };
        let limits = self.limits.unwrap_or_else(single_owner_limits);
        let links = LinkSettings {
            limits,
            ..LinkSettings::new(processes, folders.map_err(Error::invalid)?)
        };
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
        let sessions = sessions.await.map_err(Error::store)?;
        let persistent = lease != Duration::MAX;
        let release_after = self.release_after.unwrap_or(RELEASE_AFTER);
        let resources = HubResources {
            owner: Owner::local(),
            sessions: Arc::new(sessions),
            links,
            default_sessions: DefaultSessions::default(),
            persistent,
            release_after: (persistent && release_after != Duration::MAX).then_some(release_after),
            keeps_named: persistent || self.gateway.is_some(),
        };
        resources.sweep_leftovers(&runtime);
        Ok(((resources.clone(), seal), resources))
    }

    async fn open_store(&self) -> Result<(Arc<dyn Store>, Duration, SealKey), Error> {
        let Some(choice) = &self.store else { return open_memory_store() };
        if self.folders.is_none() && self.seal.is_empty() {
            let message = "a hub with a store also needs `folders` or `seal`: the key that encrypts secrets in the \
                           store is kept in the one or given by the other";
            return Err(Error::InvalidInput(message.to_owned()));
        }
        let lease = self.lease.unwrap_or(DEFAULT_LEASE);
        if lease < MIN_LEASE {
            let message =
                format!("a lease of {lease:?} cannot be renewed in time: use a second or more");
            return Err(Error::InvalidInput(message));
        }
        let store: Arc<dyn Store> = match choice {
            #[cfg(feature = "stores")]
            StoreChoice::Url(url) => stayput_stores::open(url).await.map_err(Error::store)?.store,
            StoreChoice::Own(store) => store.clone(),
        };
        let seal = self.seal_key()?;
        if !self.seal.is_empty() {
            check_seal(&*store, &seal).await?;
        }
        Ok((store, lease, seal))
    }

    /// Returns the key of [`Builder::seal`], else that of the folders, which is created if there is none.
    fn seal_key(&self) -> Result<SealKey, Error> {
        let keys = self.seal.iter().map(|digits| SealKey::from_hex(digits));
        let mut keys = keys.collect::<Result<Vec<_>, _>>().map_err(Error::invalid)?.into_iter();
        match (keys.next(), &self.folders) {
            (Some(first), _) => Ok(first.after(keys)),
            (None, Some(folders)) => {
                let mut dir = std::fs::DirBuilder::new();
                let made = std::os::unix::fs::DirBuilderExt::mode(dir.recursive(true), 0o700);
                made.create(folders).map_err(Error::invalid)?;
                SealKey::at(&folders.join("key")).map_err(Error::invalid)
            }
            (None, None) => SealKey::generate().map_err(Error::invalid),
        }
    }
}

/// Builds the hub, and blocks until its store is open. For bindings to languages that have no `await` at this place.
pub(crate) fn open_blocking(mut builder: Builder) -> Result<Hub, Error> {
    let (parts, runtime) = (HubParts::take(&mut builder)?, builder.runtime.take());
    let start = HubThread::start(runtime, async move |handle| builder.open_resources(handle).await);
    Ok(parts.join(start?.wait()?))
}

/// Refuses a store with secrets that another key has encrypted: they would all count as lost.
async fn check_seal(store: &dyn Store, seal: &SealKey) -> Result<(), Error> {
    let owner = Owner::local();
    let records = store.list(Some(&owner), None, CHECKED_RECORDS).await.map_err(Error::store)?;
    let mut sealed = records.iter().flat_map(|record| record.attachments.values());
    let unreadable = |it: &stayput_core::Attachment| {
        !SharedStateId::is_kept_as(&it.body) && Attachment::open(it, seal).is_err()
    };
    if !sealed.any(unreadable) {
        return Ok(());
    }
    let message = "the store has secrets that were encrypted with another key than `seal`: give that key, too, after the \
                   new one, or use another store";
    Err(Error::InvalidInput(message.to_owned()))
}

/// Parts of a hub that are made before its thread is started.
struct HubParts {
    servers: Servers,
    hooks: ServerHooks,
    unfinished: Builder,
}

impl HubParts {
    fn take(builder: &mut Builder) -> Result<Self, Error> {
        let (gateway, headers) = (builder.gateway.clone(), builder.headers.take());
        let needed = headers.is_some() || gateway.is_some();
        let headers = needed.then(|| HeaderTable::new(headers, gateway.is_some()));
        let hooks = ServerHooks { headers, stderr: builder.stderr.take() };
        let servers = builder.take_servers(&hooks)?;
        let unfinished = Builder {
            gateway,
            handlers: std::mem::take(&mut builder.handlers),
            warnings: std::mem::take(&mut builder.warnings),
            takeover_timeout: builder.takeover_timeout,
            trace_context: builder.trace_context.take(),
            ..Builder::default()
        };
        Ok(Self { servers, hooks, unfinished })
    }

    fn join(self, (thread, (resources, seal)): (HubThread, Opened)) -> Hub {
        let Self { servers, hooks, unfinished } = self;
        // Unique across processes.
        let instance_id = SessionId::generate(SystemClock.now()).to_string();
        let (sessions, links) = (resources.sessions.clone(), resources.links.clone());
        if let Some(headers) = &hooks.headers {
            headers.set_sessions(&resources.sessions);
        }
        let engine = Engine::new(sessions, links, seal, &instance_id);
        let inner = Arc::new(HubInner {
            id: NEXT_HUB_ID.fetch_add(1, Ordering::Relaxed),
            owner: resources.owner.clone(),
            sessions: resources.sessions.clone(),
            links: resources.links.clone(),
            resources,
            engine,
            servers,
            gateway: unfinished.gateway,
            warnings: unfinished.warnings,
            takeover_timeout: unfinished.takeover_timeout,
            handlers: Arc::new(unfinished.handlers),
            hooks,
            trace_context: unfinished.trace_context,
            losses: LossLog::default(),
            next_branch: AtomicU64::new(1),
            links_opened: AtomicU64::new(0),
            events: broadcast::channel(EVENT_CAPACITY).0,
            closed: AtomicBool::new(false),
            thread,
        });
        spawn_maintenance(&inner);
        inner.servers.all().iter().for_each(|entry| inner.links.warm(&entry.server));
        Hub { inner, agent: Agent::none() }
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
    if let Some(idle) = inner.resources.release_after {
        let (weak, pause) = (Arc::downgrade(inner), idle / 4);
        let pause = pause.clamp(RELEASE_INTERVALS.0, RELEASE_INTERVALS.1);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let resources = weak.upgrade().map(|inner| inner.resources.clone());
                let Some(resources) = resources else { return };
                resources.release_idle(idle).await;
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

fn open_memory_store() -> Result<(Arc<dyn Store>, Duration, SealKey), Error> {
    let seal = SealKey::generate().map_err(Error::invalid)?;
    let store = MemoryStore::new(Arc::new(SystemClock));
    // No other process can open these sessions, so the lease never runs out.
    Ok((Arc::new(store), Duration::MAX, seal))
}
