//! One client that is connected: what it said of itself, and what is under way for it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use stayput_core::{Handle, Owner, SessionId};
use stayput_upstream::{Asked, Canceller, Hello};
use stayput_wire::Version;

use crate::stream::{Stream, Streams};

/// A client that shook hands. `Mcp-Session-Id` names it; the session is another thing.
pub(crate) struct Connection {
    pub(crate) owner: Owner,
    pub(crate) session: SessionId,
    pub(crate) server: Arc<str>,
    pub(crate) version: Version,
    pub(crate) hello: Hello,
    under_way: Mutex<UnderWay>,
    pub(crate) streams: Streams,
    next_ask: AtomicU64,
}

#[derive(Default)]
struct UnderWay {
    /// Calls in flight, by the client's id as it was written.
    calls: HashMap<Box<str>, Canceller>,
    /// What servers asked, by the id that the client was given.
    asked: HashMap<u64, Asked>,
    /// The stream that the client listens on.
    ear: Option<Arc<Stream>>,
    /// What the client wants to hear, as it was asked for.
    log_level: Option<String>,
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
            hello,
            under_way: Mutex::default(),
            streams: Streams::default(),
            next_ask: AtomicU64::new(1),
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

    /// Notes a call in flight. `None` if there is one with this id already.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, call: Canceller) -> Option<InFlight> {
        let mut under_way = self.under_way();
        if under_way.calls.contains_key(id) {
            return None;
        }
        under_way.calls.insert(id.into(), call);
        Some(InFlight { connection: self.clone(), id: id.into() })
    }

    /// Whether a call with this id is in flight.
    pub(crate) fn is_in_flight(&self, id: &str) -> bool {
        self.under_way().calls.contains_key(id)
    }

    /// The client takes a call back.
    pub(crate) fn cancel(&self, id: &str) {
        let call = self.under_way().calls.remove(id);
        if let Some(call) = call {
            call.cancel();
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
        for call in under_way.calls.into_values() {
            call.cancel();
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
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.under_way().calls.remove(&self.id);
    }
}

/// The secret name of a connection, out of its header. What cannot be one leads nowhere.
pub(crate) fn name(header: &str) -> Option<Handle> {
    header.parse().ok()
}
