//! Registry of the client connections in memory.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use rustc_hash::FxBuildHasher;
use stayput_core::{HandleHash, Owner, SessionId};
use stayput_sync::RwLock;
use tokio::time::Instant;

use crate::{
    auth::Claims,
    config::target::Target,
    connections::connection::{Connection, ConnectionGuard},
    reply::loss::LossNotices,
};

/// Largest number of connections per session that stay in memory while they are idle.
const OF_SESSION: usize = 64;

/// Connections in memory. The store may hold more.
#[derive(Default)]
pub(crate) struct Connections(RwLock<HashSet<ConnectionEntry, FxBuildHasher>>);

/// Set entry that is found by the hash of the connection's name. The hash is stored only in the connection, which a
/// lookup reads anyway. This keeps the table small enough for the cache, even with very many connections.
struct ConnectionEntry(Arc<Connection>);

impl Borrow<HandleHash> for ConnectionEntry {
    fn borrow(&self) -> &HandleHash {
        self.0.name_hash()
    }
}

impl Hash for ConnectionEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name_hash().hash(state);
    }
}

impl PartialEq for ConnectionEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0.name_hash() == other.0.name_hash()
    }
}

impl Eq for ConnectionEntry {}

impl Connections {
    pub(crate) fn get(&self, hash: &HandleHash) -> Option<ConnectionGuard> {
        let found =
            self.0.read().get(hash).map(|ConnectionEntry(known)| ConnectionGuard::new(known))?;
        found.note_use();
        Some(found)
    }

    pub(crate) fn insert(&self, connection: Arc<Connection>) {
        self.0.write().replace(ConnectionEntry(connection));
    }

    pub(crate) fn restore(&self, connection: Arc<Connection>) -> ConnectionGuard {
        let mut all = self.0.write();
        // Two requests may restore the connection at the same time; both use the first one.
        let first = all
            .get(connection.name_hash())
            .map(|ConnectionEntry(first)| ConnectionGuard::new(first));
        let known = first.unwrap_or_else(|| {
            let guard = ConnectionGuard::new(&connection);
            all.insert(ConnectionEntry(connection));
            guard
        });
        known.note_use();
        known
    }

    /// Returns the connections whose use the store should record now.
    pub(crate) fn due(&self, now: Instant) -> Vec<HandleHash> {
        let all = self.0.read();
        all.iter()
            .filter(|ConnectionEntry(it)| it.is_due(now))
            .map(|ConnectionEntry(it)| *it.name_hash())
            .collect()
    }

    /// Marks the use of these connections as recorded in the store.
    pub(crate) fn mark_recorded(&self, names: &[HandleHash], now: Instant) {
        let all = self.0.read();
        names
            .iter()
            .filter_map(|name| all.get(name))
            .for_each(|ConnectionEntry(it)| it.set_noted(now));
    }

    /// Replaces the connection with this name, and closes the previous one.
    pub(crate) fn replace(&self, connection: Arc<Connection>) -> ConnectionGuard {
        let (guard, before) = {
            let mut all = self.0.write();
            (ConnectionGuard::new(&connection), all.replace(ConnectionEntry(connection)))
        };
        if let Some(ConnectionEntry(before)) = before {
            before.detach_stream();
            before.close();
        }
        guard
    }

    /// Whether a connection with this name is in memory.
    pub(crate) fn has(&self, hash: &HandleHash) -> bool {
        self.0.read().contains(hash)
    }

    pub(crate) fn remove(&self, hash: &HandleHash) {
        let gone = self.0.write().take(hash);
        drop(gone);
    }

    /// Removes the connections of an ended session, except those with a call in flight or an open stream, which may
    /// be for another session. The store still holds the removed ones: a client that comes back gets the loss error.
    pub(crate) fn remove_session(&self, session: SessionId) {
        self.remove_where(|it| it.default_session() == session && it.is_idle());
    }

    /// Returns the connections that use a session, by default or by name, at most `limit`.
    pub(crate) fn of_session(&self, session: SessionId, limit: usize) -> Vec<Arc<Connection>> {
        let all = self.0.read();
        let uses = |it: &&ConnectionEntry| it.0.sessions().contains(&session);
        all.iter().filter(uses).take(limit).map(|ConnectionEntry(it)| it.clone()).collect()
    }

    /// Returns the connections that began with this session and still use it by default.
    pub(crate) fn begun_with(&self, session: SessionId) -> Vec<Arc<Connection>> {
        let mut all = self.all();
        all.retain(|it| it.session == session && it.default_session() == session);
        all
    }

