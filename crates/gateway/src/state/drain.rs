//! Drain: the sessions of this gateway move to other gateways of the cluster.
//!
//! Requests are served meanwhile. A session whose state is at HTTP servers is released when it is not in use, and the next
//! gateway that gets a request for it claims it. A session with a process stays until it ends, or until the deadline.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde::Serialize;
use stayput_core::{Session, SessionId, SessionOpenError};
use stayput_upstream::LinkOwner;
use tokio::{runtime::Handle, sync::watch, time::Instant};

use crate::{cluster::Cluster, state::AppState};

/// Time that calls in flight and processes get at the end, unless the configuration sets another one.
const DEFAULT_DRAIN: Duration = Duration::from_secs(10);

/// Interval at which sessions that are not in use are looked for.
const TICK: Duration = Duration::from_millis(50);

/// Time limit for the end of calls whose session is given up at the deadline, and the interval at which their end is noticed.
const LAST_CALLS: Duration = Duration::from_secs(2);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time until calls whose links were closed have written their last events.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Longest time until the events that the clients of a session have not read are stored.
const SAVE_LIMIT: Duration = Duration::from_secs(2);

/// Phase of the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrainPhase {
    /// The gateway takes new sessions.
    #[default]
    Serving,
    /// Sessions move to other gateways.
    Draining,
    /// No session is left, or the deadline has passed.
    Drained,
}

/// Progress of the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DrainProgress {
    pub(crate) phase: DrainPhase,
    /// Number of sessions that other gateways can go on with.
    pub(crate) moved: u64,
    /// Number of sessions that were given up at the deadline. Those with a process have lost their state.
    pub(crate) given_up: u64,
}

/// Drain of this gateway.
pub(crate) struct Drain(watch::Sender<DrainProgress>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(DrainProgress::default()))
    }
}

/// Error of a drain without another gateway that could take the sessions.
#[derive(Debug, thiserror::Error)]
#[error(
    "no other gateway of a cluster can take the sessions, so nothing was changed: configure `cluster`, and start another \
     gateway; to end this one, stop its process"
)]
pub(crate) struct NoSuccessor;

impl AppState {
    /// Returns how long calls in flight and processes go on after the gateway was told to stop.
    pub(crate) fn drain_time(&self) -> Duration {
        self.rules.limits.drain.unwrap_or(DEFAULT_DRAIN)
    }

    /// Returns the progress of the drain.
    pub(crate) fn drain_progress(&self) -> DrainProgress {
        *self.drain.0.borrow()
    }

    /// Begins to move the sessions to other gateways, in the background. Once begun, it goes on to its end.
    pub(crate) async fn begin_drain(self: &Arc<Self>) -> Result<(), NoSuccessor> {
        if self.drain_progress().phase != DrainPhase::Serving {
            return Ok(());
        }
        let cluster = self.cluster.clone().ok_or(NoSuccessor)?;
        // A gateway may have come or gone a moment ago. If the store cannot be asked, nothing moves.
        let known = cluster.read_peers().await;
        if known.is_err() || cluster.successor().is_none() {
            return Err(NoSuccessor);
        }
        let is_first = self.drain.0.send_if_modified(|progress| {
            progress.phase == DrainPhase::Serving && {
                progress.phase = DrainPhase::Draining;
                true
            }
        });
        if is_first {
            tracing::info!("the sessions of this gateway move to other gateways");
            self.health.drains();
            self.sessions.begin_hand_over(move || Cluster::successor(&cluster));
            let app = self.clone();
            Handle::current().spawn(async move { app.move_sessions().await });
        }
        Ok(())
    }

    /// Waits until the drain is over.
    pub(crate) async fn drained(&self) {
        let mut progress = self.drain.0.subscribe();
        // The sender lives as long as the application state, so the wait does not fail.
        let _ = progress.wait_for(|it| it.phase == DrainPhase::Drained).await;
    }

