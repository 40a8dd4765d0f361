//! One client that is connected: what it said of itself, and what is under way for it.

mod in_flight;
mod preferences;
mod server_requests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use stayput_core::{
    ActiveSession, Connection as InStore, Generation, Handle, HandleHash, Owner, Session,
    SessionId, Sessions,
};
use stayput_upstream::{Asked, Declares, Hello, LinkKey, Place};
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
        connection::in_flight::Flight, event_stream::EventStream, stream_cache::ConnectionStreams,
    },
};

/// A client that shook hands. `Mcp-Session-Id` names it; the session is another thing.
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(crate) struct Connection {
    /// What it is found by.
    hash: HandleHash,
    /// Whether it was used since the store was told so.
    used: AtomicBool,
    /// Whether it is over standard input and output, which is no conversation.
    pub(crate) stdio: bool,
    /// What the client can be asked, as it said in its hello: each call carries it.
    pub(crate) declares: Declares,
    pub(crate) target: Target,
    under_way: Mutex<UnderWay>,
    /// Which other sessions it has to do with.
    reach: Mutex<Reach>,
    pub(crate) owner: Owner,
    /// The session that it was made with, or led to before a restart.
    pub(crate) session: SessionId,
    pub(crate) version: Version,
    pub(crate) hello: Hello,
    pub(crate) streams: ConnectionStreams,
    /// The one stream of a client of 2024-11-05: all that it hears comes there.
    line: OnceLock<Arc<EventStream>>,
    next_ask: AtomicU64,
    /// The secret that the client shows.
    name: Handle,
    /// When the store was told of its use, if it was since it is known here.
    noted: Mutex<Option<Instant>>,
}

/// The most sessions that a connection is known to have to do with.
const SESSIONS: usize = 256;

/// The sessions that a connection has to do with, beside the one that it was made with.
#[derive(Default)]
#[repr(C)] // As above.
struct Reach {
    /// The one that calls go to which name none, once one has.
    own: Weak<Session>,
    /// The one that calls go to which name none, if it is another one now.
    led: Option<SessionId>,
    /// Those that calls have named, the latest last.
    used: VecDeque<SessionId>,
}

#[derive(Default)]
#[repr(C)] // As above.
struct UnderWay {
    /// Calls in flight. A list and no table: most clients have one call at a time, and few have many.
    calls: Vec<Flight>,
    /// Counts calls: an id may be used again.
    flights: u64,
    /// The place of the link that met the client last. Most clients have one.
    met: Option<(u64, Generation)>,
    /// The stream that the client listens on.
    ear: Option<Ear>,
    /// In a box, because few clients have any of it.
    rare: Option<Box<Rare>>,
}

/// Where a client listens, and what is known of who does.
struct Ear {
    stream: Arc<EventStream>,
    principal: Principal,
}

/// What few clients have.
#[derive(Default)]
struct Rare {
    /// What servers asked, and over which link, by the id that the client was given.
    asked: BTreeMap<u64, (LinkKey, Asked)>,
    /// What the client wants to hear, as it was asked for.
    wishes: ClientPreferences,
    /// The resources that the client subscribed to, with the place of the link.
    subscribed: BTreeSet<(u64, String)>,
    /// The places of the other links that know of the client, the latest last.
    met: Vec<(u64, Generation)>,
    /// Who passes on what servers say outside of calls, for each link.
    hearing: Vec<(LinkKey, AbortHandle)>,
    /// What servers listed to this client after something had changed.
    seen: ClientLists,
}

/// What is kept of a connection.
#[derive(Serialize, Deserialize)]
struct Kept {
    server: String,
    #[serde(default)]
    stdio: bool,
    version: String,
    info: String,
    capabilities: String,
    #[serde(default)]
    wishes: ClientPreferences,
}

