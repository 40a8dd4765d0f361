//! Guard of a session: opens it at the first call, and ends an unnamed one with its last user.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{
    ActiveSession, Agent, EndReason, Key, OpenOptions, Record, SessionId, SessionOpenError,
    StoreError,
};
use stayput_sync::RwLock;
use tokio::sync::OnceCell;

use super::{
    id_keeper::{KeptLink, SessionIdKeeper},
    list_cache::ListCache,
};
use crate::{
    Error, Handlers,
    hub::{HubInner, KnownGenerations, end_session as end_at_gateway, session_key},
};

/// Time to wait for a session that another process holds, beyond the lease: a killed process holds it until its lease
/// runs out.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Intervals at which a session that another process holds is tried again: the first one, and the longest. They double.
const TAKEOVER_POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// Guard of a named session or of a run. It opens the session at the first call.
pub(crate) struct SessionGuard {
    pub(crate) hub: Arc<HubInner>,
    pub(crate) id: SessionId,
    pub(crate) generations: Arc<KnownGenerations>,
    /// Lists of the servers, as this session sees them.
    pub(crate) lists: ListCache,
    /// Handlers of this session. `None` uses those of the hub.
    handlers: RwLock<Option<Arc<Handlers>>>,
    /// Keeper of the ids of its sessions on HTTP servers. `None` keeps them only in the record.
    id_keeper: RwLock<Option<Arc<dyn SessionIdKeeper>>>,
    /// Options to open the session. `None` if it was open before the guard was created.
    open_options: Option<OpenOptions>,
    /// Whether the first call has begun to open the session, also if that call was cancelled.
    open_started: AtomicBool,
    opened: OnceCell<()>,
    /// Whether the session ends when the guard is dropped.
    ends_on_drop: AtomicBool,
    /// Whether its run has ended. A task that still has the scope of the run gets an error.
    run_ended: AtomicBool,
}

impl SessionGuard {
    fn new(hub: Arc<HubInner>, id: SessionId, open_options: Option<OpenOptions>) -> Self {
        let is_open = open_options.is_none();
        Self {
            hub,
            id,
            generations: Arc::default(),
            lists: ListCache::default(),
            handlers: RwLock::default(),
            id_keeper: RwLock::default(),
            ends_on_drop: AtomicBool::new(!is_open),
            open_started: AtomicBool::new(is_open),
            open_options,
            opened: OnceCell::new_with(is_open.then_some(())),
            run_ended: AtomicBool::new(false),
        }
    }

    /// Guard of an open session, which outlives the guard.
    pub(crate) fn of_open(hub: Arc<HubInner>, id: SessionId) -> Arc<Self> {
        Arc::new(Self::new(hub, id, None))
    }

    /// Guard of an open session for a scope that already knows some generations.
    pub(crate) fn with_generations(
        hub: Arc<HubInner>,
        id: SessionId,
        generations: Arc<KnownGenerations>,
    ) -> Arc<Self> {
        let mut guard = Self::new(hub, id, None);
        guard.generations = generations;
        Arc::new(guard)
    }

    /// Guard of a new unnamed session, which ends with the guard.
    pub(crate) fn ephemeral(hub: Arc<HubInner>) -> Arc<Self> {
        let id = SessionId::generate(hub.now());
        let options = OpenOptions::new(hub.owner.clone()).id(id);
        Arc::new(Self::new(hub, id, Some(options)))
    }

    pub(crate) fn hub_id(&self) -> u64 {
        self.hub.id
    }

    pub(crate) fn handlers(&self) -> Arc<Handlers> {
        let own = self.handlers.read();
        own.as_ref().unwrap_or(&self.hub.handlers).clone()
    }

    pub(crate) fn set_handlers(&self, handlers: Handlers) {
        let merged = Arc::new(handlers.or(&self.hub.handlers));
        *self.handlers.write() = Some(merged);
    }

    pub(crate) fn id_keeper(&self) -> Option<Arc<dyn SessionIdKeeper>> {
        self.id_keeper.read().clone()
    }

    pub(crate) fn set_id_keeper(&self, keeper: Arc<dyn SessionIdKeeper>) {
        *self.id_keeper.write() = Some(keeper);
    }

