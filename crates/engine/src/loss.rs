//! Generations that a session has seen, and losses that it has acknowledged.

use std::sync::Arc;

use stayput_core::{Generation, Session, SessionOpenError};
use stayput_upstream::{PooledLink, SharedStateId};

use crate::Engine;

/// State behind a link after the current one was lost.
#[derive(Debug)]
pub struct NextState {
    /// Generation of that state, as the session counts it.
    pub generation: Generation,
    /// State of a link that several sessions share.
    shared: Option<SharedStateId>,
}

impl NextState {
    /// Returns a state of a link that belongs to one session.
    #[must_use]
    pub fn own(generation: Generation) -> Self {
        Self { generation, shared: None }
    }
}

impl Engine {
    /// Records that the session depends on the state behind a link that several sessions share, and returns its
    /// generation. If the session depended on an earlier state, that one counts as lost. A session counts its own
    /// losses on a shared link, from its first use on. Returns `None` for a link that keeps no state or belongs to
    /// the session alone.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub async fn note_shared_state(
        &self,
        session: &Arc<Session>,
        server: &str,
        link: &PooledLink,
    ) -> Result<Option<Generation>, SessionOpenError> {
        let Some(state) = SharedStateId::now(&self.instance_id, link) else { return Ok(None) };
        if let Some(generation) = state.seen_by(&session.record(), server) {
            return Ok(Some(generation));
        }
        // Boxed, because it is rare and the future of each call would have its size.
        Box::pin(self.sessions.change(session, |record| state.note(record, server))).await?;
        Ok(state.seen_by(&session.record(), server))
    }

    /// Returns the state that follows the one behind `link`, which was just lost.
    #[must_use]
    pub fn state_after_loss(
        &self,
        session: &Session,
        server: &str,
        link: &PooledLink,
    ) -> NextState {
        let Some(shared) = SharedStateId::next(&self.instance_id, link) else {
            return NextState::own(link.generation().next());
        };
        let record = session.record();
        let seen = shared.seen_by(&record, server);
        let generation = seen.unwrap_or_else(|| record.generation.next());
        NextState { generation, shared: Some(shared) }
    }

    /// Records that the client knows of a loss.
    ///
    /// # Errors
    /// If the record cannot be written. The loss is then reported once more, which is harmless.
    pub async fn acknowledge_loss(
        &self,
        session: &Arc<Session>,
        server: &str,
        next: &NextState,
    ) -> Result<(), SessionOpenError> {
        let generation = next.generation;
        tracing::debug!(session = %session.id(), server, %generation, "loss acknowledged");
        let change = self.sessions.change(session, |record| {
            if let Some(shared) = &next.shared {
                shared.note(record, server);
            }
            record.acknowledge_loss(server, next.generation);
        });
        change.await
    }
}
