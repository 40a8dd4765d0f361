//! All connections of clients.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use bytes::Bytes;
use rustc_hash::FxBuildHasher;
use stayput_core::{HandleHash, Owner, SessionId};
use tokio::time::Instant;

use crate::{
    auth::Claims, config::target::Target, connections::connection::Connection,
    reply::loss::LossNotices,
};

/// The most connections of a session that are remembered here while nothing is under way on them.
const OF_SESSION: usize = 64;

/// The connections that are known here. Others may be known to the store.
#[derive(Default)]
pub(crate) struct Connections(RwLock<HashSet<Known, FxBuildHasher>>);

/// A connection by what it is found by. That lies in the connection itself, which whoever finds it reads anyway: the
/// table of very many is then so small that it stays at hand.
struct Known(Arc<Connection>);

impl Borrow<HandleHash> for Known {
    fn borrow(&self) -> &HandleHash {
        self.0.name_hash()
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name_hash().hash(state);
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.0.name_hash() == other.0.name_hash()
    }
}

impl Eq for Known {}

impl Connections {
    pub(crate) fn get(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        let found = self.read().get(hash).map(|Known(known)| known.clone())?;
        found.note_use();
        Some(found)
    }

    fn read(&self) -> RwLockReadGuard<'_, HashSet<Known, FxBuildHasher>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashSet<Known, FxBuildHasher>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, connection: Arc<Connection>) {
        self.write().replace(Known(connection));
    }

    pub(crate) fn restore(&self, connection: Arc<Connection>) -> Arc<Connection> {
        let mut all = self.write();
        // Two requests may have restored it at once: both use the first.
        let first = all.get(connection.name_hash()).map(|Known(first)| first.clone());
        let known = first.unwrap_or_else(|| {
            all.insert(Known(connection.clone()));
            connection
        });
        known.note_use();
        known
    }

    /// The connections of whose use the store is to be told now.
    pub(crate) fn due(&self, now: Instant) -> Vec<HandleHash> {
        let all = self.read();
        all.iter().filter(|Known(it)| it.is_due(now)).map(|Known(it)| *it.name_hash()).collect()
    }

    /// The store was told of the use of these.
    pub(crate) fn noted(&self, names: &[HandleHash], now: Instant) {
        let all = self.read();
        names.iter().filter_map(|name| all.get(name)).for_each(|Known(it)| it.set_noted(now));
    }

    /// The connection with this name is another one now.
    pub(crate) fn replace(&self, connection: Arc<Connection>) {
        let before = self.write().replace(Known(connection));
        if let Some(Known(before)) = before {
            before.fall_silent();
            before.close();
        }
    }

    /// Whether a connection with this name is known here.
    pub(crate) fn has(&self, hash: &HandleHash) -> bool {
        self.read().contains(hash)
    }

    pub(crate) fn remove(&self, hash: &HandleHash) {
        let gone = self.write().take(hash);
        drop(gone);
    }

    /// Takes out the connections of a session that is over, unless something is under way on one: it may
    /// be for another session. The store still knows them: whoever comes back is told of the loss.
    pub(crate) fn forget_session(&self, session: SessionId) {
        self.forget(|it| it.default_session() == session && it.is_idle());
    }

    /// The server of a session, if a connection to it is known.
    pub(crate) fn server_of(&self, session: SessionId) -> Option<Arc<str>> {
        let all = self.read();
        let found = all.iter().find(|Known(it)| it.session == session);
        found.map(|Known(it)| it.target.label().into())
    }

    /// Takes out connections that nobody uses, of the sessions that `held` does not know.
    pub(crate) fn forget_idle(&self, held: impl Fn(SessionId) -> bool) {
        // Whoever has just found one holds it: here nobody can find one meanwhile.
        self.forget(|it| Arc::strong_count(it) == 1 && !held(it.default_session()) && it.is_idle());
    }

    /// Takes out connections of sessions that have very many, as those of hosts that connect for each call: of each
    /// so many stay. `sessions` is how many there are.
    pub(crate) fn forget_surplus(&self, sessions: usize) {
        if self.len() <= 2 * sessions + OF_SESSION {
            return;
        }
        let mut counts = HashMap::<SessionId, usize>::new();
        self.forget(|it| {
            let count = counts.entry(it.session).or_default();
            *count += 1;
            *count > OF_SESSION && Arc::strong_count(it) == 1 && it.is_as_kept()
        });
    }

    /// Takes out connections, and ends what is under way on them.
    fn forget(&self, mut which: impl FnMut(&Arc<Connection>) -> bool) {
        let gone: Vec<_> = self.write().extract_if(|Known(it)| which(it)).collect();
        for Known(connection) in gone {
            connection.close();
        }
    }

    /// Tells something to all who are connected to `target` and listen, and are one of these.
    pub(crate) fn tell(
        &self,
        target: &Target,
        text: &'static str,
        which: impl Fn(&Owner, &Claims) -> bool,
    ) {
        let ears: Vec<_> = {
            let all = self.read();
            let own = all.iter().filter(|Known(it)| it.target == *target);
            own.filter_map(|Known(it)| it.ear_of(&which)).collect()
        };
        for ear in ears {
            ear.push(Bytes::from_static(text.as_bytes()));
        }
    }

    /// Tells all who have to do with a session of its loss on a server, if they listen.
    pub(crate) fn tell_loss(&self, session: SessionId, server: &str, beside: &LossNotices) {
        let known = self.all();
        let concerned = known.iter().filter(|it| it.target.has(server));
        for connection in concerned.filter(|it| it.sessions().contains(&session)) {
            let Some(ear) = connection.ear() else { continue };
            let level = connection.wishes().level();
            beside.messages(level.as_deref()).for_each(|text| ear.push(text));
        }
    }

    /// All that are known here.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.read().iter().map(|Known(it)| it.clone()).collect()
    }

    /// Whether a call of any of them has not been answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.all().iter().any(|connection| connection.has_calls())
    }

    /// Nobody is told anything more outside of calls.
    pub(crate) fn hush(&self) {
        for ear in self.all().iter().filter_map(|connection| connection.ear()) {
            ear.end();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({})", self.len())
    }
}
