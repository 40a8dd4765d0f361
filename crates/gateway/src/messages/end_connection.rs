//! End of a connection: its default session ends with it, unless something else ever named that session.

use std::time::Duration;

use stayput_core::{Handle, Owner, Session, SessionId, SessionOpenError};
use stayput_engine::END_WAIT;
use tokio::time::Instant;

use crate::{connections::connection::Connection, messages::subscriptions, state::AppState};

/// Time beyond the lease after which a session must have been taken over from a replica that is gone, and the pause
/// between two attempts to end it there.
const TAKEOVER: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

impl AppState {
    /// Ends a connection, and the session that was made with it, unless something else ever named that session.
    pub(crate) async fn end_connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<bool, SessionOpenError> {
        let Some(connection) = self.connection(owner, name).await? else { return Ok(false) };
        // Ends the sessions first: if a later step fails, none of them lives on.
        let mut own = vec![connection.session, connection.default_session()];
        own.dedup();
        let mut ended = Vec::new();
        for session in own {
            if self.end_anywhere(&connection, session).await? {
                ended.push(session);
            }
        }
        self.sessions.remove_connection(owner, name).await?;
        self.announce_end(owner, name).await;
        self.connections.remove(connection.name_hash());
        let preferences = connection.preferences();
        connection.close();
        for session in ended {
            // Goes on in the background after that time.
            let _ = tokio::time::timeout(END_WAIT, self.links.end(session)).await;
        }
        // Unsubscribes on links that other clients continue to use.
        subscriptions::give_up(self, &connection, &preferences);
        Ok(true)
    }

    /// Ends a session of a connection, here or at the replica that holds it, unless others know it. Returns whether the
    /// session is over. After a switch, another replica may hold one of the sessions.
    async fn end_anywhere(
        &self,
        connection: &Connection,
        id: SessionId,
    ) -> Result<bool, SessionOpenError> {
        let limit = self.sessions.settings().lease.saturating_add(TAKEOVER);
        let end = Instant::now().checked_add(limit);
        loop {
            let error = match self.end_unless_known(connection, id).await {
                Err(error @ SessionOpenError::HeldElsewhere { .. }) => error,
                ended => return ended,
            };
            let (SessionOpenError::HeldElsewhere { holder }, Some(cluster)) =
                (&error, &self.cluster)
            else {
                return Err(error);
            };
            if holder.address.is_empty() {
                return Err(error);
            }
            let of = (id, &connection.owner);
            if let Some(is_over) = cluster.end_session(holder, connection.name(), of).await {
                return Ok(is_over);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Err(error);
            }
            // Its holder may be gone, and its lease not.
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Ends a session of a connection, if it is held here, unless others know it. Returns whether the session is over, and
    /// `None` if it is not held here.
    pub(crate) async fn end_held_session(
        &self,
        owner: &Owner,
        name: &Handle,
        session: SessionId,
    ) -> Result<Option<bool>, SessionOpenError> {
        let Some(connection) = self.connection(owner, name).await? else { return Ok(None) };
        if ![connection.session, connection.default_session()].contains(&session) {
            return Ok(None);
        }
        match self.end_unless_known(&connection, session).await {
            Ok(true) => {
                let _ = tokio::time::timeout(END_WAIT, self.links.end(session)).await;
                Ok(Some(true))
            }
            Ok(false) => Ok(Some(false)),
            Err(SessionOpenError::HeldElsewhere { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends a session of a connection unless others know it. Returns whether the session is over.
    async fn end_unless_known(
        &self,
        connection: &Connection,
        id: SessionId,
    ) -> Result<bool, SessionOpenError> {
        match self.sessions.find_by_id(&connection.owner, id).await {
            Ok(session) if is_known_elsewhere(&session) => return Ok(false),
            Ok(session) => {
                let own = session.session().clone();
                drop(session);
                self.end(&own, Some(connection.target.label())).await?;
            }
            Err(SessionOpenError::Unknown | SessionOpenError::Ended(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Returns whether a client other than the session's first connection may depend on it.
fn is_known_elsewhere(session: &Session) -> bool {
    let record = session.record();
    record.key.is_some() || record.handle_used
}
