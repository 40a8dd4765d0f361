//! One client that is connected: what it said of itself, and what is under way for it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use stayput_core::{Handle, Owner, SessionId};
use stayput_upstream::{Asked, Canceller, Declares, Hello};
use stayput_wire::Version;
use tokio::task::AbortHandle;

use crate::stream::{Stream, Streams};

/// A client that shook hands. `Mcp-Session-Id` names it; the session is another thing.
pub(crate) struct Connection {
    pub(crate) owner: Owner,
    pub(crate) session: SessionId,
    pub(crate) server: Arc<str>,
    pub(crate) version: Version,
    pub(crate) hello: Hello,
    /// What the client can be asked, as it said in its hello: each call carries it.
    pub(crate) declares: Declares,
    under_way: Mutex<UnderWay>,
    pub(crate) streams: Streams,
    next_ask: AtomicU64,
}

#[derive(Default)]
struct UnderWay {
    /// Calls in flight, by the client's id as it was written.
    calls: HashMap<Box<str>, Flight>,
    /// Counts calls: an id may be used again.
    flights: u64,
    /// What servers asked, by the id that the client was given. Few are ever asked anything, and an
    /// empty tree is smaller than an empty table.
    asked: BTreeMap<u64, Asked>,
    /// The stream that the client listens on.
    ear: Option<Arc<Stream>>,
    /// What the client wants to hear, as it was asked for.
    log_level: Option<String>,
    /// Who passes on what servers say outside of calls.
    hearing: Option<AbortHandle>,
}

/// A call from the moment its id is taken.
struct Flight {
    number: u64,
    /// Once it was sent.
    call: Option<Canceller>,
    /// Taken back before it was.
    cancelled: bool,
}

/// What is kept of a connection.
#[derive(Serialize, Deserialize)]
struct Kept {
    server: String,
    version: String,
    info: String,
    capabilities: String,
}

impl Connection {
    pub(crate) fn new(
        owner: Owner,
        session: SessionId,
        server: Arc<str>,
        version: Version,
        hello: Hello,
    ) -> Self {
        Self {
            owner,
            session,
            server,
            version,
            declares: hello.declares(),
            hello,
            under_way: Mutex::default(),
            streams: Streams::default(),
            next_ask: AtomicU64::new(first_question()),
        }
    }

