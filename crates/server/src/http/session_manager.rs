//! Session manager for rmcp. It ends idle sessions, but none with a call in flight or an open stream.

mod in_flight;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientNotification, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{
        Transport, WorkerTransport,
        streamable_http_server::session::{
            RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
            local::{
                LocalSessionHandle, LocalSessionManager, LocalSessionManagerError,
                LocalSessionWorker,
            },
        },
    },
};
use rustc_hash::FxBuildHasher;
use stayput_core::Owner;
use tokio::time::Instant;

use self::in_flight::{InFlight, InFlightGuard};
use super::event_log::{EventLog, ReceiverStream};
use crate::{ServerSessions, request::scope};
use stayput_sync::Mutex;

/// Time after which an idle client is dropped from memory. A client that returns later is restored from the store.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Session manager for rmcp's HTTP service. Beyond rmcp's local sessions it knows owners, stores events under ids
/// that only their client can use, and keeps sessions with calls in flight or open streams. See
/// [`ServerSessions::session_manager`].
pub struct HttpSessionManager {
    sessions: ServerSessions,
    /// Sessions by `Mcp-Session-Id`. rmcp makes the ids, so a fast hasher is safe.
    local_sessions: Mutex<HashMap<SessionId, Arc<LocalSession>, FxBuildHasher>>,
    idle_timeout: Duration,
}

impl ServerSessions {
    /// Returns the session manager for a `StreamableHttpService` that you assemble yourself.
    /// [`ServerSessions::http_service`] includes it.
    #[must_use]
    pub fn session_manager(&self) -> Arc<HttpSessionManager> {
        self.session_manager_with(IDLE_TIMEOUT)
    }

    /// Does the same with a different idle timeout.
    #[must_use]
    pub fn session_manager_with(&self, idle_timeout: Duration) -> Arc<HttpSessionManager> {
        let manager = HttpSessionManager {
            sessions: self.clone(),
            local_sessions: Mutex::default(),
            idle_timeout,
        };
        let manager = Arc::new(manager);
        manager.spawn_idle_sweeper();
        manager
    }
}

/// One live session of rmcp. It has its own manager, because an event store cannot tell the sessions of one manager
/// apart.
struct LocalSession {
    inner: LocalSessionManager,
    /// Handle of the only session, to save the lookup.
    handle: LocalSessionHandle,
    last_used: Mutex<Instant>,
    /// Number of open streams.
    open_streams: Arc<AtomicUsize>,
    in_flight: Arc<InFlight>,
}

/// Creates the manager of one session, with an event log if streams are resumable.
fn new_local_manager(sessions: &ServerSessions) -> (LocalSessionManager, Option<Arc<EventLog>>) {
    let mut inner = LocalSessionManager::default();
    // rmcp's keep-alive would end calls that run longer.
    inner.session_config.keep_alive = None;
    let owner = scope::current().map_or_else(Owner::anonymous, |it| it.owner().clone());
    let log = sessions.is_resumable().then(|| Arc::new(EventLog::new(sessions.clone(), owner)));
    if let Some(log) = log.clone() {
        inner = inner.with_event_store(log);
    }
    (inner, log)
}

impl LocalSession {
    async fn new(
        inner: LocalSessionManager,
        id: &SessionId,
    ) -> Result<Self, LocalSessionManagerError> {
        let handle = inner.sessions.read().await.get(id).cloned();
        let handle = handle.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let last_used = Mutex::new(Instant::now());
        Ok(Self {
            inner,
            handle,
            last_used,
            open_streams: Arc::default(),
            in_flight: Arc::default(),
        })
    }

    fn touch(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// Wraps a stream, so that it counts as open until it is dropped.
    fn track_stream<S>(&self, stream: S) -> OpenStream<S> {
        self.touch();
        self.open_streams.fetch_add(1, Ordering::AcqRel);
        OpenStream { stream, open_streams: self.open_streams.clone() }
    }

    /// Returns whether the session had no open stream and no call in flight for `idle_timeout`.
    fn is_idle(&self, idle_timeout: Duration) -> bool {
        if self.open_streams.load(Ordering::Acquire) > 0 || !self.in_flight.is_empty() {
            self.touch();
        }
        self.last_used.lock().elapsed() >= idle_timeout
    }
}

impl HttpSessionManager {
    /// Spawns the task that closes idle sessions. It ends when the manager is dropped.
    fn spawn_idle_sweeper(self: &Arc<Self>) {
        let (weak, interval): (Weak<Self>, _) = (Arc::downgrade(self), self.idle_timeout / 4);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval.max(Duration::from_millis(20))).await;
                let Some(manager) = weak.upgrade() else { return };
                for id in manager.idle_sessions() {
                    // If closing fails, the next round tries again.
                    let _ = manager.close_session(&id).await;
                }
            }
        });
    }

    fn idle_sessions(&self) -> Vec<SessionId> {
        let local_sessions = self.local_sessions.lock();
        let idle = local_sessions.iter().filter(|(_, session)| session.is_idle(self.idle_timeout));
        idle.map(|(id, _)| id.clone()).collect()
    }

    fn local_session(&self, id: &SessionId) -> Result<Arc<LocalSession>, LocalSessionManagerError> {
        let found = self.local_sessions.lock().get(id).cloned();
        found.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))
    }

    /// Returns the number of clients in memory.
    #[must_use]
    pub fn live_sessions(&self) -> usize {
        self.local_sessions.lock().len()
    }
}

