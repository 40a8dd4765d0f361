//! The sessions of a server.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use http::request::Parts;
use stayput_core::{Owner, SessionOpenError};
use stayput_identify::ArgumentRule;
use stayput_sync::RwLock;

use crate::{Cookie, Error, NameSource, registry::SessionRegistry};

/// Function that returns the owner of a request.
pub(crate) type OwnerOf = Arc<dyn Fn(&Parts) -> Owner + Send + Sync>;

/// Reaction to a tool call that needs state and names no session. Prompts and resources have no argument for a
/// handle: they always get an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingSession {
    /// The error contains a new handle to repeat the call with.
    #[default]
    Offer,
    /// The call runs in a new session, and its result contains the handle. Only for tools passed to
    /// [`SessionTools::mount`](crate::SessionTools::mount), because other results cannot be extended.
    Mint,
    /// The call fails.
    Refuse,
}

/// Sessions of a server: finds, creates and expires them.
///
/// A server has one, for all its transports; clones share the same sessions. [`ServerSessions::layer`] wraps an HTTP
/// service, [`ServerSessions::wrap_transport`] any other transport, and [`ServerSessions::session_tools`] extends the
/// tools.
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
    /// Tools passed to `mount`.
    pub(crate) tools: RwLock<HashMap<String, MountedTool>>,
    pub(crate) sweeper_started: AtomicBool,
}

/// Properties of a mounted tool.
#[derive(Clone, Copy, Default)]
pub(crate) struct MountedTool {
    /// Whether the tool has its own argument `session_id`.
    own_argument: bool,
    /// Set for the tool that switches the session of a connection.
    is_switch: bool,
}

impl ServerSessions {
    /// Writes times of last use and ends expired sessions now. A background task does this periodically; a server
    /// that shuts down calls it last.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn sweep(&self) -> Result<(), Error> {
        let result: Result<(), SessionOpenError> = self.registry().sweep().await;
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

    /// Returns the owner of a request.
    pub(crate) fn owner(&self, parts: &Parts) -> Owner {
        (self.0.owner)(parts)
    }

    /// Registers a tool with the session argument, and whether it has its own `session_id`.
    pub(crate) fn register_tool(&self, name: &str, own_argument: bool) {
        self.register(name, MountedTool { own_argument, is_switch: false });
    }

    /// Registers the tool that switches the session of a connection.
    pub(crate) fn register_switch(&self, name: &str) {
        self.register(name, MountedTool { own_argument: false, is_switch: true });
    }

    fn register(&self, name: &str, tool: MountedTool) {
        let mut tools = self.0.tools.write();
        tools.insert(name.to_owned(), tool);
    }

    fn mounted_tools(&self) -> RwLockReadGuard<'_, HashMap<String, MountedTool>> {
        self.0.tools.read()
    }

    /// Returns the rule for the argument `session_id` of a tool; `None` if the tool has its own.
    pub(crate) fn argument_rule(&self, tool: &str) -> Option<ArgumentRule> {
        match self.mounted_tools().get(tool) {
            None => Some(ArgumentRule::Unknown),
            Some(tool) => (!tool.own_argument).then_some(ArgumentRule::Owned),
        }
    }

    /// Returns whether a tool is the switch tool.
    pub(crate) fn is_switch(&self, tool: &str) -> bool {
        self.mounted_tools().get(tool).is_some_and(|it| it.is_switch)
    }

    /// Returns whether the switch tool is mounted.
    pub(crate) fn has_switch(&self) -> bool {
        self.mounted_tools().values().any(|it| it.is_switch)
    }

    /// Starts the task that ends expired sessions, on first use.
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
