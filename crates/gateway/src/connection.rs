//! One client that is connected: what it said of itself, and what is under way for it.

mod flights;
mod questions;
mod wishes;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, atomic::AtomicU64},
};

use serde::{Deserialize, Serialize};
use stayput_core::{Generation, Handle, InUse, Owner, Session, SessionId, Sessions};
use stayput_upstream::{Asked, Declares, Hello, LinkKey, Place};
use stayput_wire::Version;
use tokio::task::AbortHandle;

use self::flights::Flight;
pub(crate) use self::{flights::InFlight, wishes::Wishes};
use crate::{
    aggregate::{
        index::Index,
        list::{List, Page},
        seen::Seen,
    },
    owners::Claims,
    stream::Stream,
    streams::Streams,
    target::Target,
};

/// A client that shook hands. `Mcp-Session-Id` names it; the session is another thing.
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(crate) struct Connection {
    pub(crate) target: Target,
    /// Whether it is over standard input and output, which is no conversation.
    pub(crate) stdio: bool,
    /// What the client can be asked, as it said in its hello: each call carries it.
    pub(crate) declares: Declares,
    /// Which other sessions it has to do with.
    reach: Mutex<Reach>,
    under_way: Mutex<UnderWay>,
    pub(crate) owner: Owner,
    /// The session that it was made with, or led to before a restart.
    pub(crate) session: SessionId,
    pub(crate) version: Version,
    pub(crate) hello: Hello,
    pub(crate) streams: Streams,
    /// The one stream of a client of 2024-11-05: all that it hears comes there.
    line: OnceLock<Arc<Stream>>,
    next_ask: AtomicU64,
    name: OnceLock<Handle>,
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
    stream: Arc<Stream>,
    claims: Arc<Claims>,
}

/// What few clients have.
#[derive(Default)]
struct Rare {
    /// What servers asked, and over which link, by the id that the client was given.
    asked: BTreeMap<u64, (LinkKey, Asked)>,
    /// What the client wants to hear, as it was asked for.
    wishes: Wishes,
    /// The places of the other links that know of the client, the latest last.
    met: Vec<(u64, Generation)>,
    /// Who passes on what servers say outside of calls, for each link.
    hearing: Vec<(LinkKey, AbortHandle)>,
    /// What servers listed to this client after something had changed.
    seen: Seen,
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
    wishes: Wishes,
}

impl Reach {
    fn leads_to(&mut self, session: SessionId) {
        (self.led, self.own) = (Some(session), Weak::new());
    }
}

impl Connection {
    pub(crate) fn new(
        owner: Owner,
        session: SessionId,
        target: Target,
        version: Version,
        hello: Hello,
    ) -> Self {
        Self {
            owner,
            session,
            target,
            version,
            declares: hello.declares(),
            hello,
            stdio: false,
            reach: Mutex::default(),
            under_way: Mutex::default(),
            streams: Streams::default(),
            line: OnceLock::new(),
            next_ask: AtomicU64::new(first_question()),
            name: OnceLock::new(),
        }
    }

    /// As it is kept by a store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = Kept {
            server: self.target.as_str().to_owned(),
            stdio: self.stdio,
            version: self.version.as_str().to_owned(),
            info: self.hello.info().to_owned(),
            capabilities: self.hello.capabilities().to_owned(),
            wishes: self.wishes(),
        };
        // Texts: there is always JSON for them.
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// As a store kept it; `None` if it cannot be read.
    pub(crate) fn from_bytes(owner: Owner, session: SessionId, bytes: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        let hello = Hello::new(&kept.info, &kept.capabilities).ok()?;
        let version = Version::from(&*kept.version);
        let restored = Self::new(owner, session, Target::kept(&kept.server), version, hello);
        if kept.wishes != Wishes::default() {
            restored.under_way().rare().wishes = kept.wishes;
        }
        Some(Self { stdio: kept.stdio, ..restored })
    }

    /// The same over standard input and output.
    pub(crate) fn over_stdio(self) -> Self {
        Self { stdio: true, ..self }
    }

    /// The secret that the client shows, by which it is kept.
    pub(crate) fn called(self, name: &Handle) -> Self {
        let _ = self.name.set(name.clone());
        self
    }

    pub(crate) fn name(&self) -> Option<&Handle> {
        self.name.get()
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
    pub(crate) fn again(&self, sessions: &Sessions) -> Option<InUse> {
        let own = self.reach().own.upgrade()?;
        sessions.again(own)
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
    pub(crate) fn listen(&self, stream: Arc<Stream>, claims: &Arc<Claims>) {
        let before = self.under_way().ear.replace(Ear { stream, claims: claims.clone() });
        if let Some(before) = before {
            before.stream.end();
        }
    }

    /// What the client listens on.
    pub(crate) fn ear(&self) -> Option<Arc<Stream>> {
        self.under_way().ear.as_ref().map(|ear| ear.stream.clone())
    }

    /// The same, if who listens is one of these.
    pub(crate) fn ear_of(&self, which: impl Fn(&Owner, &Claims) -> bool) -> Option<Arc<Stream>> {
        let under_way = self.under_way();
        let ear = under_way.ear.as_ref().filter(|ear| which(&self.owner, &ear.claims))?;
        Some(ear.stream.clone())
    }

    /// All that the client hears comes on this stream from now on.
    pub(crate) fn speak_on(&self, line: Arc<Stream>, claims: &Arc<Claims>) {
        let _ = self.line.set(line.clone());
        self.listen(line, claims);
    }

    /// Another connection has the stream of the client now: this one ends without it.
    pub(crate) fn fall_silent(&self) {
        self.under_way().ear = None;
    }

    /// The one stream of the client, if it has but one.
    pub(crate) fn line(&self) -> Option<&Arc<Stream>> {
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
