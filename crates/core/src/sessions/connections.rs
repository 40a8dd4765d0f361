//! Connections of clients.

use super::{MAX_ATTEMPTS, SessionOpenError, Sessions};
use crate::{Connection, Handle, HandleHash, Owner, Session, SessionId, StoreError};

/// Maximum times of use in one call of the store.
const TOUCH_BATCH: usize = 256;

impl Sessions {
    /// Stores a new or changed connection to a session. `name` is the secret that the client sends,
    /// and `body` is the protocol state of the connection.
    ///
    /// If the session has many connections, those that were unused for its idle time are removed.
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`] or an error of the store.
    pub async fn put_connection(
        &self,
        session: &Session,
        name: &Handle,
        body: &[u8],
    ) -> Result<(), SessionOpenError> {
        let (name, session_id) = (name.hash(session.owner()), session.id());
        let last_used = self.clock.now();
        let stale_before = Connection::stale_before(last_used, session.record().expiry);
        let connection = Connection { name, session: session_id, last_used, body: body.to_owned() };
        for _ in 0..MAX_ATTEMPTS {
            let stored =
                self.store.put_connection(&connection, stale_before, Some(self.lease()?)).await;
            match self.release_if_not_holder(session, stored) {
                Err(StoreError::Missing) if session.record().is_live() => {
                    self.restore_held(session).await?;
                }
                stored => return Ok(stored?),
            }
        }
        Err(StoreError::Missing.into())
    }

    /// Records that connections are in use now. Call it for each used connection once per
    /// [`Connection::TOUCH_INTERVAL`].
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`] or an error of the store.
    pub async fn touch_connections(&self, names: &[HandleHash]) -> Result<(), SessionOpenError> {
        let now = self.clock.now();
        for batch in names.chunks(TOUCH_BATCH) {
            let used: Vec<_> = batch.iter().map(|name| (*name, now)).collect();
            self.store.touch_connections(&used, Some(self.lease()?)).await?;
        }
        Ok(())
    }

    /// Returns the session and the body of a connection of `owner`, or `None` if `owner` has no
    /// such connection.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn find_connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<Option<(SessionId, Vec<u8>)>, SessionOpenError> {
        let found = self.store.load_connection(name.hash(owner)).await?;
        Ok(found.map(|connection| (connection.session, connection.body)))
    }

    /// Removes a connection of `owner`. A missing one is not an error.
    ///
    /// # Errors
    /// [`SessionOpenError::LeaseLost`] or an error of the store.
    pub async fn remove_connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<(), SessionOpenError> {
        Ok(self.store.remove_connection(name.hash(owner), Some(self.lease()?)).await?)
    }
}
