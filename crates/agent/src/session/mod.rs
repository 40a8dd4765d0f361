//! Sessions of a hub: opening, scopes, runs, links, tickets.

mod access;
mod guard;
mod id_keeper;
mod link;
mod list_cache;
mod listen;
mod open;
mod run;
mod run_stream;
mod scope;
mod sub_agent;
mod ticket;

use std::{fmt, sync::Arc, time::Duration};

use stayput_core::{Expiry, Generation, Record, SessionId, Timestamp, scope::InSession as _};
use stayput_upstream::{LinkOwner, LinkState, LossReason};

use crate::{Error, Handlers, Headers, Hub};

pub(crate) use guard::SessionGuard;
pub use id_keeper::{KeptLink, SessionIdKeeper};
pub(crate) use link::SessionLink;
pub use list_cache::ListKind;
pub(crate) use list_cache::{ListVersion, Pages};
pub use listen::{Notifications, ServerNotification};
pub(crate) use run::RunRoot;
pub use run_stream::RunStream;
pub use scope::scoped;
pub(crate) use scope::{TaskContext, TaskScope, current_of_hub};
pub(crate) use sub_agent::{Access, sub_agent_scope};
pub use sub_agent::{SubAgent, SubAgentFuture};
pub use ticket::Ticket;

/// Handle of a session. A clone is the same session.
///
/// Dropping it releases a named session without ending it: the next request of a chat finds it again. A session from
/// [`Hub::ephemeral`] ends with the last clone.
#[derive(Clone)]
pub struct Session {
    hub: Hub,
    pub(crate) guard: Arc<SessionGuard>,
}

/// Details of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Id, which is not a secret.
    pub id: SessionId,
    /// Name, if it has one.
    pub name: Option<String>,
    /// Agent in whose namespace the name is; empty for the hub itself.
    pub agent: String,
    /// Time at which it was created.
    pub created: Timestamp,
    /// Time at which its last call ended.
    pub last_used: Timestamp,
    /// Time at which it expires if it is not used again.
    pub expires: Option<Timestamp>,
    /// Highest generation of all its links so far.
    pub generation: Generation,
}

impl SessionInfo {
    pub(crate) fn new(record: &Record, last_used: Timestamp) -> Self {
        Self {
            id: record.id,
            name: record.key.as_ref().map(|key| key.value().to_owned()),
            agent: record.agent.as_str().to_owned(),
            created: record.created,
            last_used,
            expires: record.expiry.deadline(record.created, last_used),
            generation: record.generation,
        }
    }
}

/// State of the link between a session and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionStatus {
    /// There is no link. The next call opens one.
    Unlinked,
    /// The link is being opened.
    Opening,
    /// The link is open.
    Live {
        /// Generation of the link.
        generation: Generation,
        /// Number of calls in flight.
        in_flight: usize,
    },
    /// The link is closed. The next call fails with the loss, unless the link was only released; the call after it
    /// opens a new link.
    Closed {
        /// Reason in one word, see [`StateLost::reason`](crate::StateLost::reason).
        reason: &'static str,
    },
    /// The server failed, and is not started again before a delay is over.
    BackingOff {
        /// Remaining delay.
        retry_after: Duration,
    },
}

impl Session {
    pub(crate) fn new(hub: &Hub, guard: Arc<SessionGuard>) -> Self {
        Self { hub: hub.clone(), guard }
    }

