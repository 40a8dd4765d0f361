//! Connections of clients, and the sessions they lead to.

use super::{OpenError, Sessions};
use crate::{Connection, Handle, HandleHash, Owner, Session, SessionId};

/// How many times of use are noted at once.
const BATCH: usize = 256;

impl Sessions {
    /// Keeps a connection that leads to a session, new or changed. `name` is the secret that its
    /// client shows, and `body` is for whoever speaks with the client.
    ///
    /// Of many that lead to this session, those are forgotten that nobody used for as long as it may idle.
    ///
    /// # Errors
    /// [`OpenError::LeaseLost`] or what the store says.
    pub async fn connect(
        &self,
        session: &Session,
        name: &Handle,
        body: &[u8],
    ) -> Result<(), OpenError> {
        let (name, session_id) = (name.hash(session.owner()), session.id());
        let used = self.clock.now();
        let unused = Connection::unused(used, session.record().expiry);
        let connection = Connection { name, session: session_id, used, body: body.to_owned() };
        let kept = self.store.put_connection(&connection, unused, Some(self.lease()?)).await;
        Ok(self.heed(session, kept)?)
    }

    /// Notes that connections are used now. To be called for each, while it is used, once in
    /// [`Connection::NOTED`].
    ///
    /// # Errors
    /// [`OpenError::LeaseLost`] or what the store says.
    pub async fn used(&self, names: &[HandleHash]) -> Result<(), OpenError> {
        let now = self.clock.now();
        for batch in names.chunks(BATCH) {
            let used: Vec<_> = batch.iter().map(|name| (*name, now)).collect();
            self.store.touch_connections(&used, Some(self.lease()?)).await?;
        }
        Ok(())
    }

    /// Where a connection of `owner` leads to, and what was kept with it; `None` if `owner` has no
    /// such connection.
    ///
    /// # Errors
    /// What the store says.
    pub async fn connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<Option<(SessionId, Vec<u8>)>, OpenError> {
        let found = self.store.connection(name.hash(owner)).await?;
        Ok(found.map(|connection| (connection.session, connection.body)))
    }

    /// Forgets a connection of `owner`. Forgetting twice is fine.
    ///
    /// # Errors
    /// [`OpenError::LeaseLost`] or what the store says.
    pub async fn disconnect(&self, owner: &Owner, name: &Handle) -> Result<(), OpenError> {
        Ok(self.store.remove_connection(name.hash(owner), Some(self.lease()?)).await?)
    }
}
