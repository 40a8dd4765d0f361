//! Closing of a hub, and the periodic clean-up of ended sessions.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use stayput_core::{Clock as _, Owner, Session, SessionId, Sessions, SystemClock};
use stayput_engine::{close_lost_links, sweep_leftovers};
use stayput_upstream::{LinkKey, Links, Scope, SharedStateId};
use tokio::{runtime::Handle, time::Instant};

use super::{Hub, HubInner, default_session::DefaultSessions};

/// Minimum time that links have to close, even if ending the sessions took the whole deadline.
const MIN_LINK_CLOSE_TIME: Duration = Duration::from_millis(100);

/// Age below which the folder of an unknown session is left alone.
const MIN_SWEEP_AGE: Duration = Duration::from_secs(10 * 60);

/// Counts of a closed hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Links opened during the lifetime of the hub.
    pub opened: u64,
    /// Sessions that were live when it was closed.
    pub sessions: usize,
    /// Links that were live when it was closed.
    pub links: usize,
    /// Links that did not close in time, and were killed.
    pub killed: usize,
}

/// Sessions and links of a hub, with everything that is needed to close them.
#[derive(Clone)]
pub(crate) struct HubResources {
    pub(crate) owner: Owner,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    pub(crate) default_sessions: DefaultSessions,
    /// Whether the store outlives this process.
    pub(crate) persistent: bool,
    /// Time without use after which a named session is given up. `None` gives up none.
    pub(crate) release_after: Option<Duration>,
    /// Whether named sessions are released instead of ended: in a store that outlives this process, and at a gateway.
    pub(crate) keeps_named: bool,
}

impl HubResources {
    /// Ends the sessions that can never be opened again and releases the others, under one deadline.
    pub(crate) async fn close(self, limit: Duration) -> CloseReport {
        let deadline = Instant::now() + limit;
        let default_sessions = std::mem::take(&mut *self.default_sessions.lock());
        let is_default = |id: SessionId| default_sessions.values().any(|it| it.id == id);
        let held = self.sessions.held_sessions();
        let links = self.links.status().iter().filter(|link| link.generation.is_some()).count();
        let to_end = held.iter().filter(|session| {
            !self.keeps_named || session.record().key.is_none() || is_default(session.id())
        });
        let ending: Vec<_> = to_end.map(|session| self.spawn_end(session)).collect();
        let mut killed = 0;
        for task in ending {
            // All tasks run at once, so awaiting them one after the other takes no longer.
            killed += usize::from(tokio::time::timeout_at(deadline, task).await.is_err());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let closed = self.links.close(left.max(MIN_LINK_CLOSE_TIME)).await;
        let _ = self.sessions.close().await;
        CloseReport { opened: 0, sessions: held.len(), links, killed: killed + closed.left }
    }

    fn spawn_end(&self, session: &Arc<Session>) -> tokio::task::JoinHandle<()> {
        let (resources, session) = (self.clone(), session.clone());
        Handle::current().spawn(async move {
            let _ = resources.sessions.end(&session).await;
            let _ = resources.links.end(session.id()).await;
        })
    }

    /// Renews the lease, and claims the sessions whose lease was lost. Returns the time until the next renewal.
    pub(crate) async fn renew_lease(&self) -> Duration {
        let renewed = self.sessions.renew().await;
        self.sessions.reclaim().await;
        self.sessions.renewal_interval(&renewed)
    }

    /// Gives up named sessions that were unused for `idle`, unless state of theirs is in this process: that of a child
    /// process, of a shared link, or of an isolated sub-agent.
    pub(crate) async fn release_idle(&self, idle: Duration) {
        let bound = OnceLock::new();
        let may_move = |session: &Session| {
            let record = session.record();
            let mut attachments = record.attachments.values();
            record.key.is_some()
                && !attachments.any(|it| SharedStateId::is_kept_as(&it.body))
                && !bound.get_or_init(|| self.bound_sessions()).contains(&session.id())
        };
        let releasing = self.sessions.release_idle(idle, may_move, |id| self.links.release(id));
        if let Err(error) = releasing.await {
            tracing::debug!(%error, "idle sessions were not released");
        }
    }

    /// Returns the sessions with a link that cannot be resumed by another process.
    fn bound_sessions(&self) -> HashSet<SessionId> {
        let links = self.links.report(|key| key.scope().session().is_some());
        let is_branch = |key: &LinkKey| matches!(key.scope(), Scope::Session { branch: 1.., .. });
        let bound = links.iter().filter(|link| link.is_bound() || is_branch(&link.key));
        bound.filter_map(|link| link.key.scope().session()).collect()
    }

    /// Closes links to sessions that other processes have, and removes in the background what killed processes left
    /// behind. Call it before the first link is opened.
    pub(crate) fn sweep_leftovers(&self, runtime: &Handle) {
        close_lost_links(&self.sessions, &self.links, |_, _| ());
        // Sessions in memory are not known to other hubs, which may use the same folders. A young id may be that of a
        // probe, which is in no store.
        let persistent = self.persistent;
        let keeps = move |session| !persistent || is_young(session);
        runtime.spawn(sweep_leftovers(&self.sessions, &self.links, keeps));
    }
}

/// Whether the id was generated within the last [`MIN_SWEEP_AGE`].
fn is_young(session: SessionId) -> bool {
    let created = session.as_uuid().get_timestamp().map_or(0, |it| it.to_unix().0);
    let now = SystemClock.now().as_millis() / 1_000;
    now.saturating_sub(created) < MIN_SWEEP_AGE.as_secs()
}

impl HubInner {
    /// Writes back last-used times and closes the links of sessions that expired. Called periodically.
    pub(crate) async fn maintain(&self) {
        for swept in self.engine.sweep().await {
            let id = swept.record.id;
            if swept.unreported_reason().is_some() {
                self.send_ended(&swept.record);
            }
            if swept.is_revived {
                continue;
            }
            let _ = match swept.unreported_reason() {
                Some(_) => {
                    self.engine
                        .end_expired(&swept.record, |name| self.servers.find_global(name))
                        .await
                }
                // The code that closed it has deleted its sessions on servers.
                None => self.links.end(id).await,
            };
        }
    }
}

impl Hub {
    /// Closes the hub under one deadline, and returns the counts. Further use is an error.
    ///
    /// Sessions in memory end, and so do unnamed and default ones. Named sessions in a store that outlives this
    /// process are released: the next process that opens one by its name continues it, on HTTP servers without a
    /// loss. [`Session::end`](crate::Session::end) ends a named session for good.
    pub async fn close(&self, limit: Duration) -> CloseReport {
        if !self.inner.thread.is_own_process() || self.inner.closed.swap(true, Ordering::Relaxed) {
            return CloseReport::default();
        }
        let opened = self.inner.links_opened.load(Ordering::Relaxed);
        let closing = self.inner.resources.clone().close(limit);
        // In its own task, so that it continues if this future is dropped.
        let report = self.inner.thread.handle().spawn(closing).await;
        CloseReport { opened, ..report.unwrap_or_default() }
    }
}