    /// Id of the session, for logs. It is not a secret, and gives no access.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.guard.id
    }

    /// Hub of the session.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Runs a future in this session: its calls that name no session belong to this one. Afterwards the enclosing
    /// scope is current again.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        future.in_session(TaskScope::new(self.guard.clone()).into_scope()).await
    }

    /// Sets the handlers of this session. The hub's handlers answer what these do not. They apply to this value and
    /// its clones; a server that is already linked knows only the capabilities that were declared at its handshake.
    #[must_use]
    pub fn with_handlers(self, handlers: Handlers) -> Self {
        self.guard.set_handlers(handlers);
        self
    }

    /// Keeps the ids of this session's sessions on HTTP servers with `keeper`, too. It applies to this value and its clones,
    /// and to links that are opened from now on. [`Session::end`] clears them.
    #[must_use]
    pub fn with_id_keeper(self, keeper: Arc<dyn SessionIdKeeper>) -> Self {
        self.guard.set_id_keeper(keeper);
        self
    }

    /// Sets the headers of this session's requests to HTTP servers, until the session ends. They override those of the
    /// agent and of the hub. Call it again with a new token: the session goes on.
    ///
    /// # Errors
    /// The same as for [`Hub::set_headers`].
    pub fn set_headers(&self, headers: Headers) -> Result<(), Error> {
        self.hub.set_session_headers(self.guard.id, headers)
    }

    /// Opens the link to a server ahead of the first call.
    ///
    /// # Errors
    /// If the server cannot be used, or the session was ended.
    pub async fn bind(&self, server: &str) -> Result<&Self, Error> {
        let scope = self.hub.scope_of(self.guard.clone())?;
        let hub = self.hub.clone();
        let binding =
            async { SessionLink::new(&hub, &scope, server).await?.open().await.map(drop) };
        self.hub.inner.thread.in_runtime(binding).await?;
        Ok(self)
    }

    /// Returns the details of the session.
    ///
    /// # Errors
    /// If it was ended.
    pub async fn info(&self) -> Result<SessionInfo, Error> {
        let session = self.hub.inner.thread.in_runtime(self.guard.acquire()).await?;
        Ok(SessionInfo::new(&session.record(), session.session().last_used()))
    }

    /// Names of the servers to which it has a link, or is opening one.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        let linked = |server: &String| {
            matches!(self.status(server), Ok(SessionStatus::Live { .. } | SessionStatus::Opening))
        };
        self.hub.server_names().into_iter().filter(linked).collect()
    }

    /// Returns the state of the link to a server.
    ///
    /// # Errors
    /// If there is no such server, or it is denied to the sub-agent.
    pub fn status(&self, server: &str) -> Result<SessionStatus, Error> {
        let place = self.place(server)?;
        let server = self.hub.server(server)?;
        let inner = &self.hub.inner;
        Ok(match inner.links.state(&server, &place) {
            LinkState::Opening => SessionStatus::Opening,
            LinkState::Live { generation, in_flight } => {
                SessionStatus::Live { generation, in_flight }
            }
            LinkState::Over(loss) => SessionStatus::Closed {
                reason: loss.map_or("ended", |loss| loss.reason().as_str()),
            },
            LinkState::BackingOff(retry_after) => SessionStatus::BackingOff { retry_after },
            _ => SessionStatus::Unlinked,
        })
    }

    /// Owner of the link to a server that the current task uses.
    fn place(&self, server: &str) -> Result<LinkOwner, Error> {
        let scope = self.hub.scope_of(self.guard.clone())?;
        let branch = scope.rules.branch(server, &scope.guard, &scope.generations)?;
        Ok(LinkOwner::new(self.hub.inner.owner.clone(), self.guard.id).branch(branch))
    }

    /// Closes the link to a server. The server starts again with a fresh state, on the next generation.
    ///
    /// # Errors
    /// If there is no such server, or it is denied to the sub-agent.
    pub async fn restart(&self, server: &str) -> Result<(), Error> {
        self.hub.inner.check_process()?;
        let place = self.place(server)?;
        let server = self.hub.server(server)?;
        let links = self.hub.inner.links.clone();
        let restart = async { links.restart(&server, &place, LossReason::Restarted).await };
        self.hub.inner.thread.in_runtime(restart).await;
        Ok(())
    }

    /// Closes the links to all servers, see [`Session::restart`].
    ///
    /// # Errors
    /// If a server is removed at the same time.
    pub async fn restart_all(&self) -> Result<(), Error> {
        for server in self.servers() {
            self.restart(&server).await?;
        }
        Ok(())
    }

    /// Sets the time without use after which the session expires.
    ///
    /// # Errors
    /// If it was ended.
    pub async fn extend(&self, idle: Duration) -> Result<(), Error> {
        let inner = &self.hub.inner;
        let extending = async {
            let session = self.guard.acquire().await?;
            let expiry = Expiry { idle: Some(idle), ..session.record().expiry };
            Ok(inner.sessions.set_expiry(session.session(), expiry).await?)
        };
        inner.thread.in_runtime(extending).await
    }

    /// Ends the session and its links, and waits until all are closed. Further use is an error.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn end(&self) -> Result<(), Error> {
        self.guard.end().await
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.guard.id)
    }
}
