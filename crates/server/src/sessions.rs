//! Who keeps the sessions of a server.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use http::request::Parts;
use stayput_core::{OpenError, Owner};

use crate::{Cookie, Error, NameSource, registry::SessionRegistry};

/// Tells who asks.
pub(crate) type OwnerOf = Arc<dyn Fn(&Parts) -> Owner + Send + Sync>;

/// What becomes of a call of a tool that wants state, and that nothing tells the session of. Prompts and
/// resources have no argument to bring a handle back with: they are always asked to name one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingSession {
    /// Its error has a handle to repeat the call with.
    #[default]
    Offer,
    /// It gets a new session at once, and its result ends with the handle. Only for tools that
    /// [`SessionTools::mount`](crate::SessionTools::mount) was given: elsewhere the handle has no way out.
    Mint,
    /// It is an error.
    Refuse,
}

/// Keeps the sessions of a server: finds them, makes them, and ends them in time.
///
/// There is one for a server, however many transports it has; clones are the same one. [`ServerSessions::layer`] goes
/// around what serves HTTP, [`ServerSessions::wrap_transport`] around any other transport, and [`ServerSessions::session_tools`] completes
/// the tools.
#[derive(Clone)]
pub struct ServerSessions(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) registry: Arc<SessionRegistry>,
    pub(crate) owner: OwnerOf,
    pub(crate) name_sources: Vec<NameSource>,
    pub(crate) missing_session: MissingSession,
    pub(crate) cookie: Cookie,
    pub(crate) body_limit: usize,
    pub(crate) resumable: bool,
    /// The tools that were mounted.
    pub(crate) tools: RwLock<HashMap<String, MountedTool>>,
    pub(crate) sweeper_started: AtomicBool,
}

/// What there is to know of a tool.
#[derive(Clone, Copy, Default)]
pub(crate) struct MountedTool {
    /// Whether it has an argument `session_id` of its own_argument.
    own_argument: bool,
    /// Whether it is for clients that have a connection, and for no others.
    is_switch: bool,
}

impl ServerSessions {
    /// Writes times of use and ends what is due, now. It happens by itself, too; a server that shuts down calls
    /// this last.
    ///
    /// # Errors
    /// What the store says.
    pub async fn sweep(&self) -> Result<(), Error> {
        let result: Result<(), OpenError> = self.registry().sweep().await;
        Ok(result?)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(crate) fn registry(&self) -> &Arc<SessionRegistry> {
        &self.0.registry
    }

    pub(crate) fn name_sources(&self) -> &[NameSource] {
        &self.0.name_sources
    }

    pub(crate) fn missing_session(&self) -> MissingSession {
        self.0.missing_session
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
    pub(crate) fn owner(&self, parts: &Parts) -> Owner {
        (self.0.owner)(parts)
    }

    /// Notes a tool that takes the argument, and whether it had one of that name before.
    pub(crate) fn register_tool(&self, name: &str, own_argument: bool) {
        self.register(name, MountedTool { own_argument, is_switch: false });
    }

    /// Notes the tool that lets a connection lead to another session.
    pub(crate) fn register_switch(&self, name: &str) {
        self.register(name, MountedTool { own_argument: false, is_switch: true });
    }

    fn register(&self, name: &str, tool: MountedTool) {
        let mut tools = self.0.tools.write().unwrap_or_else(PoisonError::into_inner);
        tools.insert(name.to_owned(), tool);
    }

    fn mounted_tools(&self) -> RwLockReadGuard<'_, HashMap<String, MountedTool>> {
        self.0.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a tool has an argument `session_id` of its own_argument; `None` if it was not mounted.
    pub(crate) fn has_own_argument(&self, tool: &str) -> Option<bool> {
        self.mounted_tools().get(tool).map(|it| it.own_argument)
    }

    /// Whether a tool is the one that lets a connection lead to another session.
    pub(crate) fn is_switch(&self, tool: &str) -> bool {
        self.mounted_tools().get(tool).is_some_and(|it| it.is_switch)
    }

    /// Whether there is such a tool.
    pub(crate) fn has_switch(&self) -> bool {
        self.mounted_tools().values().any(|it| it.is_switch)
    }

    /// Sees to it that sessions end in time, from the first that is used on.
    pub(crate) fn start_sweeper(&self) {
        if !self.0.sweeper_started.load(Ordering::Relaxed)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.0.sweeper_started.swap(true, Ordering::AcqRel)
        {
            self.0.registry.spawn_sweeper(&runtime);
        }
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSessions")
            .field("name_sources", &self.0.name_sources)
            .finish_non_exhaustive()
    }
}
