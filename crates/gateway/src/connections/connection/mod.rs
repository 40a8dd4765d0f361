//! Connection of one client: its `initialize` data, and its calls, streams and subscriptions.

mod in_flight;
mod preferences;
mod server_requests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use stayput_core::{
    ActiveSession, Connection as InStore, Generation, Handle, HandleHash, Owner, Session,
    SessionId, Sessions,
};
use stayput_upstream::{ClientCapabilities, ClientInfo, LinkKey, LinkOwner, ServerRequest};
use stayput_wire::Version;
use tokio::{task::AbortHandle, time::Instant};

pub(crate) use crate::connections::connection::{
    in_flight::InFlight, preferences::ClientPreferences,
};
use crate::{
    auth::{Claims, Principal},
    catalog::{
        client_lists::ClientLists,
        index::Index,
        list::{List, Page},
    },
    config::target::Target,
    connections::{
        connection::in_flight::InFlightCall, event_stream::EventStream,
        stream_cache::ConnectionStreams,
    },
};

/// Client that has completed `initialize`. `Mcp-Session-Id` names the connection, not the session.
#[repr(C)] // Fields that every call reads are adjacent, to touch few cache lines.
pub(crate) struct Connection {
    /// Hash of the name, by which the connection is found.
    hash: HandleHash,
    /// Number of requests that have found the connection and still use it.
    users: AtomicU32,
    /// Whether the connection was used since the store last recorded its use.
    used: AtomicBool,
    /// Whether the client uses standard input and output, which is not a conversation.
    pub(crate) stdio: bool,
    /// Capabilities that the client declared in `initialize`; every call carries them.
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) target: Target,
    activity: Mutex<Activity>,
    /// Other sessions that the connection uses.
    used_sessions: Mutex<UsedSessions>,
    pub(crate) owner: Owner,
    /// Session that the connection was created with, or that it led to before a restart.
    pub(crate) session: SessionId,
    pub(crate) version: Version,
    pub(crate) client_info: ClientInfo,
    pub(crate) streams: ConnectionStreams,
    /// Single stream of a client that has only one, such as one of 2024-11-05: every message to it goes there.
    line: OnceLock<Arc<EventStream>>,
    next_ask: AtomicU64,
    /// Secret that the client sends.
    name: Handle,
    /// Time at which the store last recorded the use; `None` if it has not since the connection was loaded.
    noted: Mutex<Option<Instant>>,
}

/// Largest number of sessions that are remembered per connection.
const SESSIONS: usize = 256;

/// Sessions that the connection uses, besides the one that it was created with.
#[derive(Default)]
#[repr(C)] // Same reason as for `Connection`.
struct UsedSessions {
    /// Default session of the connection, cached after its first use.
    own: Weak<Session>,
    /// Id of the default session, if it is not the original one any more.
    led: Option<SessionId>,
    /// Sessions that calls have named, the latest last.
    used: VecDeque<SessionId>,
}

#[derive(Default)]
#[repr(C)] // Same reason as for `Connection`.
struct Activity {
    /// Calls in flight. A list, not a map: most clients have one call at a time, and few have many.
    calls: Vec<InFlightCall>,
    /// Counter that numbers the calls, because a client may reuse an id.
    flights: u64,
    /// Pool entry and generation of the link that the client used last. Most clients use one link.
    met: Option<(u64, Generation)>,
    /// Stream that the client listens on.
    listen_stream: Option<ListenStream>,
    /// Boxed, because few clients need any of it.
    rare: Option<Box<RareState>>,
}

/// Stream that a client listens on, with the principal that opened it.
struct ListenStream {
    stream: Arc<EventStream>,
    principal: Principal,
}

/// State that few clients need.
#[derive(Default)]
struct RareState {
    /// Pending requests of servers, each with its link, by the id that the client was given.
    asked: BTreeMap<u64, (LinkKey, ServerRequest)>,
    /// Log level and subscriptions that the client asked for.
    preferences: ClientPreferences,
    /// Resources that the client subscribed to, with the pool entry of the link.
    subscribed: BTreeSet<(u64, String)>,
    /// Pool entries of the other links that the client has used, the latest last.
    met: Vec<(u64, Generation)>,
    /// Tasks that deliver messages which servers send outside of calls, one per link.
    listen_tasks: Vec<(LinkKey, AbortHandle)>,
    /// Lists that servers sent to this client after a change.
    seen: ClientLists,
}

/// Stored form of a connection.
#[derive(Serialize, Deserialize)]
struct StoredConnection {
    server: String,
    #[serde(default)]
    stdio: bool,
    version: String,
    info: String,
    capabilities: String,
    #[serde(default)]
    #[serde(rename = "wishes")]
    preferences: ClientPreferences,
}