    /// Returns the server of a session, if a connection to it is in memory.
    pub(crate) fn server_of(&self, session: SessionId) -> Option<Arc<str>> {
        let all = self.0.read();
        let found = all.iter().find(|ConnectionEntry(it)| it.session == session);
        found.map(|ConnectionEntry(it)| it.target.label().into())
    }

    /// Removes unused connections that use no session that `held` accepts, neither by default nor by name.
    pub(crate) fn remove_idle(&self, held: impl Fn(SessionId) -> bool) {
        // A request that has found a connection holds a guard of it. The write lock is held here, so no request can
        // find one meanwhile.
        self.remove_where(|it| {
            !it.is_in_use() && it.is_idle() && !it.sessions().into_iter().any(&held)
        });
    }

    /// Removes idle connections of sessions that have very many, such as those of hosts that connect for each call.
    /// Each session keeps up to `OF_SESSION`. `sessions` is the number of sessions.
    pub(crate) fn remove_surplus(&self, sessions: usize) {
        if self.len() <= 2 * sessions + OF_SESSION {
            return;
        }
        let mut counts = HashMap::<SessionId, usize>::new();
        self.remove_where(|it| {
            let count = counts.entry(it.session).or_default();
            *count += 1;
            *count > OF_SESSION && !it.is_in_use() && it.matches_stored()
        });
    }

    /// Removes connections and closes them.
    fn remove_where(&self, mut which: impl FnMut(&Arc<Connection>) -> bool) {
        let gone: Vec<_> = self.0.write().extract_if(|ConnectionEntry(it)| which(it)).collect();
        for ConnectionEntry(connection) in gone {
            connection.close();
        }
    }

    /// Sends a message to all listening clients of `target` that `which` accepts.
    pub(crate) fn tell(
        &self,
        target: &Target,
        text: &'static str,
        which: impl Fn(&Owner, &Claims) -> bool,
    ) {
        let streams: Vec<_> = {
            let all = self.0.read();
            let own = all.iter().filter(|ConnectionEntry(it)| it.target == *target);
            own.filter_map(|ConnectionEntry(it)| it.listen_stream_of(&which)).collect()
        };
        for stream in streams {
            stream.push(Bytes::from_static(text.as_bytes()));
        }
    }

    /// Sends a loss notice to all listening clients that use a session.
    pub(crate) fn tell_loss(&self, session: SessionId, server: &str, beside: &LossNotices) {
        let known = self.all();
        let concerned = known.iter().filter(|it| it.target.has(server));
        for connection in concerned.filter(|it| it.sessions().contains(&session)) {
            let Some(listen_stream) = connection.listen_stream() else { continue };
            let level = connection.preferences().level();
            beside.messages(level.as_deref()).for_each(|text| listen_stream.push(text));
        }
    }

    /// Returns all connections in memory.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.0.read().iter().map(|ConnectionEntry(it)| it.clone()).collect()
    }

    /// Whether a call of any connection is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.all().iter().any(|connection| connection.has_calls())
    }

    /// Ends the streams of all listening clients, so that messages outside of calls are not sent any more.
    pub(crate) fn stop_listening(&self) {
        for listen_stream in self.all().iter().filter_map(|connection| connection.listen_stream()) {
            listen_stream.end();
        }
    }

    /// Ends the streams of the listening clients whose default session `which` accepts. Each opens its stream again, at the
    /// replica that holds the session then.
    pub(crate) fn stop_listening_where(&self, which: impl Fn(SessionId) -> bool) {
        for connection in self.all() {
            if which(connection.default_session()) {
                connection.stop_listening();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{Handle, Timestamp};
    use stayput_upstream::ClientInfo;
    use stayput_wire::Version;

    use super::*;

    /// A client may listen at another replica, which then asks for the messages of this session.
    #[test]
    fn connection_stays_as_long_as_a_session_that_it_names_is_held() {
        let session = || SessionId::generate(Timestamp::from_millis(0));
        let (default, named) = (session(), session());
        let client = (Version::LATEST_LEGACY, ClientInfo::default());
        let owned = (Owner::local(), Handle::generate());
        let connection = Arc::new(Connection::new(owned, default, Target::All, client));
        connection.note_named_session(named);
        let connections = Connections::default();
        connections.insert(connection.clone());
        connections.remove_idle(|session| session == named);
        assert!(connections.has(connection.name_hash()));
        connections.remove_idle(|_| false);
        assert!(!connections.has(connection.name_hash()));
    }
}
