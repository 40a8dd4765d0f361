//! Connections of clients, found in memory or restored from the store.

use std::sync::Arc;

use stayput_core::{Clock as _, Handle, Owner, SessionOpenError, SystemClock};
use tokio::time::Instant;

use crate::{
    connections::connection::{Connection, ConnectionGuard},
    observe::events::Event,
    state::AppState,
};

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

    /// Checks the access of every listening client against this configuration.
    pub(crate) fn recheck_listeners(&self) {
        self.connections.all().iter().for_each(|connection| self.recheck_listener(connection));
    }

    /// Checks the access of one listening client against this configuration.
    pub(crate) fn recheck_listener(&self, connection: &Connection) {
        connection.recheck(
            |principal| self.owners.recheck(principal, SystemClock.now()),
            |server, principal| self.leads_to(server, principal),
        );
    }

    /// Writes the current state of a connection to the store.
    pub(crate) async fn keep(&self, connection: &Connection) -> Result<(), SessionOpenError> {
        let session = self.session(&connection.owner, connection.default_session()).await?;
        self.sessions.connect(&session, connection.name(), &connection.to_bytes()).await
    }

    /// Writes to the store which connections were used. The store prunes the others if many lead to one session. Uses
    /// that could not be written are written next time.
    pub(crate) async fn note_uses(&self, now: Instant) {
        let due = self.connections.due(now);
        if !due.is_empty() && self.sessions.touch_connections(&due).await.is_ok() {
            self.connections.noted(&due, now);
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

    /// R062: the store learns which connections are used, so that it can prune the others. It is not written with each
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
