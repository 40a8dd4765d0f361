//! All connections of clients.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::{Handle, HandleHash, OpenError, Owner, Session, SessionId};

use crate::{connection::Connection, house::House};

/// The connections that are known here. Others may be known to the store.
#[derive(Default)]
pub(crate) struct Connections(RwLock<HashMap<HandleHash, Arc<Connection>>>);

impl Connections {
    fn get(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    pub(crate) fn insert(&self, hash: HandleHash, connection: Arc<Connection>) -> Arc<Connection> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Two requests may have restored it at once: both use the first.
        all.entry(hash).or_insert(connection).clone()
    }

    fn remove(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(hash)
    }

    /// Takes out the connections of a session that is over, unless something is under way on one: it may
    /// be for another session. The store still knows them: whoever comes back is told of the loss.
    pub(crate) fn forget_session(&self, session: SessionId) {
        self.forget(|it| it.default_session() == session && it.is_idle());
    }

    /// Takes out connections, and ends what is under way on them.
    pub(crate) fn forget(&self, which: impl Fn(&Connection) -> bool) {
        let gone: Vec<_> = {
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.extract_if(|_, connection| which(connection)).collect()
        };
        for (_, connection) in gone {
            connection.close();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({})", self.len())
    }
}

impl House {
    /// The connection of `owner` with this name, from memory or from the store.
    pub(crate) async fn connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<Option<Arc<Connection>>, OpenError> {
        let hash = name.hash(owner);
        if let Some(known) = self.connections.get(&hash) {
            return Ok(Some(known));
        }
        let Some((session, body)) = self.sessions.connection(owner, name).await? else {
            return Ok(None);
        };
        let restored = Connection::from_bytes(owner.clone(), session, &body);
        Ok(restored.map(|restored| self.connections.insert(hash, Arc::new(restored))))
    }

    /// Ends a connection, and the session that was made with it, if nothing else ever named that.
    pub(crate) async fn disconnect(&self, owner: &Owner, name: &Handle) -> Result<bool, OpenError> {
        let Some(connection) = self.connection(owner, name).await? else { return Ok(false) };
        let mut ended = true;
        // The session first: whatever happens after that, nothing of it lives on.
        match self.sessions.by_id(owner, connection.session).await {
            Ok(session) if is_known_elsewhere(&session) => ended = false,
            Ok(session) => {
                let own = session.session().clone();
                drop(session);
                self.sessions.end(&own).await?;
            }
            Err(OpenError::Unknown | OpenError::Over(_)) => {}
            Err(error) => return Err(error),
        }
        self.sessions.disconnect(owner, name).await?;
        self.connections.remove(&name.hash(owner));
        connection.close();
        if ended {
            let _ = self.links.end(connection.session).await;
        }
        Ok(true)
    }
}

/// Whether somebody beside the connection it was made with may count on a session.
fn is_known_elsewhere(session: &Session) -> bool {
    let record = session.record();
    record.key.is_some() || record.named
}
