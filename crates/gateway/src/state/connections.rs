//! Connections of clients, found in memory or restored from the store.

use std::{sync::Arc, time::Duration};

use stayput_core::{Clock as _, Handle, Owner, SessionId, SessionOpenError, SystemClock};
use tokio::{runtime, time::Instant};

use crate::{
    auth::{Claims, Principal},
    cluster::ConnectionEvent,
    connections::connection::{Connection, ConnectionGuard},
    observe::events::Event,
    reply::{HeldBy, SessionName},
    state::AppState,
};

/// Time beyond the lease after which a replica that does not answer must have been found dead.
const ANNOUNCE_GRACE: Duration = Duration::from_secs(3);

/// Longest time that the end of a connection waits until all replicas know of it.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

impl AppState {
    /// Returns the connection of `owner` with this name, from memory or from the store.
    pub(crate) async fn connection(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<Option<ConnectionGuard>, SessionOpenError> {
        let hash = name.hash(owner);
        if let Some(known) = self.connections.get(&hash) {
            return Ok(Some(known));
        }
        let Some((session, body)) = self.sessions.find_connection(owner, name).await? else {
            return Ok(None);
        };
        let named = (owner.clone(), name.clone());
        let Some(restored) = Connection::from_bytes(named, session, &body) else {
            return Ok(None);
        };
        let restored = Arc::new(restored);
        let known = self.connections.restore(restored.clone());
        if Arc::ptr_eq(&known, &restored) {
            self.note(session, Event::Resumed { server: known.target.label() });
        }
        Ok(Some(known))
    }

    /// Returns the replica that holds the default session of a connection. A session without a holder is claimed here.
    pub(crate) async fn home_elsewhere(&self, connection: &Connection) -> Option<Box<HeldBy>> {
        self.cluster.as_ref()?;
        for _ in 0..2 {
            let name = SessionName::Id(connection.default_session());
            if connection.reenter_default_session(&self.sessions).is_some() {
                return None;
            }
            if let Some(holder) = self.cached_holder(&name) {
                return Some(Box::new(HeldBy { holder, name: Some(name) }));
            }
            match self.session(&connection.owner, connection.default_session()).await {
                Err(SessionOpenError::HeldElsewhere { holder }) if !holder.address.is_empty() => {
                    if !self.refresh_default_session(connection).await.unwrap_or_default() {
                        self.cache_holder(name, &holder);
                        return Some(Box::new(HeldBy { holder, name: Some(name) }));
                    }
                }
                _ => return None,
            }
        }
        None
    }

    /// Tells all replicas that a connection has another default session, and waits until they know: a replica with an
    /// older copy would run the next call in the former session. Afterwards this replica reads it, too, because another
    /// one may have replaced the session at the same time.
    pub(crate) async fn announce_default_session(
        &self,
        connection: &Connection,
        claims: &Claims,
    ) -> Result<(), SessionOpenError> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let principal = Principal::forwarded(connection.owner.clone(), claims.clone(), false);
        let limit = self.sessions.settings().lease.saturating_add(ANNOUNCE_GRACE);
        let changed = (connection.name(), ConnectionEvent::Changed);
        cluster.announce_connection(changed, &principal, limit).await;
        self.refresh_default_session(connection).await.map(drop)
    }

    /// Tells all replicas that a connection has ended: a copy of it could bring it back. A replica that does not answer is
    /// told in the background.
    pub(crate) async fn announce_end(&self, owner: &Owner, name: &Handle) {
        let Some(cluster) = self.cluster.clone() else { return };
        let principal = Principal::forwarded(owner.clone(), Claims::default(), false);
        let limit = self.sessions.settings().lease.saturating_add(ANNOUNCE_GRACE);
        let name = name.clone();
        let announcing = runtime::Handle::current().spawn(async move {
            let ended = (&name, ConnectionEvent::Ended);
            cluster.announce_connection(ended, &principal, limit).await;
        });
        let _ = tokio::time::timeout(ANNOUNCE_WAIT, announcing).await;
    }

