//! Guard of a session: opens it at the first call, and ends an unnamed one with its last user.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{
    ActiveSession, EndReason, OpenOptions, SessionId, SessionOpenError, StoreError,
};
use tokio::sync::OnceCell;

use super::list_cache::ListCache;
use crate::{
    Error, Handlers,
    hub::{HubInner, KnownGenerations, end_session as end_at_gateway, session_key},
};

/// Time to wait for a session that another process holds, beyond the lease: a killed process holds it until its lease
/// runs out.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which a session that another process holds is tried again.
const TAKEOVER_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Guard of a named session or of a run. It opens the session at the first call.
pub(crate) struct SessionGuard {
    pub(crate) hub: Arc<HubInner>,
    pub(crate) id: SessionId,
    pub(crate) generations: Arc<KnownGenerations>,
    /// Lists of the servers, as this session sees them.
    pub(crate) lists: ListCache,
    /// Handlers of this session. `None` uses those of the hub.
    handlers: RwLock<Option<Arc<Handlers>>>,
    /// Options to open the session. `None` if it was open before the guard was created.
    open_options: Option<OpenOptions>,
    /// Set when the first call begins to open the session, also if that call is cancelled.
    open_started: AtomicBool,
    opened: OnceCell<()>,
    /// Whether the session ends when the guard is dropped.
    ends_on_drop: AtomicBool,
    /// Set at the end of a run: whoever still has its scope gets an error.
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
        let own = self.handlers.read().unwrap_or_else(PoisonError::into_inner);
        own.as_ref().unwrap_or(&self.hub.handlers).clone()
    }

    pub(crate) fn set_handlers(&self, handlers: Handlers) {
        let merged = Arc::new(handlers.or(&self.hub.handlers));
        *self.handlers.write().unwrap_or_else(PoisonError::into_inner) = Some(merged);
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
            let _ = end_session(hub.clone(), self.id).await;
            return Err(ended);
        }
        match hub.sessions.find_by_id(&hub.owner, self.id).await {
            Err(SessionOpenError::HeldElsewhere { .. } | SessionOpenError::LeaseLost) => {
                retry_while_held(hub, || hub.sessions.find_by_id(&hub.owner, self.id))
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
        self.hub.check_process()?;
        self.ends_on_drop.store(false, Ordering::Relaxed);
        let task = end_session(self.hub.clone(), self.id);
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
            let task = end_session(self.hub.clone(), self.id);
            self.hub.thread.handle().spawn(task);
        }
    }

    /// Ends the run, and its session if any call began to open it.
    pub(crate) async fn finish(&self) -> Result<(), Error> {
        self.run_ended.store(true, Ordering::SeqCst);
        if self.open_started.load(Ordering::SeqCst) { self.end().await } else { Ok(()) }
    }
}

/// Ends a session, also one that other guards still have. It leaves no tombstone: a session of its name starts fresh,
/// because its owner knows that it was ended. Expiry leaves one, so that the next session of the name reports the loss.
async fn end_session(hub: Arc<HubInner>, id: SessionId) -> Result<(), Error> {
    let found = match hub.sessions.find_by_id(&hub.owner, id).await {
        Ok(found) => Some(found.session().clone()),
        Err(SessionOpenError::Ended(_) | SessionOpenError::Unknown) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(session) = &found {
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

/// Repeats `attempt` while another process holds the session, for the time that the hub was built with, else for the
/// lease and [`TAKEOVER_TIMEOUT`]. Also repeats it
/// after this process lost its lease because it was suspended: the next renewal gets a new lease.
pub(crate) async fn retry_while_held<T, A>(
    hub: &HubInner,
    attempt: impl Fn() -> A,
) -> Result<T, SessionOpenError>
where
    A: Future<Output = Result<T, SessionOpenError>>,
{
    let usual = || hub.sessions.settings().lease.saturating_add(TAKEOVER_TIMEOUT);
    let limit = hub.takeover_timeout.unwrap_or_else(usual);
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(SessionOpenError::HeldElsewhere { .. } | SessionOpenError::LeaseLost)
                if waited < limit =>
            {
                tokio::time::sleep(TAKEOVER_POLL_INTERVAL).await;
                waited += TAKEOVER_POLL_INTERVAL;
            }
            result => return result,
        }
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