impl Kept {
    fn new(target: &Target, (version, hello): (&Version, &Hello)) -> Self {
        Self {
            server: target.as_str().to_owned(),
            stdio: false,
            version: version.as_str().to_owned(),
            info: hello.info().to_owned(),
            capabilities: hello.capabilities().to_owned(),
            wishes: ClientPreferences::default(),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        // Texts: there is always JSON for them.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Reach {
    fn leads_to(&mut self, session: SessionId) {
        (self.led, self.own) = (Some(session), Weak::new());
    }
}

impl Connection {
    /// A new one of `owner`, by the name that the client shows.
    pub(crate) fn new(
        (owner, name): (Owner, Handle),
        session: SessionId,
        target: Target,
        (version, hello): (Version, Hello),
    ) -> Self {
        Self {
            hash: name.hash(&owner),
            name,
            used: AtomicBool::new(false),
            noted: Mutex::new(Some(Instant::now())),
            owner,
            session,
            target,
            version,
            declares: hello.declares(),
            hello,
            stdio: false,
            reach: Mutex::default(),
            under_way: Mutex::default(),
            streams: ConnectionStreams::default(),
            line: OnceLock::new(),
            next_ask: AtomicU64::new(first_question()),
        }
    }

    /// As it is kept by a store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = Kept::new(&self.target, (&self.version, &self.hello));
        Kept { stdio: self.stdio, wishes: self.wishes(), ..kept }.to_bytes()
    }

    /// The same of a new one over HTTP, whose session is not there yet.
    pub(crate) fn new_bytes(target: &Target, said: (&Version, &Hello)) -> Vec<u8> {
        Kept::new(target, said).to_bytes()
    }

    /// As a store kept it; `None` if it cannot be read. It may have been used long ago, and be forgotten here soon.
    pub(crate) fn from_bytes(
        named: (Owner, Handle),
        session: SessionId,
        bytes: &[u8],
    ) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        let hello = Hello::new(&kept.info, &kept.capabilities).ok()?;
        let version = Version::from(&*kept.version);
        let target = Target::kept(&kept.server);
        let restored = Self::new(named, session, target, (version, hello));
        if kept.wishes != ClientPreferences::default() {
            restored.under_way().rare().wishes = kept.wishes;
        }
        Some(Self { stdio: kept.stdio, noted: Mutex::default(), ..restored })
    }

    /// The same over standard input and output.
    pub(crate) fn over_stdio(self) -> Self {
        Self { stdio: true, ..self }
    }

    /// The secret that the client shows, by which it is kept.
    pub(crate) fn name(&self) -> &Handle {
        &self.name
    }

    /// What it is found by.
    pub(crate) fn name_hash(&self) -> &HandleHash {
        &self.hash
    }