    /// Notes that a connection, whose default session is held here, was used at another replica.
    pub(crate) async fn note_remote_use(
        &self,
        owner: &Owner,
        name: &Handle,
    ) -> Result<(), SessionOpenError> {
        let Some(connection) = self.connection(owner, name).await? else { return Ok(()) };
        // Entering and leaving a session counts as its use.
        match self.sessions.find_by_id(owner, connection.default_session()).await {
            Ok(_) | Err(SessionOpenError::HeldElsewhere { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the default session of a connection from the store. Returns whether it is another one than before.
    pub(crate) async fn refresh_default_session(
        &self,
        connection: &Connection,
    ) -> Result<bool, SessionOpenError> {
        if self.cluster.is_none() {
            return Ok(false);
        }
        let found = self.sessions.find_connection(&connection.owner, connection.name()).await?;
        let Some((session, _)) = found.filter(|it| it.0 != connection.default_session()) else {
            return Ok(false);
        };
        connection.set_default_session(session);
        if self.sessions.get_held(session).is_none() {
            // Another replica has the messages for the client now.
            connection.stop_listening();
        }
        Ok(true)
    }

    /// Reads the log level and the subscriptions of a connection from the store: its client may have set them through another
    /// replica.
    pub(crate) async fn refresh_preferences(&self, connection: &Connection) {
        if self.cluster.is_some() {
            let _changing = connection.preference_lock.lock().await;
            self.load_preferences(connection).await;
        }
    }

    /// Reads the preferences from the store for a caller that has locked them.
    pub(crate) async fn load_preferences(&self, connection: &Connection) {
        if self.cluster.is_none() || connection.only_stream().is_some() {
            return;
        }
        let changes = connection.preference_changes();
        let found = self.sessions.find_connection(&connection.owner, connection.name()).await;
        let stored =
            found.ok().flatten().and_then(|(_, body)| Connection::stored_preferences(&body));
        if let Some(stored) = stored {
            connection.set_preferences(stored, changes);
        }
    }

    /// Checks the access of every listening client against this configuration.
    pub(crate) fn recheck_listeners(&self) {
        self.connections.all().iter().for_each(|connection| self.recheck_listener(connection));
    }

    /// Checks the access of one listening client against this configuration.
    pub(crate) fn recheck_listener(&self, connection: &Connection) {
        connection.recheck(
            |principal| self.authenticator.recheck(principal, SystemClock.now()),
            |server, principal| self.leads_to(server, principal),
        );
    }

    /// Writes the current state of a connection to the store.
    pub(crate) async fn keep(&self, connection: &Connection) -> Result<(), SessionOpenError> {
        let session = self.session(&connection.owner, connection.default_session()).await?;
        self.sessions.put_connection(&session, connection.name(), &connection.to_bytes()).await
    }

    /// Writes the connections in memory that lead to these sessions to the store, which has forgotten them. A session
    /// whose connections could not be written is tried again when a client changes one of them.
    pub(crate) async fn keep_connections_of(&self, sessions: &[SessionId]) {
        for connection in self.connections.all() {
            if sessions.contains(&connection.default_session()) {
                let _ = self.keep(&connection).await;
            }
        }
    }

    /// Writes to the store which connections were used. The store prunes the others if many lead to one session. Uses
    /// that could not be written are written next time.
    pub(crate) async fn note_uses(&self, now: Instant) {
        let due = self.connections.due(now);
        if !due.is_empty() && self.sessions.touch_connections(&due).await.is_ok() {
            self.connections.mark_recorded(&due, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{Connection as InStore, OpenOptions};
    use stayput_upstream::ClientInfo;
    use stayput_wire::Version;

    use super::*;
    use crate::config::target::Target;
    use crate::identify::tests::{Fixture, ann};

    /// R170: the store learns which connections are used, so that it can prune the others. It is not written with each
    /// call, and not for connections without use.
    #[tokio::test]
    async fn store_learns_which_connections_are_used() {
        let Fixture { app, store, .. } = &Fixture::new().await;
        let session = app.sessions.open(&OpenOptions::new(ann())).await.unwrap().session;
        let (name, version) = (Handle::generate(), Version::LATEST_LEGACY);
        let (named, said) = ((ann(), name.clone()), (version, ClientInfo::default()));
        let made = Connection::new(named, session.id(), Target::All, said);
        app.keep(&made).await.unwrap();
        app.connections.insert(Arc::new(made));
        let uses = async || app.connection(&ann(), &name).await.unwrap().unwrap();
        let mut now = Instant::now();
        let touches_store = async |now| {
            store.asked();
            app.note_uses(now).await;
            store.asked() == ["touch_connections"]
        };
        uses().await;
        assert!(!touches_store(now).await, "it was kept just now");
        now += 2 * InStore::TOUCH_INTERVAL;
        assert!(touches_store(now).await);
        now += 2 * InStore::TOUCH_INTERVAL;
        assert!(!touches_store(now).await, "nobody used it since");
        let listener = uses().await;
        assert!(touches_store(now).await);
        now += 2 * InStore::TOUCH_INTERVAL;
        assert!(touches_store(now).await, "whoever listens uses it");
        drop(listener);
        // A connection that is not in memory may be dropped again before its next use, so its use is due at once.
        app.connections.remove(&name.hash(&ann()));
        uses().await;
        assert!(touches_store(now).await);
    }
}