    /// Returns the session, in use. An expired one is revived, and its loss is reported by the next call.
    pub(crate) async fn acquire(&self) -> Result<ActiveSession, Error> {
        let hub = &self.hub;
        hub.check_open()?;
        self.check_run()?;
        self.opened
            .get_or_try_init(async || match &self.open_options {
                Some(options) => {
                    self.open_started.store(true, Ordering::SeqCst);
                    hub.sessions.open(options).await.map(drop)
                }
                None => Ok(()),
            })
            .await?;
        if let Err(ended) = self.check_run() {
            // The run ended while the session was being opened, so nothing else ends this session.
            let _ = end_session(hub.clone(), self.id, None).await;
            return Err(ended);
        }
        match hub.sessions.find_by_id(&hub.owner, self.id).await {
            Err(SessionOpenError::HeldElsewhere { .. } | SessionOpenError::LeaseLost) => {
                let which = HeldSession::Id(self.id);
                retry_while_held(hub, which, || hub.sessions.find_by_id(&hub.owner, self.id))
                    .await
                    .map_err(Error::from)
            }
            Err(SessionOpenError::Ended(over)) => {
                let closed = over.ended.is_none_or(|it| it.reason == EndReason::Closed);
                if closed {
                    return Err(Error::SessionEnded { session: self.id });
                }
                // The links of the expired incarnation end before the next one begins.
                let _ = hub.links.end(self.id).await;
                match hub.sessions.revive(&hub.owner, self.id).await {
                    // Another session has taken its name.
                    Err(SessionOpenError::Store(StoreError::Taken { .. })) => {
                        Err(Error::SessionEnded { session: self.id })
                    }
                    revived => Ok(revived?.session),
                }
            }
            Err(SessionOpenError::Unknown) => Err(Error::SessionEnded { session: self.id }),
            found => Ok(found?),
        }
    }

    /// Ends the session and closes its links, and waits for both. It continues if this future is dropped.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        self.end_by(end_session(self.hub.clone(), self.id, self.id_keeper())).await
    }

    async fn end_by(
        &self,
        task: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        self.hub.check_process()?;
        self.ends_on_drop.store(false, Ordering::Relaxed);
        // The task is cancelled if the runtime was shut down, and all links with it.
        self.hub.thread.handle().spawn(task).await.unwrap_or(Err(Error::HubClosed))
    }

    fn check_run(&self) -> Result<(), Error> {
        match self.run_ended.load(Ordering::SeqCst) {
            true => Err(Error::SessionEnded { session: self.id }),
            false => Ok(()),
        }
    }

    /// Ends the run without waiting.
    pub(crate) fn abandon(&self) {
        self.run_ended.store(true, Ordering::SeqCst);
        self.end_in_background();
    }

    fn end_in_background(&self) {
        let was_opened = self.open_started.load(Ordering::SeqCst);
        let ends = self.ends_on_drop.swap(false, Ordering::Relaxed);
        if ends && was_opened && self.hub.thread.is_own_process() {
            // If this fails, the session expires by itself.
            let runtime = self.hub.thread.handle();
            if self.id_keeper().is_some() {
                runtime.spawn(leave_session(self.hub.clone(), self.id));
            } else {
                runtime.spawn(end_session(self.hub.clone(), self.id, None));
            }
        }
    }

    /// Ends the run, and its session if any call began to open it.
    pub(crate) async fn finish(&self) -> Result<(), Error> {
        self.run_ended.store(true, Ordering::SeqCst);
        match (self.open_started.load(Ordering::SeqCst), self.id_keeper()) {
            (false, _) => Ok(()),
            (true, None) => self.end().await,
            (true, Some(_)) => self.end_by(leave_session(self.hub.clone(), self.id)).await,
        }
    }
}

