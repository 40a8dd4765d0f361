//! Connection of one client: its `initialize` data, its calls, streams and subscriptions, and the links it has used.

mod default_session;
mod in_flight;
mod listen_stream;
mod preferences;
mod server_requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use stayput_core::{Connection as InStore, Generation, Handle, HandleHash, Owner, SessionId};
use stayput_sync::Mutex;
use stayput_upstream::{ClientCapabilities, ClientInfo, LinkKey};
use stayput_wire::Version;
use tokio::{task::AbortHandle, time::Instant};

pub(crate) use crate::connections::connection::{
    in_flight::InFlight, listen_stream::RelayTask, preferences::ClientPreferences,
};
use crate::{
    catalog::{
        client_lists::ClientLists,
        index::Index,
        list::{List, Page},
    },
    config::target::Target,
    connections::{
        connection::{
            default_session::UsedSessions, in_flight::InFlightCall, listen_stream::ListenStream,
            server_requests::PendingQuestion,
        },
        event_stream::EventStream,
        stream_cache::ConnectionStreams,
    },
};

/// Largest number of links that are remembered per connection.
const MAX_LINKS: usize = 256;

/// Client that has completed `initialize`. `Mcp-Session-Id` names the connection, not the session.
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
    only_stream: OnceLock<Arc<EventStream>>,
    next_ask: AtomicU64,
    /// Held while the preferences are read from the store or written to it, so that no change overwrites another.
    pub(crate) preference_lock: tokio::sync::Mutex<()>,
    /// Secret that the client sends.
    name: Handle,
    /// Time at which the store last recorded the use; `None` if it has not since the connection was loaded.
    noted: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Activity {
    /// Calls in flight. A list, not a map: most clients have one call at a time, and few have many.
    calls: Vec<InFlightCall>,
    /// Counter that numbers the calls, because a client may reuse an id.
    flights: u64,
    /// Pool entry and generation of the link that the client used last. Most clients use one link.
    last_link: Option<(u64, Generation)>,
    /// Stream that the client listens on.
    listen_stream: Option<ListenStream>,
    /// Rarely used state. Boxed, because few clients need any of it.
    rare: Option<Box<RareState>>,
}

/// State that few clients need.
#[derive(Default)]
struct RareState {
    /// Pending requests of servers, by their numbers.
    asked: BTreeMap<u64, PendingQuestion>,
    /// Log level and subscriptions that the client asked for.
    preferences: ClientPreferences,
    /// Number of changes of the preferences in this process.
    preference_changes: u64,
    /// Resources that the client subscribed to, with the pool entry of the link.
    subscribed: BTreeSet<(u64, String)>,
    /// Pool entries of the other links that the client has used, the latest last.
    used_links: Vec<(u64, Generation)>,
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
            only_stream: OnceLock::new(),
            next_ask: AtomicU64::new(first_question()),
            preference_lock: tokio::sync::Mutex::default(),
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
            restored.activity.lock().rare().preferences = kept.preferences;
        }
        Some(Self { stdio: kept.stdio, noted: Mutex::default(), ..restored })
    }

    /// Reads the preferences of a stored connection; `None` if it cannot be read.
    pub(crate) fn stored_preferences(bytes: &[u8]) -> Option<ClientPreferences> {
        serde_json::from_slice(bytes).ok().map(|kept: StoredConnection| kept.preferences)
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
            .noted
            .lock()
            .is_none_or(|noted| now.duration_since(noted) >= InStore::TOUCH_INTERVAL)
    }

    /// Marks the use as recorded in the store.
    pub(crate) fn set_noted(&self, now: Instant) {
        self.used.store(false, Ordering::Relaxed);
        *self.noted.lock() = Some(now);
    }

    /// Whether nothing is in flight, so that the connection can be dropped from memory while the store keeps it.
    pub(crate) fn is_idle(&self) -> bool {
        let activity = self.activity.lock();
        let listens = activity
            .listen_stream
            .as_ref()
            .is_some_and(|listen_stream| listen_stream.stream.is_read());
        activity.calls.is_empty() && !listens
    }

    /// Whether nothing is in flight and the stored form holds the whole state.
    pub(crate) fn matches_stored(&self) -> bool {
        let is_replaced = self.used_sessions.lock().is_replaced();
        self.is_idle()
            && !is_replaced
            && self.activity.lock().rare.is_none()
            && self.streams.is_empty()
    }

    /// Whether a call is in flight.
    pub(crate) fn has_calls(&self) -> bool {
        !self.activity.lock().calls.is_empty()
    }

    /// Returns a list that a server sent to this client after a change.
    pub(crate) fn changed_list(&self, server: &str, list: &List) -> Option<Arc<Index>> {
        self.activity.lock().rare.as_ref()?.seen.get(server, list)
    }

    /// Stores pages of a list that a server sent after a change.
    pub(crate) fn store_changed_list(&self, server: &str, list: &'static List, pages: &[Page]) {
        self.activity.lock().rare().seen.add(server, list, pages);
    }

    /// Closes the connection for good: cancels the calls in flight and ends the streams.
    pub(crate) fn close(&self) {
        let activity = {
            let mut activity = self.activity.lock();
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

impl Connection {
    /// Notes that the client uses a link, which is named by its pool entry. Returns whether this is the first use in this
    /// generation. A call compares two numbers only.
    pub(crate) fn note_link_use(&self, entry_id: u64, generation: Generation) -> bool {
        let mut activity = self.activity.lock();
        if let Some((known, at)) = &mut activity.last_link
            && *known == entry_id
        {
            return std::mem::replace(at, generation) != generation;
        }
        let before = activity.last_link.replace((entry_id, generation));
        let Some(before) = before else { return true };
        let others = &mut activity.rare().used_links;
        let known = others.iter().rposition(|(known, _)| *known == entry_id);
        let known = known.map(|at| others.remove(at));
        if others.len() >= MAX_LINKS {
            // Introducing the client to a link twice does no harm.
            others.clear();
        }
        others.push(before);
        known.is_none_or(|(_, at)| at != generation)
    }

    /// Number that tells connections apart in the dashboard: the start of the hash, which is not secret.
    pub(crate) fn number(&self) -> u32 {
        let [a, b, c, d, ..] = *self.hash.as_bytes();
        u32::from_be_bytes([a, b, c, d])
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
