//! A request and its session.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use http::HeaderValue;
use stayput_core::{Agent, Handle, HandleHash, Key, Owner, SessionId, SessionOpenError};
use stayput_sync::Mutex;
use tokio::sync::OnceCell;
use tracing::Span;

use super::RequestKind;
use crate::{
    Error, MissingSession, ServerSessions,
    names::SessionRef,
    registry::{SessionGuard, TransportSession},
};

/// A request and its session. The session is opened on first use, so a request without state costs nothing.
pub(crate) struct RequestSession {
    sessions: ServerSessions,
    owner: Owner,
    info: RequestInfo,
    opened: OnceCell<SessionGuard>,
    /// Handle that was minted for this request.
    minted: OnceLock<Handle>,
    /// Session whose loss the response reports.
    reported_loss: Mutex<Option<SessionId>>,
    /// Span `session`. Its field `id` is set when the session is opened.
    span: Span,
}

/// Parsed request.
pub(crate) struct RequestInfo {
    /// Session that the request refers to.
    pub(crate) session_ref: SessionRef,
    /// Connection of the request, even if the request names another session.
    pub(crate) connection: Option<SessionRef>,
    pub(crate) kind: RequestKind,
    /// Whether an argument of the tool names the session, not only another source.
    pub(crate) named_by_argument: bool,
    /// `Mcp-Session-Id` of that connection. Set only if it is needed later.
    pub(crate) connection_id: Option<HeaderValue>,
    /// Whether the connection was verified recently.
    pub(crate) connection_verified: bool,
}

/// Request extension with the session, for handlers.
#[derive(Clone)]
pub(crate) struct SessionExtension(pub(crate) Arc<RequestSession>);

impl RequestSession {
    pub(crate) fn new(sessions: ServerSessions, owner: Owner, info: RequestInfo) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            owner,
            info,
            opened: OnceCell::new(),
            minted: OnceLock::new(),
            reported_loss: Mutex::default(),
            span: tracing::debug_span!("session", id = tracing::field::Empty),
        })
    }

    /// Returns the span of the session.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn sessions(&self) -> &ServerSessions {
        &self.sessions
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn session_ref(&self) -> &SessionRef {
        &self.info.session_ref
    }

    /// Returns the connection of the request.
    pub(crate) fn connection(&self) -> Option<&SessionRef> {
        self.info.connection.as_ref()
    }

    /// Returns the `Mcp-Session-Id` of that connection.
    pub(crate) fn connection_id(&self) -> Option<&HeaderValue> {
        self.info.connection_id.as_ref()
    }

    /// Returns the hash of the handle that names the connection of the request.
    pub(crate) fn connection_hash(&self) -> Option<HandleHash> {
        match self.connection() {
            Some(SessionRef::Connection(name)) => Some(*name),
            _ => None,
        }
    }

    /// Returns the hash if the connection must be verified.
    pub(crate) fn unverified_connection(&self) -> Option<HandleHash> {
        self.connection_hash().filter(|_| !self.info.connection_verified)
    }

    pub(crate) fn kind(&self) -> RequestKind {
        self.info.kind
    }

    /// Returns whether an argument of the tool names the session.
    pub(crate) fn is_named_by_argument(&self) -> bool {
        self.info.named_by_argument
    }

    fn is_tool(&self) -> bool {
        self.info.kind == RequestKind::ToolCall
    }

    /// Returns whether the request identifies a session.
    pub(crate) fn is_identified(&self) -> bool {
        !matches!(self.session_ref(), SessionRef::Missing | SessionRef::Cookie(None))
    }

    /// Returns the transport, if its session is the one that the request uses.
    fn transport_session(&self) -> Option<&Arc<TransportSession>> {
        match self.session_ref() {
            SessionRef::Transport(transport) => Some(transport),
            _ => None,
        }
    }

    /// Returns the handle that was minted for this request.
    pub(crate) fn minted_handle(&self) -> Option<&Handle> {
        self.minted.get()
    }

    /// Returns that handle if the session is open.
    pub(crate) fn open_minted_handle(&self) -> Option<&Handle> {
        self.minted.get().filter(|_| self.opened.initialized())
    }

    /// Opens the session. It is in use until the request is done.
    pub(crate) async fn session(&self) -> Result<&SessionGuard, Error> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<SessionGuard, Error> {
        self.sessions.start_sweeper();
        let guard = self.find().await?;
        self.span.record("id", tracing::field::display(guard.session().id()));
        if guard.session().record().unacknowledged_loss().is_none() {
            return Ok(guard);
        }
        let id = guard.session().id();
        if self.transport_session().is_some() {
            self.sessions.registry().acknowledge_loss(id).await?;
        } else {
            // The loss counts as acknowledged when the response was sent. Until then every request gets the error.
            *self.reported_loss.lock() = Some(id);
        }
        Err(Error::Lost { reason: "the session has ended, and its state is lost".into() })
    }

    async fn find(&self) -> Result<SessionGuard, Error> {
        let (registry, owner) = (self.sessions.registry(), &self.owner);
        let found = match self.session_ref() {
            SessionRef::Handle(handle) | SessionRef::Cookie(Some(handle)) => {
                registry.open_by_handle(owner, handle).await
            }
            SessionRef::Key(key) => registry.find_or_create(owner, &Agent::none(), key).await,
            SessionRef::Connection(name) => registry.open_connection(owner, *name).await,
            SessionRef::Transport(transport) => transport.session(registry).await,
            SessionRef::Owner => match Key::new("owner", "all") {
                Ok(key) => registry.find_or_create(owner, &Agent::none(), &key).await,
                Err(_) => Err(SessionOpenError::Unknown),
            },
            SessionRef::Invalid(invalid) => return Err(Error::InvalidName(invalid.clone())),
            SessionRef::Cookie(None) => self.mint().await,
            SessionRef::Missing => return self.open_missing().await,
        };
        Ok(found?)
    }

    async fn open_missing(&self) -> Result<SessionGuard, Error> {
        match self.sessions.missing_session() {
            MissingSession::Mint if self.is_tool() => Ok(self.mint().await?),
            MissingSession::Offer if self.is_tool() => {
                if self.minted.get().is_none() {
                    self.mint().await?;
                }
                Err(Error::MissingSession { offer: self.minted.get().cloned() })
            }
            // E29: create no session that the client could not come back to.
            _ => Err(Error::MissingSession { offer: None }),
        }
    }

    /// Creates a provisional session and a handle for it.
    async fn mint(&self) -> Result<SessionGuard, SessionOpenError> {
        let registry = self.sessions.registry();
        let created = registry.create(&self.owner, true).await?;
        let handle = registry.issue_handle(created.session()).await?;
        let _ = self.minted.set(handle);
        Ok(created)
    }

    /// Returns whether the response reports a loss.
    pub(crate) fn reports_loss(&self) -> bool {
        self.reported_loss.lock().is_some()
    }

    /// Acknowledges the reported loss, because the response was sent.
    pub(crate) fn on_response_sent(&self) {
        let reported = self.reported_loss.lock().take();
        if let Some(id) = reported
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = self.sessions.registry().clone();
            runtime.spawn(async move {
                // If this fails, the loss is reported once more.
                let _ = registry.acknowledge_loss(id).await;
            });
        }
    }
}

impl fmt::Debug for RequestSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSession").field("opened", &self.opened.get()).finish_non_exhaustive()
    }
}
