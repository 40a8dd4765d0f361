//! Builder of [`ServerSessions`].

use std::{fmt, sync::Arc, time::Duration};

use http::request::Parts;
use stayput_core::{
    Clock, EventLog, Expiry, MemoryEventLog, MemoryStore, Owner, StateLimits, Store, SystemClock,
};
use stayput_sync::RwLock;

use crate::{
    Cookie, NameSource, ServerSessions,
    registry::{SessionRegistry, Settings},
    sessions::{Inner, MissingSession, OwnerOf},
};

/// Default limit of a request body. rmcp has the same limit.
const DEFAULT_BODY_LIMIT: usize = 4 << 20;

/// Options of [`ServerSessions`]. The store comes last: [`Builder::in_memory`], [`Builder::open`] or
/// [`Builder::with_store`].
#[must_use]
pub struct Builder {
    settings: Settings,
    owner: OwnerOf,
    name_sources: Vec<NameSource>,
    missing_session: MissingSession,
    cookie: Cookie,
    body_limit: usize,
    resumable: bool,
    clock: Arc<dyn Clock>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            owner: Arc::new(|_| Owner::anonymous()),
            name_sources: NameSource::DEFAULT.to_vec(),
            missing_session: MissingSession::default(),
            cookie: Cookie::default(),
            body_limit: DEFAULT_BODY_LIMIT,
            resumable: false,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Builder {
    /// Sets when a session expires. Defaults to 30 minutes idle and 24 hours in all.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.settings.expiry = expiry;
        self
    }

    /// Sets the idle time of a session that the server minted unasked. It applies until the client sends the handle
    /// back. Defaults to 2 minutes.
    pub fn provisional_idle(mut self, idle: Duration) -> Self {
        self.settings.provisional = idle;
        self
    }

    /// Limits the state of a session. Defaults to 4 MiB in 1,024 values of at most 256 KiB.
    pub fn state_limits(mut self, limits: StateLimits) -> Self {
        self.settings.state = limits;
        self
    }

    /// Limits the live sessions of an owner. Defaults to 10,000. All clients that [`Builder::owner`] does not tell
    /// apart are one owner.
    pub fn max_sessions_per_owner(mut self, limit: usize) -> Self {
        self.settings.per_owner = limit;
        self
    }

    /// Sets the function that returns the owner of an HTTP request: the identity that your authentication has
    /// verified, for example from a request extension. No owner can reach a session of another. By default every
    /// request belongs to [`Owner::anonymous`], and only the handle separates sessions.
    pub fn owner(mut self, of: impl Fn(&Parts) -> Owner + Send + Sync + 'static) -> Self {
        self.owner = Arc::new(of);
        self
    }

    /// Sets where a request can name its session, in order of precedence. Defaults to [`NameSource::DEFAULT`].
    /// Argument, `_meta` and header must agree, in any order.
    pub fn name_sources(mut self, name_sources: impl IntoIterator<Item = NameSource>) -> Self {
        self.name_sources = name_sources.into_iter().collect();
        self
    }

    /// Sets the attributes of the cookie. It is used if [`NameSource::Cookie`] is enabled.
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// Sets the reaction to a call that names no session. Defaults to [`MissingSession::Offer`].
    pub fn missing_session(mut self, missing_session: MissingSession) -> Self {
        self.missing_session = missing_session;
        self
    }

    /// Limits the JSON body of a request, in bytes. Defaults to 4 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Stores the events sent to legacy clients, so that a client that lost its connection can resume the stream,
    /// here or on another replica. Costs two writes per call.
    pub fn resumable(mut self) -> Self {
        self.resumable = true;
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Stores sessions in the memory of this process.
    #[must_use]
    pub fn in_memory(self) -> ServerSessions {
        let store = Arc::new(MemoryStore::new(self.clock.clone()));
        self.with_store(store, Arc::new(MemoryEventLog::new()))
    }

    /// Opens the store of a URL.
    ///
    /// # Errors
    /// Returns an error if the URL, the database or its schema is invalid.
    #[cfg(feature = "stores")]
    pub async fn open(self, url: &str) -> Result<ServerSessions, stayput_stores::StoreOpenError> {
        let database = stayput_stores::open(url).await?;
        Ok(self.with_store(database.store, database.events))
    }

    /// Stores sessions in `store` and events in `events`.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>, events: Arc<dyn EventLog>) -> ServerSessions {
        let registry = Arc::new(SessionRegistry::new(store, events, self.clock, self.settings));
        ServerSessions::new(Inner {
            registry,
            owner: self.owner,
            name_sources: self.name_sources,
            missing_session: self.missing_session,
            cookie: self.cookie,
            body_limit: self.body_limit,
            resumable: self.resumable,
            tools: RwLock::default(),
            sweeper_started: false.into(),
        })
    }
}

impl ServerSessions {
    /// Stores sessions in memory, with default options.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// Opens the store of a URL, such as `sqlite:cart.db`, `postgres://…` or `redis://…`, with default options.
    ///
    /// # Errors
    /// Returns an error if the URL, the database or its schema is invalid.
    #[cfg(feature = "stores")]
    pub async fn open(url: &str) -> Result<Self, stayput_stores::StoreOpenError> {
        Self::builder().open(url).await
    }

    /// Returns a builder with default options.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, name_sources, missing_session, cookie, .. } = self;
        let mut shown = f.debug_struct("Builder");
        shown.field("settings", settings).field("name_sources", name_sources);
        shown
            .field("missing_session", missing_session)
            .field("cookie", cookie)
            .finish_non_exhaustive()
    }
}