impl StoredConnection {
    fn new(target: &Target, (version, client_info): (&Version, &ClientInfo)) -> Self {
        Self {
            server: target.as_str().to_owned(),
            stdio: false,
            version: version.as_str().to_owned(),
            info: client_info.info().to_owned(),
            capabilities: client_info.capabilities_json().to_owned(),
            preferences: ClientPreferences::default(),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        // All fields are text, so serialization does not fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl UsedSessions {
    fn set_default(&mut self, session: SessionId) {
        (self.led, self.own) = (Some(session), Weak::new());
    }
}

impl Connection {
    /// Creates a connection of `owner` with the name that the client sends.
    pub(crate) fn new(
        (owner, name): (Owner, Handle),
        session: SessionId,
        target: Target,
        (version, client_info): (Version, ClientInfo),
    ) -> Self {
        Self {
            hash: name.hash(&owner),
            name,
            users: AtomicU32::new(0),
            used: AtomicBool::new(false),
            noted: Mutex::new(Some(Instant::now())),
            owner,
            session,
            target,
            version,
            capabilities: client_info.capabilities(),
            client_info,
            stdio: false,
            used_sessions: Mutex::default(),
            activity: Mutex::default(),
            streams: ConnectionStreams::default(),
            line: OnceLock::new(),
            next_ask: AtomicU64::new(first_question()),
        }
    }

    /// Serializes the connection for the store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = StoredConnection::new(&self.target, (&self.version, &self.client_info));
        StoredConnection { stdio: self.stdio, preferences: self.preferences(), ..kept }.to_bytes()
    }

    /// Serializes a new HTTP connection whose session does not exist yet.
    pub(crate) fn new_bytes(target: &Target, said: (&Version, &ClientInfo)) -> Vec<u8> {
        StoredConnection::new(target, said).to_bytes()
    }

    /// Restores a stored connection; `None` if it cannot be read. Its last use may be long ago, so it may soon be
    /// dropped from memory again.
    pub(crate) fn from_bytes(
        named: (Owner, Handle),
        session: SessionId,
        bytes: &[u8],
    ) -> Option<Self> {
        let kept: StoredConnection = serde_json::from_slice(bytes).ok()?;
        let client_info = ClientInfo::new(&kept.info, &kept.capabilities).ok()?;
        let version = Version::from(&*kept.version);
        let target = Target::from_stored(&kept.server);
        let restored = Self::new(named, session, target, (version, client_info));
        if kept.preferences != ClientPreferences::default() {
            restored.activity().rare().preferences = kept.preferences;
        }
        Some(Self { stdio: kept.stdio, noted: Mutex::default(), ..restored })
    }

    /// Marks the connection as one over standard input and output.
    pub(crate) fn over_stdio(self) -> Self {
        Self { stdio: true, ..self }
    }

    /// Secret that the client sends; the store finds the connection by it.
    pub(crate) fn name(&self) -> &Handle {
        &self.name
    }

    /// Hash by which the connection is found in memory.
    pub(crate) fn name_hash(&self) -> &HandleHash {
        &self.hash
    }

    /// Marks the connection as used.
    pub(crate) fn note_use(&self) {
        // The flag is usually set already. A read without a write keeps the cache line shared.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a request uses the connection.
    pub(crate) fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Whether the store should record a use of the connection. An open stream counts as a use.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let used = self.used.load(Ordering::Relaxed) || self.is_in_use() || !self.is_idle();
        used && self
            .noted()
            .is_none_or(|noted| now.duration_since(noted) >= InStore::TOUCH_INTERVAL)
    }

    /// Marks the use as recorded in the store.
    pub(crate) fn set_noted(&self, now: Instant) {
        self.used.store(false, Ordering::Relaxed);
        *self.noted() = Some(now);
    }

    fn noted(&self) -> MutexGuard<'_, Option<Instant>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Owner and default session, for requests to servers.
    pub(crate) fn place(&self) -> LinkOwner {
        LinkOwner::new(self.owner.clone(), self.default_session())
    }

    fn used_sessions(&self) -> MutexGuard<'_, UsedSessions> {
        self.used_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Session of calls that name none.
    pub(crate) fn default_session(&self) -> SessionId {
        self.used_sessions().led.unwrap_or(self.session)
    }

    /// Returns the default session in use, if it is cached and still valid. Needs no lookup and no waiting.
    pub(crate) fn again(&self, sessions: &Sessions) -> Option<ActiveSession> {
        let own = self.used_sessions().own.upgrade()?;
        sessions.reenter(own)
    }

    /// Caches the default session after a call has used it. The cache is weak: after the session has ended, the next
    /// call looks it up by its id and learns of the end.
    pub(crate) fn went_to(&self, session: &Arc<Session>) {
        let mut used_sessions = self.used_sessions();
        if used_sessions.led.unwrap_or(self.session) == session.id() {
            used_sessions.own = Arc::downgrade(session);
        }
    }

    /// Makes this session the default session.
    pub(crate) fn set_default_session(&self, session: SessionId) {
        self.used_sessions().set_default(session);
    }

    /// Replaces an ended default session, unless another session has replaced it already. Returns the current default
    /// session.
    pub(crate) fn succeed(&self, ended: SessionId, next: SessionId) -> SessionId {
        let mut used_sessions = self.used_sessions();
        let now = used_sessions.led.unwrap_or(self.session);
        if now != ended {
            return now;
        }
        used_sessions.set_default(next);
        next
    }

    /// Records that a call named this session.
    pub(crate) fn uses(&self, session: SessionId) {
        let mut used_sessions = self.used_sessions();
        if used_sessions.used.back() == Some(&session) {
            return;
        }
        used_sessions.used.retain(|used| *used != session);
        used_sessions.used.push_back(session);
        if used_sessions.used.len() > SESSIONS {
            used_sessions.used.pop_front();
        }
    }

    /// Returns all sessions that the connection uses.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let own = self.default_session();
        let used_sessions = self.used_sessions();
        let others = used_sessions.used.iter().copied().filter(|used| *used != own);
        std::iter::once(own).chain(others).collect()
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is in flight, so that the connection can be dropped from memory while the store keeps it.
    pub(crate) fn is_idle(&self) -> bool {
        let activity = self.activity();
        let listens = activity
            .listen_stream
            .as_ref()
            .is_some_and(|listen_stream| listen_stream.stream.is_read());
        activity.calls.is_empty() && !listens
    }

    /// Whether nothing is in flight and the stored form holds the whole state.
    pub(crate) fn is_as_kept(&self) -> bool {
        let led = self.used_sessions().led.is_some();
        self.is_idle() && !led && self.activity().rare.is_none() && self.streams.is_empty()
    }

    /// Whether a call is in flight.
    pub(crate) fn has_calls(&self) -> bool {
        !self.activity().calls.is_empty()
    }

    /// Registers the task that delivers messages of a link, and aborts the previous one of that link.
    pub(crate) fn add_listen_task(&self, link: LinkKey, task: AbortHandle) {
        let mut activity = self.activity();
        let tasks = &mut activity.rare().listen_tasks;
        tasks.retain(|(_, task)| !task.is_finished());
        let before = tasks.iter().position(|(known, _)| *known == link);
        let before = before.map(|at| tasks.swap_remove(at));
        tasks.push((link, task));
        drop(activity);
        if let Some((_, before)) = before {
            before.abort();
        }
    }

    /// Whether the client has a stream, but no task delivers the messages of this link yet.
    pub(crate) fn lacks_listener_for(&self, link: &LinkKey) -> bool {
        let activity = self.activity();
        let mut tasks = activity.rare.iter().flat_map(|rare| &rare.listen_tasks);
        activity.listen_stream.is_some() && !tasks.any(|(known, _)| known == link)
    }

    /// Returns a list that a server sent to this client after a change.
    pub(crate) fn changed_list(&self, server: &str, list: &List) -> Option<Arc<Index>> {
        self.activity().rare.as_ref()?.seen.get(server, list)
    }

    /// Stores pages of a list that a server sent after a change.
    pub(crate) fn store_changed_list(&self, server: &str, list: &'static List, pages: &[Page]) {
        self.activity().rare().seen.add(server, list, pages);
    }

    /// Makes this the stream that the client listens on, and ends the previous one.
    pub(crate) fn listen(&self, stream: Arc<EventStream>, principal: &Principal) {
        let before = self
            .activity()
            .listen_stream
            .replace(ListenStream { stream, principal: principal.clone() });
        if let Some(before) = before {
            before.stream.end();
        }
    }

    /// Updates the principal of the listening client.
    pub(crate) fn listens_as(&self, principal: &Principal) {
        if let Some(listen_stream) = &mut self.activity().listen_stream {
            listen_stream.principal = principal.clone();
        }
    }

    /// Checks the access of a listening client again. `authenticate` returns the current principal, and `set_default`
    /// tells whether it may still use a server. Messages of other servers are not delivered any more.
    pub(crate) fn recheck(
        &self,
        authenticate: impl FnOnce(&Principal) -> Option<Principal>,
        set_default: impl Fn(&str, &Principal) -> bool,
    ) {
        let mut activity = self.activity();
        let activity = &mut *activity;
        let Some(listen_stream) = activity
            .listen_stream
            .as_mut()
            .filter(|listen_stream| !listen_stream.principal.is_local())
        else {
            return;
        };
        let principal = authenticate(&listen_stream.principal);
        let leads = |link: &LinkKey| {
            principal.as_ref().is_some_and(|principal| set_default(link.server(), principal))
        };
        if let Some(RareState { listen_tasks, .. }) = activity.rare.as_deref_mut() {
            // Removed as well as aborted: if the server comes back, its messages are delivered again.
            listen_tasks
                .extract_if(.., |(link, _)| !leads(link))
                .for_each(|(_, task)| task.abort());
        }
        if let Some(principal) = principal {
            listen_stream.principal = principal;
        }
    }

    /// Returns the stream that the client listens on.
    pub(crate) fn listen_stream(&self) -> Option<Arc<EventStream>> {
        self.activity().listen_stream.as_ref().map(|listen_stream| listen_stream.stream.clone())
    }

    /// Returns the same stream, if `which` accepts the client.
    pub(crate) fn listen_stream_of(
        &self,
        which: impl Fn(&Owner, &Claims) -> bool,
    ) -> Option<Arc<EventStream>> {
        let activity = self.activity();
        let listen_stream = activity.listen_stream.as_ref();
        let listen_stream = listen_stream
            .filter(|listen_stream| which(&self.owner, &listen_stream.principal.claims))?;
        Some(listen_stream.stream.clone())
    }

    /// Sends every message for the client to this stream from now on.
    pub(crate) fn speak_on(&self, line: Arc<EventStream>, principal: &Principal) {
        let _ = self.line.set(line.clone());
        self.listen(line, principal);
    }

    /// Detaches the stream, because another connection uses it now. This connection then closes without ending it.
    pub(crate) fn fall_silent(&self) {
        self.activity().listen_stream = None;
    }

    /// Returns the single stream of the client, if it has only one.
    pub(crate) fn line(&self) -> Option<&Arc<EventStream>> {
        self.line.get()
    }

    /// Whether the client uses this link for the first time in this generation. The link is identified by its
    /// [`place`](stayput_upstream::PooledLink::entry_id), so that a call only compares two numbers.
    pub(crate) fn has_used(&self, place: u64, generation: Generation) -> bool {
        let mut activity = self.activity();
        if let Some((known, at)) = &mut activity.met
            && *known == place
        {
            return std::mem::replace(at, generation) != generation;
        }
        let before = activity.met.replace((place, generation));
        let Some(before) = before else { return true };
        let others = &mut activity.rare().met;
        let known = others.iter().rposition(|(known, _)| *known == place);
        let known = known.map(|at| others.remove(at));
        if others.len() >= SESSIONS {
            // Introducing the client to a link twice does no harm.
            others.clear();
        }
        others.push(before);
        known.is_none_or(|(_, at)| at != generation)
    }

    /// Closes the connection for good: cancels the calls in flight and ends the streams.
    pub(crate) fn close(&self) {
        let activity = {
            let mut activity = self.activity();
            // The counter goes on, so that a call which is still in flight is not mistaken for a later one.
            let after = Activity { flights: activity.flights, ..Activity::default() };
            std::mem::replace(&mut *activity, after)
        };
        for call in activity.calls.into_iter().filter_map(|flight| flight.call) {
            call.cancel();
        }
        for (_, task) in activity.rare.into_iter().flat_map(|rare| rare.listen_tasks) {
            task.abort();
        }
        if let Some(listen_stream) = activity.listen_stream {
            listen_stream.stream.end();
        }
        self.streams.close();
    }
}

/// Guard of a connection that a request or a client on a stream uses. While it exists, the connection stays in memory.
pub(crate) struct ConnectionGuard(Arc<Connection>);

impl ConnectionGuard {
    /// Counts one more user. The caller has a guard or the lock of the registry, so that the connection is not removed
    /// meanwhile.
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.users.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Clone for ConnectionGuard {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Deref for ConnectionGuard {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} to {:?})", self.session, self.target)
    }
}

impl Activity {
    fn rare(&mut self) -> &mut RareState {
        self.rare.get_or_insert_default()
    }
}

/// Random start of the ids of server requests: a late answer to an earlier process must not match a request of this
/// one.
fn first_question() -> u64 {
    let mut bytes = [0; 4];
    // Without randomness the ids begin at one.
    let _ = getrandom::fill(&mut bytes);
    u64::from(u32::from_be_bytes(bytes)) * 1_000 + 1
}
