//! All connections of clients.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use stayput_core::{BuildQuick, Handle, HandleHash, OpenError, Owner, Session, SessionId};

use crate::{
    connection::Connection, event::Event, house::House, losses::Beside, owners::Claims,
    target::Target,
};

/// The most connections of a session that are remembered here while nothing is under way on them.
const OF_SESSION: usize = 64;

/// The connections that are known here. Others may be known to the store.
#[derive(Default)]
pub(crate) struct Connections(RwLock<HashMap<HandleHash, Arc<Connection>, BuildQuick>>);

impl Connections {
    fn get(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    pub(crate) fn insert(&self, hash: HandleHash, connection: Arc<Connection>) -> Arc<Connection> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Two requests may have restored it at once: both use the first.
        all.entry(hash).or_insert(connection).clone()
    }

    /// The connection with this name is another one now.
    pub(crate) fn replace(&self, hash: HandleHash, connection: Arc<Connection>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.insert(hash, connection);
        drop(all);
        if let Some(before) = before {
            before.fall_silent();
            before.close();
        }
    }

    /// Whether a connection with this name is known here.
    pub(crate) fn has(&self, hash: &HandleHash) -> bool {
        self.get(hash).is_some()
    }

    fn remove(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(hash)
    }

    /// Takes out the connections of a session that is over, unless something is under way on one: it may
    /// be for another session. The store still knows them: whoever comes back is told of the loss.
    pub(crate) fn forget_session(&self, session: SessionId) {
        self.forget(|it| it.default_session() == session && it.is_idle());
    }

    /// The server of a session, if a connection to it is known.
    pub(crate) fn server_of(&self, session: SessionId) -> Option<Arc<str>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.values().find(|connection| connection.session == session);
        found.map(|connection| connection.target.label().into())
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
        let gone: Vec<_> = {
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.extract_if(|_, connection| which(connection)).collect()
        };
        for (_, connection) in gone {
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
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let own = all.values().filter(|connection| connection.target == *target);
            own.filter_map(|connection| connection.ear_of(&which)).collect()
        };
        for ear in ears {
            ear.push(Bytes::from_static(text.as_bytes()));
        }
    }

    /// Tells all who have to do with a session of its loss on a server, if they listen.
    pub(crate) fn tell_loss(&self, session: SessionId, server: &str, beside: &Beside) {
        let known = self.all();
        let concerned = known.iter().filter(|it| it.target.has(server));
        for connection in concerned.filter(|it| it.sessions().contains(&session)) {
            let Some(ear) = connection.ear() else { continue };
            let level = connection.wishes().level();
            beside.messages(level.as_deref()).for_each(|text| ear.push(text));
        }
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
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
        let Some(restored) = Connection::from_bytes(owner.clone(), session, &body) else {
            return Ok(None);
        };
        let restored = Arc::new(restored.called(name));
        let known = self.connections.insert(hash, restored.clone());
        if Arc::ptr_eq(&known, &restored) {
            self.note(session, Event::Resumed { server: known.target.label() });
        }
        Ok(Some(known))
    }

    /// Keeps what a connection has become.
    pub(crate) async fn keep(&self, connection: &Connection) -> Result<(), OpenError> {
        let Some(name) = connection.name() else { return Ok(()) };
        let session = self.session(&connection.owner, connection.default_session()).await?;
        self.sessions.connect(&session, name, &connection.to_bytes()).await
    }

    /// Ends a connection, and the session that was made with it, if nothing else ever named that.
    pub(crate) async fn disconnect(&self, owner: &Owner, name: &Handle) -> Result<bool, OpenError> {
        let Some(connection) = self.connection(owner, name).await? else { return Ok(false) };
        // The sessions first: whatever happens after that, nothing of them lives on.
        let mut own = vec![connection.session, connection.default_session()];
        own.dedup();
        let mut ended = Vec::new();
        for session in own {
            if self.end_unless_known(&connection, session).await? {
                ended.push(session);
            }
        }
        self.sessions.disconnect(owner, name).await?;
        self.connections.remove(&name.hash(owner));
        connection.close();
        for session in ended {
            let _ = self.links.end(session).await;
        }
        Ok(true)
    }

    /// Ends a session of a connection; says whether it is over.
    async fn end_unless_known(
        &self,
        connection: &Connection,
        id: SessionId,
    ) -> Result<bool, OpenError> {
        match self.sessions.by_id(&connection.owner, id).await {
            Ok(session) if is_known_elsewhere(&session) => return Ok(false),
            Ok(session) => {
                let own = session.session().clone();
                drop(session);
                self.end(&own, Some(connection.target.label())).await?;
            }
            Err(OpenError::Unknown | OpenError::Over(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Whether somebody beside the connection it was made with may count on a session.
fn is_known_elsewhere(session: &Session) -> bool {
    let record = session.record();
    record.key.is_some() || record.named
}
