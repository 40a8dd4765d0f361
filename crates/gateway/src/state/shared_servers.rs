//! Processes that several sessions use, in a cluster: one replica holds each.
//!
//! The replica has claimed the process in the store, by a session with a key of its own. The record of that session has
//! the generation of the process, and its state has the generations that the users have seen: so the next holder reports
//! a loss to each of them. A call needs no session of its client at the holder, because another replica may hold that.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use stayput_core::{
    ActiveSession, Agent, Digest, Expiry, Generation, Holder, Key, Name, OpenOptions, Owner,
    SessionId, SessionOpenError, Timestamp,
};
use stayput_sync::Mutex;
use stayput_upstream::{Isolation, LinkOwner, Links, Scope, Server};
use tokio::time::Instant;

use crate::{
    auth::{Claims, Principal},
    cluster::{ConnectionEvent, registry::internal_owner},
    connections::connection::Connection,
    reply::SessionName,
    state::{AppState, shared_generations::SharedUser},
};

/// Largest number of users in one value of the state. There are 256 values, so about 130,000 users of a server are known.
const MAX_USERS: usize = 512;

/// Replica that serves a request for a server.
pub(crate) enum ServerHolder {
    /// Any: the process belongs to one session, or there is no process or no cluster.
    Any,
    /// This one, by this claim.
    Here(Arc<ActiveSession>),
    /// Another one, which was found by this name.
    Elsewhere(Holder, SessionName),
}

/// Time after which the profile of a server is read again from the replica that holds its process.
const PROFILE_LIFETIME: Duration = Duration::from_secs(5);

/// Longest interval at which the holder of a session is told that its client uses a process here, and how often it is told
/// at least in the time after which the session expires.
const USE_INTERVAL: Duration = Duration::from_secs(10);
const USES_PER_IDLE_TIME: u32 = 4;

/// Claims of this replica, and what it knows of the processes of others.
#[derive(Default)]
pub(crate) struct ServerClaims {
    /// Server and users of each process, by the session of the claim.
    claimed: Mutex<HashMap<SessionId, (Arc<str>, Scope)>>,
    /// Times at which the holders of sessions were told that their clients use processes here.
    uses: Mutex<HashMap<SessionId, Instant>>,
    /// Times at which profiles were read from other replicas, by server and owner.
    profiles: Mutex<HashMap<(String, Owner), Instant>>,
}

/// Use of a claimed process by one client.
pub(crate) struct ServerUse {
    pub(crate) claim: Arc<ActiveSession>,
    pub(crate) user: SharedUser,
    /// Default session of the connection, which does not become idle meanwhile. `None` if another replica holds it.
    _session: Option<ActiveSession>,
}

/// Returns the owner and the key of the claim for a process. Each claim has an owner of its own, so that no limit on the
/// sessions of one owner counts them.
fn claim_name(server: &Server, scope: &Scope) -> Option<(Owner, Key)> {
    let parts = [server.name().as_bytes(), scope.owner().map_or("", Owner::as_str).as_bytes()];
    let subject = Digest::compute("stayput.cluster.process", &parts).to_hex();
    Some((internal_owner(&subject)?, Key::new("server", server.name()).ok()?))
}

impl SharedUser {
    /// Returns the key of the value that has the generation of this user, and its name in it.
    fn place(&self) -> (String, String) {
        let digest = match self {
            Self::Owner(owner) => {
                Digest::compute("stayput.cluster.user", &[owner.as_str().as_bytes()])
            }
            Self::Connection(hash) => Digest::from_bytes(*hash.as_bytes()),
        };
        let mut digits = digest.to_hex();
        let name = digits.split_off(2);
        (format!("users:{digits}"), name.chars().take(24).collect())
    }
}

impl AppState {
    /// Returns the users of the process of a server, if one replica holds it for all of them. A server without a
    /// configured isolation has a process for each session, or keeps nothing. A server that a client brings has its own.
    fn claimed_scope(&self, server: &Server, owner: &Owner) -> Option<Scope> {
        let cluster = self.cluster.as_ref()?;
        let is_common = server.is_process() && server.stderr_sink().is_none();
        if !is_common || cluster.own().address.is_empty() {
            return None;
        }
        match server.options().isolation? {
            Isolation::PerSession => None,
            Isolation::PerOwner => Some(Scope::Owner(owner.clone())),
            Isolation::Shared => Some(Scope::Shared),
        }
    }

