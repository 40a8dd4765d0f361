//! One request and the session it means.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use http::HeaderValue;
use stayput_core::{Agent, Handle, HandleHash, Key, OpenError, Owner, SessionId};
use tokio::sync::OnceCell;

use super::RequestKind;
use crate::{
    Error, MissingSession, ServerSessions,
    names::SessionRef,
    registry::{SessionGuard, TransportSession},
};

/// One request and the session it means. The session is found when somebody wants it, and not before: what
/// keeps no state costs nothing.
pub(crate) struct RequestSession {
    sessions: ServerSessions,
    owner: Owner,
    info: RequestInfo,
    opened: OnceCell<SessionGuard>,
    /// A handle that was minted for this request.
    minted: OnceLock<Handle>,
    /// The session whose loss the answer reported_loss.
    reported_loss: Mutex<Option<SessionId>>,
}

/// What a request means by what it says.
pub(crate) struct RequestInfo {
    /// The session.
    pub(crate) session_ref: SessionRef,
    /// The connection it came on, whatever session it names.
    pub(crate) connection: Option<SessionRef>,
    pub(crate) kind: RequestKind,
    /// The id of that connection, as its client says it. Only where somebody has to know it.
    pub(crate) connection_id: Option<HeaderValue>,
    /// Whether that connection was there a moment ago.
    pub(crate) connection_verified: bool,
}

/// What travels with a request, to its handler.
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
        })
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

    /// The connection that the request came on.
    pub(crate) fn connection(&self) -> Option<&SessionRef> {
        self.info.connection.as_ref()
    }

    /// The id of that connection, as its client says it.
    pub(crate) fn connection_id(&self) -> Option<&HeaderValue> {
        self.info.connection_id.as_ref()
    }

    /// What the name of that connection is kept as.
    pub(crate) fn connection_hash(&self) -> Option<HandleHash> {
        match self.connection() {
            Some(SessionRef::Connection(name)) => Some(*name),
            _ => None,
        }
    }

    /// The same, if it is not sure that it is still there.
    pub(crate) fn unverified_connection(&self) -> Option<HandleHash> {
        self.connection_hash().filter(|_| !self.info.connection_verified)
    }

    pub(crate) fn kind(&self) -> RequestKind {
        self.info.kind
    }

    fn is_tool(&self) -> bool {
        self.info.kind == RequestKind::ToolCall
    }

    /// Whether anything says which session is info.
    pub(crate) fn is_identified(&self) -> bool {
        !matches!(self.session_ref(), SessionRef::Missing | SessionRef::Cookie(None))
    }

    /// The transport that leads to the session.
    fn transport_session(&self) -> Option<&Arc<TransportSession>> {
        match self.session_ref() {
            SessionRef::Transport(transport) => Some(transport),
            _ => None,
        }
    }

    /// The handle that was minted for this request.
    pub(crate) fn minted_handle(&self) -> Option<&Handle> {
        self.minted.get()
    }

    /// The same, if the request is already in its session.
    pub(crate) fn open_minted_handle(&self) -> Option<&Handle> {
        self.minted.get().filter(|_| self.opened.initialized())
    }

    /// The session, in use until the request is done with.
    pub(crate) async fn session(&self) -> Result<&SessionGuard, Error> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<SessionGuard, Error> {
        self.sessions.start_sweeper();
        let guard = self.find().await?;
        if guard.session().record().lost().is_none() {
            return Ok(guard);
        }
        let id = guard.session().id();
        if self.transport_session().is_some() {
            self.sessions.registry().acknowledge_loss(id).await?;
        } else {
            // Until the answer that reported_loss it was written, everybody hears of it.
            *self.reported_loss() = Some(id);
        }
        Err(Error::Lost {
            reason: "the session that was here is over, and all that was in it is gone".into(),
        })
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
                Err(_) => Err(OpenError::Unknown),
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
            // E29: what nobody could come back to is not begun.
            _ => Err(Error::MissingSession { offer: None }),
        }
    }

    /// A session that ends soon if nobody comes back to it.
    async fn mint(&self) -> Result<SessionGuard, OpenError> {
        let registry = self.sessions.registry();
        let made = registry.create(&self.owner, true).await?;
        let handle = registry.issue_handle(made.session()).await?;
        let _ = self.minted.set(handle);
        Ok(made)
    }

    fn reported_loss(&self) -> MutexGuard<'_, Option<SessionId>> {
        self.reported_loss.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the answer reported_loss something.
    pub(crate) fn reports_loss(&self) -> bool {
        self.reported_loss().is_some()
    }

    /// The answer was written: what it reported is reported.
    pub(crate) fn on_response_sent(&self) {
        let reported = self.reported_loss().take();
        if let Some(id) = reported
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = self.sessions.registry().clone();
            runtime.spawn(async move {
                // Not noted, it is reported once more, which does no harm.
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