    /// Somebody uses it.
    pub(crate) fn note_use(&self) {
        // Most find it said: who only looks does not get in the way of others.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the store is to be told that it is used. Whoever listens uses it, too.
    pub(crate) fn is_due(self: &Arc<Self>, now: Instant) -> bool {
        let used = self.used.load(Ordering::Relaxed) || Arc::strong_count(self) > 1;
        used && self
            .noted()
            .is_none_or(|noted| now.duration_since(noted) >= InStore::TOUCH_INTERVAL)
    }

    /// The store was told of its use.
    pub(crate) fn set_noted(&self, now: Instant) {
        self.used.store(false, Ordering::Relaxed);
        *self.noted() = Some(now);
    }

    fn noted(&self) -> MutexGuard<'_, Option<Instant>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whom servers are asked.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.owner.clone(), self.default_session())
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that calls go to which name none.
    pub(crate) fn default_session(&self) -> SessionId {
        self.reach().led.unwrap_or(self.session)
    }

    /// The same in use, if it was used before and nothing has to be waited for: nothing is looked up.
    pub(crate) fn again(&self, sessions: &Sessions) -> Option<ActiveSession> {
        let own = self.reach().own.upgrade()?;
        sessions.reenter(own)
    }

    /// A call that named none goes to this one. Of one that is over, whoever comes next learns by its name.
    pub(crate) fn went_to(&self, session: &Arc<Session>) {
        let mut reach = self.reach();
        if reach.led.unwrap_or(self.session) == session.id() {
            reach.own = Arc::downgrade(session);
        }
    }

    /// Calls that name no session go to this one from now on.
    pub(crate) fn lead(&self, session: SessionId) {
        self.reach().leads_to(session);
    }

    /// The session that calls go to was ended, and this one takes its place, unless another one has. Gives the one
    /// that calls go to now.
    pub(crate) fn succeed(&self, ended: SessionId, next: SessionId) -> SessionId {
        let mut reach = self.reach();
        let now = reach.led.unwrap_or(self.session);
        if now != ended {
            return now;
        }
        reach.leads_to(next);
        next
    }

    /// A call named this session.
    pub(crate) fn uses(&self, session: SessionId) {
        let mut reach = self.reach();
        if reach.used.back() == Some(&session) {
            return;
        }
        reach.used.retain(|used| *used != session);
        reach.used.push_back(session);
        if reach.used.len() > SESSIONS {
            reach.used.pop_front();
        }
    }

    /// All sessions that it has to do with.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let own = self.default_session();
        let reach = self.reach();
        let others = reach.used.iter().copied().filter(|used| *used != own);
        std::iter::once(own).chain(others).collect()
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is under way, so that it can be forgotten while the store knows it.
    pub(crate) fn is_idle(&self) -> bool {
        let under_way = self.under_way();
        let listens = under_way.ear.as_ref().is_some_and(|ear| ear.stream.is_read());
        under_way.calls.is_empty() && !listens
    }

    /// Whether nothing is under way and nothing is known of it but what is kept.
    pub(crate) fn is_as_kept(&self) -> bool {
        let led = self.reach().led.is_some();
        self.is_idle() && !led && self.under_way().rare.is_none() && self.streams.is_empty()
    }

    /// Whether a call is in flight.
    pub(crate) fn has_calls(&self) -> bool {
        !self.under_way().calls.is_empty()
    }

    /// Who passes on what is said over a link from now on; who did it before stops.
    pub(crate) fn hear(&self, link: LinkKey, task: AbortHandle) {
        let mut under_way = self.under_way();
        let hearing = &mut under_way.rare().hearing;
        hearing.retain(|(_, task)| !task.is_finished());
        let before = hearing.iter().position(|(known, _)| *known == link);
        let before = before.map(|at| hearing.swap_remove(at));
        hearing.push((link, task));
        drop(under_way);
        if let Some((_, before)) = before {
            before.abort();
        }
    }

    /// Whether the client listens, and what is said over this link was never passed on.
    pub(crate) fn is_deaf_to(&self, link: &LinkKey) -> bool {
        let under_way = self.under_way();
        let mut hearing = under_way.rare.iter().flat_map(|rare| &rare.hearing);
        under_way.ear.is_some() && !hearing.any(|(known, _)| known == link)
    }

    /// What a server listed to this client after something had changed.
    pub(crate) fn seen(&self, server: &str, list: &List) -> Option<Arc<Index>> {
        self.under_way().rare.as_ref()?.seen.get(server, list)
    }

    /// A server listed something else than before.
    pub(crate) fn see(&self, server: &str, list: &'static List, pages: &[Page]) {
        self.under_way().rare().seen.add(server, list, pages);
    }

    /// The client listens on this stream from now on; the one before ends.
    pub(crate) fn listen(&self, stream: Arc<EventStream>, principal: &Principal) {
        let before = self.under_way().ear.replace(Ear { stream, principal: principal.clone() });
        if let Some(before) = before {
            before.stream.end();
        }
    }

    /// The client listens with this credential from now on.
    pub(crate) fn listens_as(&self, principal: &Principal) {
        if let Some(ear) = &mut self.under_way().ear {
            ear.principal = principal.clone();
        }
    }

    /// Checks the access of a listening client again: `authenticate` returns the principal as it is now, and
    /// `leads_to` says whether a server is still there for it. Messages of other servers are not delivered any more.
    pub(crate) fn recheck(
        &self,
        authenticate: impl FnOnce(&Principal) -> Option<Principal>,
        leads_to: impl Fn(&str, &Principal) -> bool,
    ) {
        let mut under_way = self.under_way();
        let under_way = &mut *under_way;
        let Some(ear) = under_way.ear.as_mut().filter(|ear| !ear.principal.is_local()) else {
            return;
        };
        let principal = authenticate(&ear.principal);
        let leads = |link: &LinkKey| {
            principal.as_ref().is_some_and(|principal| leads_to(link.server(), principal))
        };
        if let Some(Rare { hearing, .. }) = under_way.rare.as_deref_mut() {
            // Removes them too: if the server comes back, its messages are listened to again.
            hearing.extract_if(.., |(link, _)| !leads(link)).for_each(|(_, task)| task.abort());
        }
        if let Some(principal) = principal {
            ear.principal = principal;
        }
    }

    /// What the client listens on.
    pub(crate) fn ear(&self) -> Option<Arc<EventStream>> {
        self.under_way().ear.as_ref().map(|ear| ear.stream.clone())
    }

    /// The same, if who listens is one of these.
    pub(crate) fn ear_of(
        &self,
        which: impl Fn(&Owner, &Claims) -> bool,
    ) -> Option<Arc<EventStream>> {
        let under_way = self.under_way();
        let ear = under_way.ear.as_ref();
        let ear = ear.filter(|ear| which(&self.owner, &ear.principal.claims))?;
        Some(ear.stream.clone())
    }

    /// All that the client hears comes on this stream from now on.
    pub(crate) fn speak_on(&self, line: Arc<EventStream>, principal: &Principal) {
        let _ = self.line.set(line.clone());
        self.listen(line, principal);
    }

    /// Another connection has the stream of the client now: this one ends without it.
    pub(crate) fn fall_silent(&self) {
        self.under_way().ear = None;
    }

    /// The one stream of the client, if it has but one.
    pub(crate) fn line(&self) -> Option<&Arc<EventStream>> {
        self.line.get()
    }

    /// Whether the client meets this link for the first time. It is known by its [`place`](stayput_upstream::Held::slot),
    /// so that every call compares two numbers.
    pub(crate) fn meets(&self, place: u64, generation: Generation) -> bool {
        let mut under_way = self.under_way();
        if let Some((known, at)) = &mut under_way.met
            && *known == place
        {
            return std::mem::replace(at, generation) != generation;
        }
        let before = under_way.met.replace((place, generation));
        let Some(before) = before else { return true };
        let others = &mut under_way.rare().met;
        let known = others.iter().rposition(|(known, _)| *known == place);
        let known = known.map(|at| others.remove(at));
        if others.len() >= SESSIONS {
            // To be introduced twice does no harm.
            others.clear();
        }
        others.push(before);
        known.is_none_or(|(_, at)| at != generation)
    }

    /// The client is gone for good: what is in flight is cancelled, and its streams end.
    pub(crate) fn close(&self) {
        let under_way = {
            let mut under_way = self.under_way();
            // Who is still in flight must not be taken for one that comes after.
            let after = UnderWay { flights: under_way.flights, ..UnderWay::default() };
            std::mem::replace(&mut *under_way, after)
        };
        for call in under_way.calls.into_iter().filter_map(|flight| flight.call) {
            call.cancel();
        }
        for (_, hearing) in under_way.rare.into_iter().flat_map(|rare| rare.hearing) {
            hearing.abort();
        }
        if let Some(ear) = under_way.ear {
            ear.stream.end();
        }
        self.streams.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} to {:?})", self.session, self.target)
    }
}

impl UnderWay {
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// A late answer to a question of an earlier process must not meet one of this.
fn first_question() -> u64 {
    let mut bytes = [0; 4];
    // Without randomness they begin at one.
    let _ = getrandom::fill(&mut bytes);
    u64::from(u32::from_be_bytes(bytes)) * 1_000 + 1
}