    async fn move_sessions(&self) {
        let end = Instant::now() + self.drain_time();
        while self.sessions.count() > 0 && Instant::now() < end {
            // A stream keeps its session in use. Its client opens it again, at any gateway.
            self.connections.stop_listening_where(|session| self.may_move_by_id(session));
            let moved = self.release_unused(|session| self.may_move(session)).await;
            self.drain.0.send_modify(|progress| progress.moved += moved);
            if self.sessions.count() > 0 {
                tokio::time::sleep(TICK).await;
            }
        }
        self.give_up_sessions().await;
        self.drain.0.send_modify(|progress| progress.phase = DrainPhase::Drained);
        let DrainProgress { moved, given_up, .. } = self.drain_progress();
        tracing::info!("{moved} sessions have moved, and {given_up} were given up at the deadline");
    }

    /// Releases the sessions that are left. Calls in flight have a moment to end, and new ones go to other gateways.
    async fn give_up_sessions(&self) {
        self.connections.stop_listening_where(|_| true);
        let left = self.sessions.held_sessions();
        let giving_up = left.iter().map(|session| async {
            if let Err(error) = self.engine.note_stop(session).await {
                tracing::debug!(
                    "session {} reports another reason of its loss: {error}",
                    session.id()
                );
            }
            let released = self.sessions.release_used(session, self.close(session)).await;
            if let Err(error) = &released {
                tracing::warn!("session {} could not be released: {error}", session.id());
            }
            u64::from(released.unwrap_or_default())
        });
        let given_up = join_all(giving_up).await.into_iter().sum();
        self.drain.0.send_modify(|progress| progress.given_up = given_up);
    }

    /// Waits until a session has no users, for a limited time, and closes its links.
    async fn close(&self, session: &Session) {
        let end = Instant::now() + LAST_CALLS;
        while session.is_in_use() && Instant::now() < end {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
        self.close_links(session.id()).await;
    }

    /// Closes the links of a session, and the process that it is the claim for. Stores what its clients have not read.
    async fn close_links(&self, session: SessionId) {
        self.server_claims.release(session, &self.links);
        self.links.release(session).await;
        self.save_unread(session).await;
    }

    /// Stores the events that the clients of a session have not read, for the next holder. Calls whose links were closed have
    /// a moment to end.
    async fn save_unread(&self, session: SessionId) {
        if tokio::time::timeout(SAVE_LIMIT, self.save_unread_events(session)).await.is_err() {
            tracing::warn!(
                "events that clients have not read were not all stored: the store did not answer in time"
            );
        }
    }

    async fn save_unread_events(&self, session: SessionId) {
        let Some(cluster) = &self.cluster else { return };
        let end = Instant::now() + LAST_ANSWERS;
        for connection in self.connections.begun_with(session) {
            let listen_stream = connection.listen_stream();
            while connection.streams.has_call(listen_stream.as_ref()) && Instant::now() < end {
                tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
            }
            if let Err(error) = cluster.unread_events.save(&connection).await {
                tracing::warn!("events that a client has not read were not stored: {error}");
            }
        }
    }

    /// Releases the sessions that are not in use and that `may_move`. Returns their number.
    async fn release_unused(&self, may_move: impl Fn(&Session) -> bool) -> u64 {
        let releasing =
            self.sessions.release_idle(Duration::ZERO, may_move, |id| self.close_links(id));
        match releasing.await {
            Ok(released) => released,
            Err(error) => {
                if !matches!(error, SessionOpenError::LeaseLost) {
                    tracing::warn!("sessions could not be released: {error}");
                }
                0
            }
        }
    }

    fn may_move_by_id(&self, session: SessionId) -> bool {
        self.sessions.get_held(session).is_none_or(|held| self.may_move(&held))
    }

    /// Whether another gateway can go on with a session: no link of its own leads to a process or an HTTP+SSE stream.
    fn may_move(&self, session: &Session) -> bool {
        let owner = LinkOwner::new(session.owner().clone(), session.id());
        let mut links = self.servers.values().filter_map(|server| self.links.find(server, &owner));
        !self.server_claims.has(session.id())
            && links.all(|link| link.is_shared() || link.can_move())
    }
}