type InitializeResult = Result<ServerJsonRpcMessage, LocalSessionManagerError>;

impl SessionManager for HttpSessionManager {
    type Error = LocalSessionManagerError;
    type Transport = CountingTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (inner, log) = new_local_manager(&self.sessions);
        let (id, transport) = inner.create_session().await?;
        if let Some(log) = log {
            log.set_client(&id);
        }
        let session = LocalSession::new(inner, &id).await?;
        let transport =
            CountingTransport { inner: transport, in_flight: session.in_flight.clone() };
        self.local_sessions.lock().insert(id.clone(), Arc::new(session));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> InitializeResult {
        self.local_session(id)?.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.local_sessions.lock().contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let session = self.local_sessions.lock().remove(id);
        match session {
            Some(session) => session.inner.close_session(id).await,
            None => Ok(()),
        }
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.local_session(id)?;
        let channel = session.handle.establish_request_wise_channel().await?;
        let guard = InFlightGuard::new(&session.in_flight, &message);
        session.handle.push_message(message, channel.http_request_id).await?;
        guard.disarm();
        Ok(session.track_stream(ReceiverStream(channel.inner)))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let session = self.local_session(id)?;
        session.touch();
        if let ClientJsonRpcMessage::Notification(it) = &message
            && let ClientNotification::CancelledNotification(it) = &it.notification
            && let Some(id) = &it.params.request_id
        {
            // A cancelled request gets no response.
            session.in_flight.remove(id);
        }
        Ok(session.handle.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.local_session(id)?;
        let channel = session.handle.establish_common_channel().await?;
        Ok(session.track_stream(ReceiverStream(channel.inner)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.local_session(id)?;
        let stream: BoxedStream = if self.sessions.is_resumable() && last_event_id == FIRST_EVENT_ID
        {
            Box::pin(ReceiverStream(session.handle.establish_common_channel().await?.inner))
        } else {
            Box::pin(session.inner.resume(id, last_event_id).await?)
        };
        Ok(session.track_stream(stream))
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        let (inner, log) = new_local_manager(&self.sessions);
        if let Some(log) = log {
            log.set_client(&id);
        }
        // The new manager has no other session.
        let RestoreOutcome::Restored(transport) = inner.restore_session(id.clone()).await? else {
            return Ok(RestoreOutcome::NotSupported);
        };
        let session = LocalSession::new(inner, &id).await?;
        let transport =
            CountingTransport { inner: transport, in_flight: session.in_flight.clone() };
        self.local_sessions.lock().insert(id, Arc::new(session));
        Ok(RestoreOutcome::Restored(transport))
    }

    // No `event_store`: rmcp would use it for modern clients, whose call ends with its stream.
}

type BoxedStream = Pin<Box<dyn Stream<Item = ServerSseMessage> + Send + Sync>>;

/// Event id with which rmcp opens a stream without events.
const FIRST_EVENT_ID: &str = "0";

/// Stream that counts as open until it is dropped.
struct OpenStream<S> {
    stream: S,
    /// Same counter as `LocalSession::open_streams`.
    open_streams: Arc<AtomicUsize>,
}

impl<S> Drop for OpenStream<S> {
    fn drop(&mut self) {
        self.open_streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: Stream<Item = ServerSseMessage> + Unpin> Stream for OpenStream<S> {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        Pin::new(&mut self.stream).poll_next(cx)
    }
}

/// Transport of one rmcp session. It tracks the requests in flight. See [`HttpSessionManager`].
pub struct CountingTransport {
    inner: WorkerTransport<LocalSessionWorker>,
    in_flight: Arc<InFlight>,
}

impl Transport<RoleServer> for CountingTransport {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // Sending takes less time than the idle timeout, so the request may end here.
        match &item {
            ServerJsonRpcMessage::Response(response) => self.in_flight.remove(&response.id),
            ServerJsonRpcMessage::Error(response) => {
                response.id.iter().for_each(|id| self.in_flight.remove(id));
            }
            _ => {}
        }
        self.inner.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.inner.receive()
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

impl fmt::Debug for CountingTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountingTransport({} in flight)", self.in_flight.len())
    }
}

impl fmt::Debug for HttpSessionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpSessionManager({} live)", self.live_sessions())
    }
}
