//! How a keeper is made.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use http::request::Parts;
use stayput_core::{
    Clock, Events, Expiry, MemoryEvents, MemoryStore, Owner, StateLimits, Store, SystemClock,
};

use crate::{
    Carrier, Cookie, Keeper,
    keeper::Inner,
    shared::{Settings, Shared},
};

/// Tells who asks.
pub(crate) type OwnerOf = Arc<dyn Fn(&Parts) -> Owner + Send + Sync>;

/// What becomes of a call of a tool that wants state, and that nothing tells the session of. Prompts and
/// resources have no argument to bring a handle back with: they are always asked to name one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unnamed {
    /// Its error has a handle to repeat the call with.
    #[default]
    Offer,
    /// It gets a new session at once, and its result ends with the handle. Only for tools that
    /// [`Tools::mount`](crate::Tools::mount) was given: elsewhere the handle has no way out.
    Mint,
    /// It is an error.
    Refuse,
}

/// What a body has at most, if nobody says otherwise: as much as rmcp takes.
const BODY_LIMIT: usize = 4 << 20;

/// How sessions are to be kept. Ends with where: [`Builder::memory`], [`Builder::open`] or [`Builder::on`].
#[must_use]
pub struct Builder {
    settings: Settings,
    owner: OwnerOf,
    carriers: Vec<Carrier>,
    unnamed: Unnamed,
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
            carriers: Carrier::DEFAULT.to_vec(),
            unnamed: Unnamed::default(),
            cookie: Cookie::default(),
            body_limit: BODY_LIMIT,
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
    pub fn provisional(mut self, idle: Duration) -> Self {
        self.settings.provisional = idle;
        self
    }

    /// How large the state of a session may be. Defaults to 4 MiB in 1,024 values of at most 256 KiB.
    pub fn limits(mut self, limits: StateLimits) -> Self {
        self.settings.state = limits;
        self
    }

    /// How many live sessions an owner may have. Defaults to 10,000; everybody who is not told apart by
    /// [`Builder::owner`] is one owner.
    pub fn sessions_per_owner(mut self, limit: usize) -> Self {
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

    /// Where a request can name its session, the first before the second. Defaults to [`Carrier::DEFAULT`].
    /// Argument, `_meta` and header must agree, in whichever order they stand.
    pub fn carriers(mut self, carriers: impl IntoIterator<Item = Carrier>) -> Self {
        self.carriers = carriers.into_iter().collect();
        self
    }

    /// How the cookie is set, where [`Carrier::Cookie`] counts.
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// What becomes of a call that nothing tells the session of. Defaults to [`Unnamed::Offer`].
    pub fn unnamed(mut self, unnamed: Unnamed) -> Self {
        self.unnamed = unnamed;
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
    pub fn memory(self) -> Keeper {
        let store = Arc::new(MemoryStore::new(self.clock.clone()));
        self.on(store, Arc::new(MemoryEvents::new()))
    }

    /// Keeps sessions in the store that a URL names.
    ///
    /// # Errors
    /// Says what is wrong with the URL, the database or its schema.
    #[cfg(feature = "stores")]
    pub async fn open(self, url: &str) -> Result<Keeper, stayput_stores::OpenError> {
        let database = stayput_stores::open(url).await?;
        Ok(self.on(database.store, database.events))
    }

    /// Keeps sessions in a store of your own.
    #[must_use]
    pub fn on(self, store: Arc<dyn Store>, events: Arc<dyn Events>) -> Keeper {
        let shared = Arc::new(Shared::new(store, events, self.clock, self.settings));
        Keeper::new(Inner {
            shared,
            owner: self.owner,
            carriers: self.carriers,
            unnamed: self.unnamed,
            cookie: self.cookie,
            body_limit: self.body_limit,
            resumable: self.resumable,
            tools: HashMap::new().into(),
            tended: false.into(),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, carriers, unnamed, cookie, .. } = self;
        let mut shown = f.debug_struct("Builder");
        shown.field("settings", settings).field("carriers", carriers);
        shown.field("unnamed", unnamed).field("cookie", cookie).finish_non_exhaustive()
    }
}
