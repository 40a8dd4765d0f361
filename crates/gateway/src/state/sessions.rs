//! Sessions of the store: open, end, discard, and wait for one that another process holds.

use std::sync::Arc;

use stayput_core::{
    EndReason, Holder, OpenOptions, OpenedSession, Origin, Session, SessionId, SessionOpenError,
};

use crate::{
    observe::{events::Event, recent::recent_events::LoggedEvent},
    reply::{SessionName, loss},
    state::AppState,
};

impl AppState {
    /// Opens the session that `wish` asks for, for a client of `server`. Records an event if the session is new.
    pub(crate) async fn open(
        &self,
        wish: &OpenOptions,
        server: &str,
    ) -> Result<OpenedSession, SessionOpenError> {
        let opened = self.wait_for_holder(|| self.sessions.open(wish)).await?;
        if opened.origin == Origin::New {
            self.note(opened.session.id(), Event::Opened { server });
        }
        Ok(opened)
    }

    /// Returns the replica that holds a session, if a request has shown it before.
    pub(crate) fn cached_holder(&self, name: &SessionName) -> Option<Holder> {
        self.cluster.as_ref()?.holders.get(name)
    }

    /// Notes the replica that holds a session, if it can be reached.
    pub(crate) fn cache_holder(&self, name: SessionName, holder: &Holder) {
        if let Some(cluster) = self.cluster.as_ref().filter(|_| !holder.address.is_empty()) {
            cluster.holders.insert(name, holder);
        }
    }

    /// Ends a session that its client has closed.
    pub(crate) async fn end(
        &self,
        session: &Arc<Session>,
        server: Option<&str>,
    ) -> Result<(), SessionOpenError> {
        self.engine.end_session(session, |name| self.servers.get(name).cloned()).await?;
        if let Some(cluster) = &self.cluster {
            cluster.unread_events.remove(session.owner(), session.id()).await;
        }
        self.note(session.id(), Event::Ended { server, reason: EndReason::Closed });
        Ok(())
    }

    /// Ends a session that no client knows, and removes it from the store.
    pub(crate) async fn discard(
        &self,
        session: &Arc<Session>,
        server: &str,
    ) -> Result<(), SessionOpenError> {
        self.end(session, Some(server)).await?;
        self.sessions.end_and_remove(session).await
    }

    /// Counts and logs a session event, and adds it to the event log.
    pub(crate) fn note(&self, session: SessionId, event: Event<'_>) {
        match event {
            Event::Opened { server } => self.metrics.opened(server),
            Event::Resumed { .. } => self.metrics.resumed(),
            Event::Lost { server, reason, .. } => self.metrics.lost(server, loss::word(reason)),
            Event::Ended { reason, .. } => self.metrics.ended(reason),
        }
        event.log(session);
        self.recent.events.add(event.logged(session));
    }

    /// Counts a refused request by its reason.
    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.metrics.refused(reason);
        self.recent.events.add(LoggedEvent::new("refused", Some(reason)));
    }

    /// Counts a reload of the configuration by its outcome.
    pub(crate) fn count_reloaded(&self, outcome: &'static str) {
        self.metrics.reloaded(outcome);
        self.recent.events.add(LoggedEvent::new("reloaded", Some(outcome)));
    }
}
