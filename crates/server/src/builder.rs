//! How a sessions is made.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use http::request::Parts;
use stayput_core::{
    Clock, Events, Expiry, MemoryEvents, MemoryStore, Owner, StateLimits, Store, SystemClock,
};

use crate::{
    Cookie, NameSource, ServerSessions,
    registry::{SessionRegistry, Settings},
    sessions::{Inner, MissingSession, OwnerOf},
};

/// What a body has at most, if nobody says otherwise: as much as rmcp takes.
const DEFAULT_BODY_LIMIT: usize = 4 << 20;

/// How sessions are to be kept. Ends with where: [`Builder::in_memory`], [`Builder::open`] or [`Builder::with_store`].
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
    /// When a session ends by itself. Defaults to 30 minutes idle and 24 hours in all.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.settings.expiry = expiry;
        self
    }

    /// The idle time of a session that was minted without being asked for, until its handle comes back. Defaults to
    /// 2 minutes.
    pub fn provisional_idle(mut self, idle: Duration) -> Self {
        self.settings.provisional = idle;
        self
    }

    /// How large the state of a session may be. Defaults to 4 MiB in 1,024 values of at most 256 KiB.
    pub fn state_limits(mut self, limits: StateLimits) -> Self {
        self.settings.state = limits;
        self
    }

    /// How many live sessions an owner may have. Defaults to 10,000; everybody who is not told apart by
    /// [`Builder::owner`] is one owner.
    pub fn max_sessions_per_owner(mut self, limit: usize) -> Self {
        self.settings.per_owner = limit;
        self
    }

    /// Tells who asks, over HTTP: the one whom your authentication has verified, for example out of an extension
    /// of the request. No session of one owner can be reached by another. By default everybody is
    /// [`Owner::anonymous`], and a handle is all that keeps sessions apart.
    pub fn owner(mut self, of: impl Fn(&Parts) -> Owner + Send + Sync + 'static) -> Self {
        self.owner = Arc::new(of);
        self
    }

    /// Where a request can name its session, the first before the second. Defaults to [`NameSource::DEFAULT`].
    /// Argument, `_meta` and header must agree, in whichever order they stand.
    pub fn name_sources(mut self, name_sources: impl IntoIterator<Item = NameSource>) -> Self {
        self.name_sources = name_sources.into_iter().collect();
        self
    }

    /// How the cookie is set, where [`NameSource::Cookie`] counts.
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// What becomes of a call that nothing tells the session of. Defaults to [`MissingSession::Offer`].
    pub fn missing_session(mut self, missing_session: MissingSession) -> Self {
        self.missing_session = missing_session;
        self
    }

    /// How many bytes of JSON a request may have. Defaults to 4 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Keeps what is said to clients that shook hands, so that one that was cut off can read on where it was, here or on
    /// another replica. Costs two writes for each of their calls.
    pub fn resumable(mut self) -> Self {
        self.resumable = true;
        self
    }

    /// Reads the time from here.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps sessions in the memory of this process.
    #[must_use]
    pub fn in_memory(self) -> ServerSessions {
        let store = Arc::new(MemoryStore::new(self.clock.clone()));
        self.with_store(store, Arc::new(MemoryEvents::new()))
    }

    /// Keeps sessions in the store that a URL names.
    ///
    /// # Errors
    /// Says what is wrong with the URL, the database or its schema.
    #[cfg(feature = "stores")]
    pub async fn open(self, url: &str) -> Result<ServerSessions, stayput_stores::OpenError> {
        let database = stayput_stores::open(url).await?;
        Ok(self.with_store(database.store, database.events))
    }

    /// Keeps sessions in a store of your own.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>, events: Arc<dyn Events>) -> ServerSessions {
        let registry = Arc::new(SessionRegistry::new(store, events, self.clock, self.settings));
        ServerSessions::new(Inner {
            registry,
            owner: self.owner,
            name_sources: self.name_sources,
            missing_session: self.missing_session,
            cookie: self.cookie,
            body_limit: self.body_limit,
            resumable: self.resumable,
            tools: HashMap::new().into(),
            sweeper_started: false.into(),
        })
    }
}

impl ServerSessions {
    /// Keeps sessions in memory, with everything else as it is by default.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// Keeps sessions in the store that a URL names, such as `sqlite:cart.db`, `postgres://…` or `redis://…`, with
    /// everything else as it is by default.
    ///
    /// # Errors
    /// Says what is wrong with the URL, the database or its schema.
    #[cfg(feature = "stores")]
    pub async fn open(url: &str) -> Result<Self, stayput_stores::OpenError> {
        Self::builder().open(url).await
    }

    /// Keeps sessions as you say.
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