    /// As it is kept by a store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = Kept {
            server: self.server.to_string(),
            version: self.version.as_str().to_owned(),
            info: self.hello.info().to_owned(),
            capabilities: self.hello.capabilities().to_owned(),
        };
        // Texts: there is always JSON for them.
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// As a store kept it; `None` if it cannot be read.
    pub(crate) fn from_bytes(owner: Owner, session: SessionId, bytes: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        let hello = Hello::new(&kept.info, &kept.capabilities).ok()?;
        let version = Version::from(&*kept.version);
        Some(Self::new(owner, session, kept.server.into(), version, hello))
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an id for a call that is about to be made. `None` if one with this id is in flight.
    pub(crate) fn begin(self: &Arc<Self>, id: &str) -> Option<InFlight> {
        let mut under_way = self.under_way();
        if under_way.calls.contains_key(id) {
            return None;
        }
        under_way.flights += 1;
        let number = under_way.flights;
        under_way.calls.insert(id.into(), Flight { number, call: None, cancelled: false });
        Some(InFlight { connection: self.clone(), id: id.into(), number })
    }

    /// The client takes a call back.
    pub(crate) fn cancel(&self, id: &str) {
        let call = self.under_way().calls.get_mut(id).and_then(|flight| {
            flight.cancelled = true;
            flight.call.clone()
        });
        if let Some(call) = call {
            call.cancel();
        }
    }

    /// Whether nothing is under way, so that it can be forgotten while the store knows it.
    pub(crate) fn is_idle(&self) -> bool {
        let under_way = self.under_way();
        let listens = under_way.ear.as_ref().is_some_and(|ear| ear.is_read());
        under_way.calls.is_empty() && !listens
    }

    /// Who passes on what servers say from now on; who did it before stops.
    pub(crate) fn hear(&self, task: AbortHandle) {
        let before = self.under_way().hearing.replace(task);
        if let Some(before) = before {
            before.abort();
        }
    }

    /// Keeps a question of a server until the client answers it; says under which id.
    pub(crate) fn ask(&self, asked: Asked) -> u64 {
        let id = self.next_ask.fetch_add(1, Ordering::Relaxed);
        self.under_way().asked.insert(id, asked);
        id
    }

    /// The question that the client answers.
    pub(crate) fn asked(&self, id: u64) -> Option<Asked> {
        self.under_way().asked.remove(&id)
    }

    /// The server took a question back; says under which id the client knows it.
    pub(crate) fn withdraw(&self, server_id: &str) -> Option<u64> {
        let mut under_way = self.under_way();
        let mut found =
            under_way.asked.iter().filter(|(_, asked)| asked.id().as_str() == server_id);
        let id = found.next().map(|(id, _)| *id)?;
        let asked = under_way.asked.remove(&id);
        drop(under_way);
        drop(asked);
        Some(id)
    }

    /// The client listens on this stream from now on; the one before ends.
    pub(crate) fn listen(&self, stream: Arc<Stream>) {
        let before = self.under_way().ear.replace(stream);
        if let Some(before) = before {
            before.end();
        }
    }

    /// What the client listens on.
    pub(crate) fn ear(&self) -> Option<Arc<Stream>> {
        self.under_way().ear.clone()
    }

    pub(crate) fn set_log_level(&self, params: &str) {
        self.under_way().log_level = Some(params.to_owned());
    }

    pub(crate) fn log_level(&self) -> Option<String> {
        self.under_way().log_level.clone()
    }

    /// The client is gone for good: what is in flight is cancelled, and its streams end.
    pub(crate) fn close(&self) {
        let under_way = std::mem::take(&mut *self.under_way());
        for call in under_way.calls.into_values().filter_map(|flight| flight.call) {
            call.cancel();
        }
        if let Some(hearing) = under_way.hearing {
            hearing.abort();
        }
        if let Some(ear) = under_way.ear {
            ear.end();
        }
        self.streams.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} to {})", self.session, self.server)
    }
}

/// A call in flight, for as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlight {
    connection: Arc<Connection>,
    id: Box<str>,
    number: u64,
}

impl InFlight {
    /// Whether the client took it back.
    pub(crate) fn is_cancelled(&self) -> bool {
        let under_way = self.connection.under_way();
        let own = under_way.calls.get(&self.id).filter(|flight| flight.number == self.number);
        own.is_none_or(|flight| flight.cancelled)
    }

    /// It was sent. If the client took it back meanwhile, so is the call.
    pub(crate) fn sent(&self, call: &Canceller) {
        let cancelled = {
            let mut under_way = self.connection.under_way();
            match under_way.calls.get_mut(&self.id).filter(|it| it.number == self.number) {
                Some(flight) => {
                    flight.call = Some(call.clone());
                    flight.cancelled
                }
                // The whole connection was closed.
                None => true,
            }
        };
        if cancelled {
            call.cancel();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut under_way = self.connection.under_way();
        if under_way.calls.get(&self.id).is_some_and(|flight| flight.number == self.number) {
            under_way.calls.remove(&self.id);
            if under_way.calls.is_empty() {
                // An idle connection has no table.
                under_way.calls.shrink_to_fit();
            }
        }
    }
}

/// A late answer to a question of an earlier process must not meet one of this.
fn first_question() -> u64 {
    let mut bytes = [0; 4];
    // Without randomness they begin at one.
    let _ = getrandom::fill(&mut bytes);
    u64::from(u32::from_be_bytes(bytes)) * 1_000 + 1
}

/// The secret name of a connection, out of its header. What cannot be one leads nowhere.
pub(crate) fn name(header: &str) -> Option<Handle> {
    header.parse().ok()
}