    /// Whether one replica holds the process of a server for all its users.
    pub(crate) fn is_claimable(&self, server: &Server, owner: &Owner) -> bool {
        self.claimed_scope(server, owner).is_some()
    }

    /// Returns the replica that serves the requests of an owner for a server. A process without a holder is claimed here.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub(crate) async fn server_holder(
        &self,
        server: &Server,
        owner: &Owner,
    ) -> Result<ServerHolder, SessionOpenError> {
        let Some(scope) = self.claimed_scope(server, owner) else { return Ok(ServerHolder::Any) };
        let (internal, key) = claim_name(server, &scope).ok_or(SessionOpenError::Unknown)?;
        let name = Name::Key(key.clone());
        if let Some(claim) = self.sessions.find_held(&internal, &name) {
            return Ok(ServerHolder::Here(claim.into()));
        }
        let cached = SessionName::new(&internal, &name);
        if let Some(holder) = self.cached_holder(&cached) {
            return Ok(ServerHolder::Elsewhere(holder, cached));
        }
        let options = OpenOptions::with_key(internal, Agent::none(), key).expiry(Expiry::NEVER);
        match self.wait_for_holder(|| self.sessions.open(&options)).await {
            Ok(opened) => {
                self.server_claims.insert(opened.session.id(), (server.shared_name(), scope));
                Ok(ServerHolder::Here(opened.session.into()))
            }
            Err(SessionOpenError::HeldElsewhere { holder }) => {
                self.cache_holder(cached, &holder);
                Ok(ServerHolder::Elsewhere(holder, cached))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the profile of a server over from the replica that holds its process, so that no process is started here for
    /// it. If that fails, the server is asked.
    pub(crate) async fn adopt_profile(&self, server: &Server, owner: &Owner) {
        if self.is_claimable(server, owner) {
            // Boxed because it is rare: without the box, the future of every call would be as large as this one.
            Box::pin(self.adopt_profile_from_holder(server, owner)).await;
        }
    }

    async fn adopt_profile_from_holder(&self, server: &Server, owner: &Owner) {
        let Some(cluster) = &self.cluster else { return };
        let Ok(ServerHolder::Elsewhere(holder, _)) = self.server_holder(server, owner).await else {
            return;
        };
        let place = (server.name().to_owned(), owner.clone());
        if !self.server_claims.begin_profile(&place) {
            return;
        }
        let session = SessionId::generate(Timestamp::from_millis(0));
        let link_owner = LinkOwner::new(owner.clone(), session);
        let known = self.links.known_profile(server, &link_owner).await;
        match cluster.profile(&holder, server.name(), owner).await {
            Some(profile) => {
                let changed = known.is_none_or(|known| known.to_text() != profile.to_text());
                if changed {
                    self.links.set_profile(server, &link_owner, profile).await;
                }
            }
            // The next request tries again.
            None => self.server_claims.forget_profile(&place),
        }
    }

    /// Begins the use of a claimed process by a client.
    pub(crate) async fn begin_server_use(
        &self,
        claim: &Arc<ActiveSession>,
        owner: &Owner,
        connection: Option<&Connection>,
    ) -> ServerUse {
        let user = match connection {
            Some(connection) => SharedUser::Connection(connection.name().hash(owner)),
            None => SharedUser::Owner(owner.clone()),
        };
        let session = match connection {
            Some(connection) => self.default_session_here(connection).await,
            None => None,
        };
        ServerUse { claim: claim.clone(), user, _session: session }
    }

    /// Returns the default session of a connection, unless another replica holds it.
    async fn default_session_here(&self, connection: &Connection) -> Option<ActiveSession> {
        if let Some(session) = connection.reenter_default_session(&self.sessions) {
            return Some(session);
        }
        // Boxed because it is rare: without the box, the future of every call would be as large as this one.
        if let Some(home) = Box::pin(self.home_elsewhere(connection)).await {
            self.announce_use(connection, home.holder);
            return None;
        }
        let found = self.sessions.find_by_id(&connection.owner, connection.default_session()).await;
        let session = found.ok()?;
        connection.cache_default_session(session.session());
        Some(session)
    }

    /// Tells the holder of the default session of a connection, from time to time, that it is in use.
    fn announce_use(&self, connection: &Connection, home: Holder) {
        let Some(cluster) = self.cluster.clone() else { return };
        let idle = self.identify.expiry.idle;
        let interval =
            idle.map_or(USE_INTERVAL, |idle| USE_INTERVAL.min(idle / USES_PER_IDLE_TIME));
        if !self.server_claims.begin_use(connection.default_session(), interval) {
            return;
        }
        let (name, owner) = (connection.name().clone(), connection.owner.clone());
        tokio::runtime::Handle::current().spawn(async move {
            let principal = Principal::forwarded(owner, Claims::default(), false);
            let used = (&name, ConnectionEvent::Used);
            let told = cluster.tell_of_connection(&home, used, &principal);
            // The next call tells it again.
            let _ = tokio::time::timeout(USE_INTERVAL, told).await;
        });
    }

    /// Reads the generation of a claimed process that a user has seen last, from the store. One that has seen none is
    /// stored with this one, before its call is sent.
    ///
    /// # Errors
    /// An error of the store.
    pub(crate) async fn note_server_use(
        &self,
        used: &ServerUse,
        server: &str,
        generation: Generation,
    ) -> Result<(), String> {
        if self.generations.has(&used.user, server) {
            return Ok(());
        }
        let state = self.sessions.state(&used.claim).map_err(|error| error.to_string())?;
        let (value, name) = used.user.place();
        let known = state.get::<BTreeMap<String, Generation>>(&value).await;
        let known = known.map_err(|error| error.to_string())?;
        let seen = match known.and_then(|all| all.get(&name).copied()) {
            Some(seen) => seen,
            None => {
                self.write_generation(used, generation).await?;
                generation
            }
        };
        self.generations.acknowledge(&used.user, server, (0, seen));
        Ok(())
    }

    /// Stores the generation of a claimed process up to which a user knows of its losses.
    ///
    /// # Errors
    /// An error of the store.
    pub(crate) async fn write_generation(
        &self,
        used: &ServerUse,
        generation: Generation,
    ) -> Result<(), String> {
        let state = self.sessions.state(&used.claim).map_err(|error| error.to_string())?;
        let (value, name) = used.user.place();
        let add = |all: &mut BTreeMap<String, Generation>| {
            if all.len() >= MAX_USERS && !all.contains_key(&name) {
                all.pop_first();
            }
            let seen = all.entry(name.clone()).or_insert(generation);
            *seen = generation.max(*seen);
        };
        state.update(&value, add).await.map_err(|error| error.to_string())
    }
}

impl ServerClaims {
    fn insert(&self, claim: SessionId, of: (Arc<str>, Scope)) {
        self.claimed.lock().insert(claim, of);
    }

    /// Whether a session is the claim for a process.
    pub(crate) fn has(&self, claim: SessionId) -> bool {
        self.claimed.lock().contains_key(&claim)
    }

    /// Whether this replica holds no process for several sessions.
    pub(crate) fn is_empty(&self) -> bool {
        self.claimed.lock().is_empty()
    }

    /// Closes the process of a claim that this replica has lost. Another one may have started its own.
    pub(crate) fn release(&self, claim: SessionId, links: &Links) {
        let claimed = self.claimed.lock().remove(&claim);
        if let Some((server, scope)) = claimed {
            drop(links.release_scope(&server, &scope));
        }
    }

    /// Whether the holder of a session is due to be told of its use. It counts as told from now on.
    fn begin_use(&self, session: SessionId, interval: Duration) -> bool {
        let mut all = self.uses.lock();
        if all.get(&session).is_some_and(|at| at.elapsed() < interval) {
            return false;
        }
        all.retain(|_, at| at.elapsed() < interval);
        all.insert(session, Instant::now());
        true
    }

    /// Whether the profile of a server is due to be read. It counts as read from now on.
    fn begin_profile(&self, place: &(String, Owner)) -> bool {
        let mut all = self.profiles.lock();
        all.retain(|_, at| at.elapsed() < PROFILE_LIFETIME);
        let is_due = !all.contains_key(place);
        all.insert(place.clone(), Instant::now());
        is_due
    }

    fn forget_profile(&self, place: &(String, Owner)) {
        self.profiles.lock().remove(place);
    }
}
