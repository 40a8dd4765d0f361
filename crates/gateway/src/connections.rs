//! All connections of clients.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use stayput_core::{
    BuildQuick, Connection as Kept, Handle, HandleHash, OpenError, Owner, Session, SessionId,
};
use tokio::time::Instant;

use crate::{
    connection::Connection, event::Event, house::House, losses::Beside, owners::Claims,
    subscriptions, target::Target,
};

/// The most connections of a session that are remembered here while nothing is under way on them.
const OF_SESSION: usize = 64;

/// The connections that are known here. Others may be known to the store.
#[derive(Default)]
pub(crate) struct Connections(RwLock<HashMap<HandleHash, Known, BuildQuick>>);

/// A connection, and what the store is still to be told of it.
struct Known {
    connection: Arc<Connection>,
    /// Whether it was used since the store was told so.
    used: AtomicBool,
    /// When that was, if it was since the connection is known here.
    noted: Option<Instant>,
}

impl Known {
    /// One that was kept just now.
    fn kept(connection: Arc<Connection>) -> Self {
        Self { connection, used: AtomicBool::new(false), noted: Some(Instant::now()) }
    }

    /// One that the store remembered. It may have been used long ago, and be forgotten here soon.
    fn restored(connection: Arc<Connection>) -> Self {
        Self { connection, used: AtomicBool::new(false), noted: None }
    }

    fn get(&self) -> Arc<Connection> {
        // Most find it said: who only looks does not get in the way of others.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.connection.clone()
    }

    /// Whether the store is to be told that it is used. Whoever listens uses it, too.
    fn is_due(&self, now: Instant) -> bool {
        let used = self.used.load(Ordering::Relaxed) || Arc::strong_count(&self.connection) > 1;
        used && self.noted.is_none_or(|noted| now.duration_since(noted) >= Kept::NOTED)
    }
}

impl Connections {
    fn get(&self, hash: &HandleHash) -> Option<Arc<Connection>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(hash).map(Known::get)
    }

    pub(crate) fn insert(&self, hash: HandleHash, connection: Arc<Connection>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(hash, Known::kept(connection));
    }

    fn restore(&self, hash: HandleHash, connection: Arc<Connection>) -> Arc<Connection> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Two requests may have restored it at once: both use the first.
        all.entry(hash).or_insert_with(|| Known::restored(connection)).get()
    }

    /// The connections of whose use the store is to be told now.
    fn due(&self, now: Instant) -> Vec<HandleHash> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(_, known)| known.is_due(now)).map(|(hash, _)| *hash).collect()
    }

    /// The store was told of the use of these.
    fn noted(&self, names: &[HandleHash], now: Instant) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if let Some(known) = all.get_mut(name) {
                (known.used, known.noted) = (AtomicBool::new(false), Some(now));
            }
        }
    }

    /// The connection with this name is another one now.
    pub(crate) fn replace(&self, hash: HandleHash, connection: Arc<Connection>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.insert(hash, Known::kept(connection));
        drop(all);
        if let Some(Known { connection: before, .. }) = before {
            before.fall_silent();
            before.close();
        }
    }

    /// Whether a connection with this name is known here.
    pub(crate) fn has(&self, hash: &HandleHash) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(hash)
    }

    fn remove(&self, hash: &HandleHash) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner).remove(hash));
    }

    /// Takes out the connections of a session that is over, unless something is under way on one: it may
    /// be for another session. The store still knows them: whoever comes back is told of the loss.
    pub(crate) fn forget_session(&self, session: SessionId) {
        self.forget(|it| it.default_session() == session && it.is_idle());
    }

    /// The server of a session, if a connection to it is known.
    pub(crate) fn server_of(&self, session: SessionId) -> Option<Arc<str>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.values().find(|known| known.connection.session == session);
        found.map(|known| known.connection.target.label().into())
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
            all.extract_if(|_, known| which(&known.connection)).collect()
        };
        for (_, known) in gone {
            known.connection.close();
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
            let all = all.values().map(|known| &known.connection);
            let own = all.filter(|connection| connection.target == *target);
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

    /// All that are known here.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|known| known.connection.clone()).collect()
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
        let known = self.connections.restore(hash, restored.clone());
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

    /// Tells the store which connections are used: of many that lead to one session it forgets those that
    /// nobody used for long. What it was not told now it is told next time.
    pub(crate) async fn note_uses(&self, now: Instant) {
        let due = self.connections.due(now);
        if !due.is_empty() && self.sessions.used(&due).await.is_ok() {
            self.connections.noted(&due, now);
        }
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
        let wishes = connection.wishes();
        connection.close();
        for session in ended {
            let _ = self.links.end(session).await;
        }
        // At those links that others go on with.
        subscriptions::give_up(self, &connection, &wishes);
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

#[cfg(test)]
mod tests {
    use stayput_core::Wish;
    use stayput_upstream::Hello;
    use stayput_wire::Version;

    use super::*;
    use crate::identify::tests::{World, ann};

    /// R062: the store hears which connections are used, so that it forgets others; not with each call, and not
    /// of those that nobody uses.
    #[tokio::test]
    async fn the_store_is_told_which_connections_are_used() {
        let World { house, store, .. } = &World::new().await;
        let session = house.sessions.open(&Wish::new(ann())).await.unwrap().session;
        let (name, version) = (Handle::generate(), Version::LATEST_LEGACY);
        let made = Connection::new(ann(), session.id(), Target::All, version, Hello::default())
            .called(&name);
        house.keep(&made).await.unwrap();
        house.connections.insert(name.hash(&ann()), Arc::new(made));
        let uses = async || house.connection(&ann(), &name).await.unwrap().unwrap();
        let mut now = Instant::now();
        let told = async |now| {
            store.asked();
            house.note_uses(now).await;
            store.asked() == ["touch_connections"]
        };
        uses().await;
        assert!(!told(now).await, "it was kept just now");
        now += 2 * Kept::NOTED;
        assert!(told(now).await);
        now += 2 * Kept::NOTED;
        assert!(!told(now).await, "nobody used it since");
        let listens = uses().await;
        assert!(told(now).await);
        now += 2 * Kept::NOTED;
        assert!(told(now).await, "whoever listens uses it");
        drop(listens);
        // What is not remembered here may be forgotten again before it is used the next time.
        house.connections.remove(&name.hash(&ann()));
        uses().await;
        assert!(told(now).await);
    }
}
