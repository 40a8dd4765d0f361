//! End of a connection: its default session ends with it, unless something else ever named that session.

use stayput_core::{Handle, Owner, Session, SessionId, SessionOpenError};
use stayput_engine::END_WAIT;

use crate::{connections::connection::Connection, messages::subscriptions, state::AppState};

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
            if self.end_unless_known(&connection, session).await? {
                ended.push(session);
            }
        }
        self.sessions.remove_connection(owner, name).await?;
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
