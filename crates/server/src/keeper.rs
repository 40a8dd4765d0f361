//! Who keeps the sessions of a server.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use stayput_core::{OpenError, Owner};

use crate::{
    Builder, Carrier, Cookie, Error, Layer, Tools, Unnamed, builder::OwnerOf, shared::Shared,
};

/// Keeps the sessions of a server: finds them, makes them, and ends them in time.
///
/// There is one for a server, however many transports it has; clones are the same one. [`Keeper::layer`] goes
/// around what serves HTTP, [`Keeper::over`] around any other transport, and [`Keeper::tools`] completes
/// the tools.
#[derive(Clone)]
pub struct Keeper(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: OwnerOf,
    pub(crate) carriers: Vec<Carrier>,
    pub(crate) unnamed: Unnamed,
    pub(crate) cookie: Cookie,
    pub(crate) body_limit: usize,
    pub(crate) resumable: bool,
    /// The tools that were mounted.
    pub(crate) tools: RwLock<HashMap<String, Noted>>,
    pub(crate) tended: AtomicBool,
}

/// What there is to know of a tool.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noted {
    /// Whether it has an argument `session_id` of its own.
    own: bool,
    /// Whether it is for clients that have a connection, and for no others.
    switch: bool,
}

impl Keeper {
    /// Keeps sessions in memory, with everything else as it is by default.
    #[must_use]
    pub fn memory() -> Self {
        Self::builder().memory()
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

    /// What goes around a service over HTTP: rmcp's `StreamableHttpService`, a router of axum, or any other.
    pub fn layer(&self) -> Layer {
        Layer::new(self.clone())
    }

    /// What goes with the tools of a server: the argument that names a session, and tools for sessions.
    pub fn tools(&self) -> Tools {
        Tools::new(self.clone())
    }

    /// Writes times of use and ends what is due, now. It happens by itself, too; a server that shuts down calls
    /// this last.
    ///
    /// # Errors
    /// What the store says.
    pub async fn sweep(&self) -> Result<(), Error> {
        let swept: Result<(), OpenError> = self.shared().sweep().await;
        Ok(swept?)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn carriers(&self) -> &[Carrier] {
        &self.0.carriers
    }

    pub(crate) fn unnamed(&self) -> Unnamed {
        self.0.unnamed
    }

    pub(crate) fn cookie(&self) -> Cookie {
        self.0.cookie
    }

    pub(crate) fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    pub(crate) fn is_resumable(&self) -> bool {
        self.0.resumable
    }

    /// Who asks.
    pub(crate) fn owner(&self, parts: &http::request::Parts) -> Owner {
        (self.0.owner)(parts)
    }

    /// Notes a tool that takes the argument, and whether it had one of that name before.
    pub(crate) fn note_tool(&self, name: &str, own: bool) {
        self.note(name, Noted { own, switch: false });
    }

    /// Notes the tool that lets a connection lead to another session.
    pub(crate) fn note_switch(&self, name: &str) {
        self.note(name, Noted { own: false, switch: true });
    }

    fn note(&self, name: &str, noted: Noted) {
        let mut tools = self.0.tools.write().unwrap_or_else(PoisonError::into_inner);
        tools.insert(name.to_owned(), noted);
    }

    fn tools_noted(&self) -> RwLockReadGuard<'_, HashMap<String, Noted>> {
        self.0.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a tool has an argument `session_id` of its own; `None` if it was not mounted.
    pub(crate) fn has_own(&self, tool: &str) -> Option<bool> {
        self.tools_noted().get(tool).map(|it| it.own)
    }

    /// Whether a tool is the one that lets a connection lead to another session.
    pub(crate) fn is_switch(&self, tool: &str) -> bool {
        self.tools_noted().get(tool).is_some_and(|it| it.switch)
    }

    /// Whether there is such a tool.
    pub(crate) fn has_switch(&self) -> bool {
        self.tools_noted().values().any(|it| it.switch)
    }

    /// Sees to it that sessions end in time, from the first that is used on.
    pub(crate) fn tend(&self) {
        if !self.0.tended.load(Ordering::Relaxed)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.0.tended.swap(true, Ordering::AcqRel)
        {
            self.0.shared.tend(&runtime);
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("carriers", &self.0.carriers).finish_non_exhaustive()
    }
}
