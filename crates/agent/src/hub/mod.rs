//! Hub: the configured servers, the sessions on them, and the thread that runs both.

mod builder;
mod close;
mod config_source;
mod default_session;
mod gateway;
mod generations;
mod headers;
mod servers;
mod start;
mod stderr;
mod thread;
mod trace_context;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_core::{Agent, Clock, Owner, Record, SessionId, Sessions, SystemClock, Timestamp};
use stayput_engine::Engine;
use stayput_upstream::{LinkOwner, Links};
use tokio::sync::broadcast;

use crate::{
    Error, Events,
    events::{Event, LossLog, name_of},
    handlers::Handlers,
};

pub use builder::Builder;
pub use close::CloseReport;
pub(crate) use close::HubResources;
pub(crate) use default_session::DefaultSession;
pub use default_session::DefaultSessionOptions;
use gateway::Gateway;
pub(crate) use gateway::{end_session, loss_of, session_key};
pub(crate) use generations::KnownGenerations;
pub use headers::{HeaderList, HeaderRequest, Headers};
pub(crate) use servers::HubServer;
use servers::{ServerHooks, Servers};
pub(crate) use start::open_blocking;
pub use stderr::StderrLine;
use thread::HubThread;
pub(crate) use trace_context::TraceContext;

/// Pause between two attempts of [`Hub::wait_ready`].
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The configured servers and the sessions on them. A clone is the same hub.
///
/// See the [front page](crate) for how it is used.
#[derive(Clone)]
pub struct Hub {
    pub(crate) inner: Arc<HubInner>,
    /// Agent in whose namespace session names are looked up.
    pub(crate) agent: Agent,
}

/// State that all clones of a hub share.
pub(crate) struct HubInner {
    pub(crate) id: u64,
    pub(crate) owner: Owner,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) links: Links,
    /// The same sessions and links, together with the way to close them.
    pub(crate) resources: HubResources,
    /// The same sessions and links, joined.
    pub(crate) engine: Engine,
    pub(crate) servers: Servers,
    /// Gateway that has the servers and sessions, if the hub is connected to one.
    pub(crate) gateway: Option<Gateway>,
    pub(crate) warnings: Vec<String>,
    /// Time to wait for a session that another process holds. `None` waits a little longer than the lease.
    pub(crate) takeover_timeout: Option<Duration>,
    pub(crate) handlers: Arc<Handlers>,
    /// Callbacks that each server gets.
    pub(crate) hooks: ServerHooks,
    /// Callback that returns the trace context of a caller, if there is one.
    pub(crate) trace_context: Option<TraceContext>,
    /// Losses for which an event was sent.
    pub(crate) losses: LossLog,
    pub(crate) next_branch: AtomicU64,
    /// Number of links opened so far.
    pub(crate) links_opened: AtomicU64,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) closed: AtomicBool,
    /// Last field, so that it is dropped last: the other fields release their links on this thread.
    pub(crate) thread: HubThread,
}

impl HubInner {
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// Refuses to work in a forked child: the hub's thread does not exist there, so no request would finish.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.thread.is_own_process() { Ok(()) } else { Err(Error::HubForked) }
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.closed.load(Ordering::Relaxed) { Err(Error::HubClosed) } else { Ok(()) }
    }

    pub(crate) fn send_event(&self, event: Event) {
        event.trace();
        if self.is_internal(&event) {
            return;
        }
        // Fails if there is no subscriber, which is the usual case.
        let _ = self.events.send(event);
    }

    pub(crate) fn send_ended(&self, record: &Record) {
        let session = record.id;
        self.losses.remove_session(session);
        if let Some(headers) = &self.hooks.headers {
            headers.remove_session(session);
        }
        self.send_event(Event::Ended { session, name: name_of(record) });
    }
}

impl Hub {
    /// Starts the configuration of a hub.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts the configuration of a hub over a running gateway, `http://HOST:PORT`: the same API, with the servers and
    /// sessions of the gateway. Several processes that are connected to one gateway share sessions by name; a named
    /// session goes on when this process ends. Servers are those of the gateway, by their names there.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), stayput::Error> {
    /// let hub = stayput::Hub::connect("http://127.0.0.1:7337").token("a token of the gateway").build()?;
    /// let chat = hub.session("chat-42").await?;
    /// chat.call("browser", "browser_snapshot", ()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(url: &str) -> Builder {
        Builder::connected(url)
    }

    /// Returns the same hub for the agent of this name. The agent has its own namespace of session names, and can
    /// have its own servers beside those of the hub.
    ///
    /// # Errors
    /// If the name is empty, too long or not printable.
    pub fn agent(&self, name: &str) -> Result<Self, Error> {
        Ok(Self { inner: self.inner.clone(), agent: Agent::named(name)? })
    }

    /// Builds a hub with the servers of a file, see [`Builder::config`].
    ///
    /// # Errors
    /// If the file has a mistake: the error says where, and how to correct it.
    pub fn from_config(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().config(path).build()
    }

    /// Warnings about entries of the configuration file that were ignored, as sentences.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Waits until a server can be used.
    ///
    /// # Errors
    /// The last failure of the server, if it cannot be used within `limit`.
    pub async fn wait_ready(&self, name: &str, limit: Duration) -> Result<(), Error> {
        self.inner.check_open()?;
        self.check_access(name)?;
        let server = self.server(name)?;
        let place = self.profile_place();
        let (inner, name) = (self.inner.clone(), name.to_owned());
        let waiting = async move {
            let deadline = tokio::time::Instant::now() + limit;
            loop {
                let profile =
                    tokio::time::timeout_at(deadline, inner.links.profile(&server, &place)).await;
                let failure = match profile {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(source)) => Error::ServerFailed { server: name.clone(), source },
                    Err(_) => {
                        return Err(Error::InvalidInput(format!("`{name}` is not ready yet")));
                    }
                };
                if tokio::time::Instant::now() + READY_POLL_INTERVAL >= deadline {
                    return Err(failure);
                }
                tokio::time::sleep(READY_POLL_INTERVAL).await;
            }
        };
        self.inner.thread.in_runtime(waiting).await
    }

    /// Subscribes to the events of all sessions, from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        Events(self.inner.events.subscribe())
    }

    /// Owner of the link over which a server is asked for its profile before there is a session: a session id that
    /// is used only once.
    pub(crate) fn profile_place(&self) -> LinkOwner {
        LinkOwner::new(self.inner.owner.clone(), SessionId::generate(self.inner.now()))
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("servers", &self.server_names())
            .field("links", &self.inner.links)
            .finish_non_exhaustive()
    }
}