/// Ends a session, also one that other guards still have. It leaves no tombstone: a session of its name starts fresh,
/// because its owner knows that it was ended. Expiry leaves one, so that the next session of the name reports the loss.
/// The keeper forgets its session ids.
async fn end_session(
    hub: Arc<HubInner>,
    id: SessionId,
    keeper: Option<Arc<dyn SessionIdKeeper>>,
) -> Result<(), Error> {
    let finding = || hub.sessions.find_by_id(&hub.owner, id);
    let found = match retry_while_held(&hub, HeldSession::Id(id), finding).await {
        Ok(found) => Some(found.session().clone()),
        Err(SessionOpenError::Ended(_) | SessionOpenError::Unknown) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(session) = &found {
        if let Some(keeper) = keeper {
            clear_ids(&hub, &session.record(), &*keeper).await;
        }
        let key = hub.gateway.as_ref().and_then(|_| session_key(&session.record()));
        // A gateway deletes the sessions on its servers itself.
        if hub.gateway.is_none() {
            hub.engine.end_session(session, |name| hub.servers.find_global(name)).await?;
        }
        hub.sessions.end_and_remove(session).await?;
        if let Some(key) = key {
            Box::pin(end_at_gateway(&hub, key)).await;
        }
    }
    let _ = hub.links.end(id).await;
    if let Some(session) = &found {
        hub.send_ended(&session.record());
    }
    Ok(())
}

/// Ends a session whose ids are kept: its sessions on HTTP servers go on without it.
async fn leave_session(hub: Arc<HubInner>, id: SessionId) -> Result<(), Error> {
    let session = match hub.sessions.find_by_id(&hub.owner, id).await {
        Ok(found) => found.session().clone(),
        Err(SessionOpenError::Ended(_) | SessionOpenError::Unknown) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    hub.links.release(id).await;
    hub.sessions.end_and_remove(&session).await?;
    // The links are released, so that only the folders are left.
    let _ = hub.links.end(id).await;
    hub.send_ended(&session.record());
    Ok(())
}

async fn clear_ids(hub: &HubInner, record: &Record, keeper: &dyn SessionIdKeeper) {
    for server in record.attachments.keys().filter_map(|name| hub.servers.find_global(name)) {
        if let Err(reason) = keeper.clear(&KeptLink::new(&server, record)).await {
            tracing::warn!(server = server.name(), reason, "the kept session id was not removed");
        }
    }
}

/// Session that another process may hold.
#[derive(Clone, Copy)]
pub(crate) enum HeldSession<'a> {
    Id(SessionId),
    Key(&'a Agent, &'a Key),
}

impl HeldSession<'_> {
    /// Whether it has used a server that runs as a child process. If the store fails, the answer is no.
    async fn has_process(self, hub: &HubInner) -> bool {
        let record = match self {
            Self::Id(id) => hub.sessions.load_record(id).await,
            Self::Key(agent, key) => hub.sessions.load_record_by_key(&hub.owner, agent, key).await,
        };
        let record = record.ok().flatten();
        let names = record.iter().flat_map(|record| record.attachments.keys());
        let mut servers = names.filter_map(|name| hub.servers.find_global(name));
        servers.any(|server| server.is_process())
    }
}

/// Repeats `attempt` while another process holds the session, for the time that the hub was built with, else for the
/// lease and [`TAKEOVER_TIMEOUT`]; a session with a child process is then not waited for, because its state stays where
/// it is. Also repeats it after this process lost its lease because it was suspended: the next renewal gets a new lease.
pub(crate) async fn retry_while_held<T, A>(
    hub: &HubInner,
    which: HeldSession<'_>,
    attempt: impl Fn() -> A,
) -> Result<T, SessionOpenError>
where
    A: Future<Output = Result<T, SessionOpenError>>,
{
    let usual = || hub.sessions.settings().lease.saturating_add(TAKEOVER_TIMEOUT);
    let limit = hub.takeover_timeout.unwrap_or_else(usual);
    let (mut waited, (mut pause, longest)) = (Duration::ZERO, TAKEOVER_POLL_INTERVALS);
    let mut is_movable = hub.takeover_timeout.is_some();
    loop {
        let error = match attempt().await {
            Err(error @ (SessionOpenError::HeldElsewhere { .. } | SessionOpenError::LeaseLost)) => {
                error
            }
            result => return result,
        };
        let is_foreign = matches!(&error, SessionOpenError::HeldElsewhere { holder } if holder.id != hub.sessions.holder().id);
        if is_foreign && !is_movable {
            // Checked once: it needs the store.
            is_movable = !which.has_process(hub).await;
            if !is_movable {
                return Err(error);
            }
        }
        if waited >= limit || hub.check_open().is_err() {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause = longest.min(pause * 2);
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

impl fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionGuard({})", self.id)
    }
}
