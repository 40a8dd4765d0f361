//! The live sessions of rmcp, ended when nobody is there any more, and not while somebody is.

mod in_flight;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
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
use stayput_core::{BuildQuick, Owner};
use tokio::time::Instant;

use self::in_flight::{InFlight, InFlightGuard};
use super::event_log::{EventLog, ReceiverStream};
use crate::{ServerSessions, request::scope};

/// How long rmcp keeps what it has of a client in memory while nobody speaks to it. Whoever comes later is
/// found in the store.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// rmcp's local sessions with what they lack: whose they are, events that are kept in the store under ids nobody
/// else can use, and an end that spares calls in flight and open streams. See [`ServerSessions::session_manager`].
pub struct HttpSessionManager {
    sessions: ServerSessions,
    /// By what they are called here: rmcp makes these ids, and nobody else.
    local_sessions: Mutex<HashMap<SessionId, Arc<LocalSession>, BuildQuick>>,
    idle_timeout: Duration,
}

impl ServerSessions {
    /// What rmcp manages the sessions of its clients with, for a `StreamableHttpService` that is put together by
    /// hand. [`ServerSessions::http_service`] has it.
    #[must_use]
    pub fn session_manager(&self) -> Arc<HttpSessionManager> {
        self.session_manager_with(IDLE_TIMEOUT)
    }

    /// The same, where rmcp forgets a client that has been idle for so long.
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

/// One live session of rmcp. It has a manager of its own, because that is the only way to tell its events from
/// those of others.
struct LocalSession {
    inner: LocalSessionManager,
    /// Its only session, so that it is not looked for again.
    handle: LocalSessionHandle,
    last_used: Mutex<Instant>,
    /// One for each open stream, beside this.
    open_streams: Arc<()>,
    in_flight: Arc<InFlight>,
}

/// What manages one session, and the log of its events, if it has one.
fn new_local_manager(sessions: &ServerSessions) -> (LocalSessionManager, Option<Arc<EventLog>>) {
    let mut inner = LocalSessionManager::default();
    // It would end calls that run longer.
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
        *lock(&self.last_used) = Instant::now();
    }

    /// A stream of its own that somebody reads.
    fn track_stream<S>(&self, stream: S) -> OpenStream<S> {
        self.touch();
        OpenStream { stream, _counted: self.open_streams.clone() }
    }

    /// Whether nobody is inside, and nobody last_used it for long. Who is inside uses it all the time.
    fn is_idle(&self, idle_timeout: Duration) -> bool {
        if Arc::strong_count(&self.open_streams) > 1 || !self.in_flight.is_empty() {
            self.touch();
        }
        lock(&self.last_used).elapsed() >= idle_timeout
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpSessionManager {
    /// Ends what nobody uses, until nobody has this any more.
    fn spawn_idle_sweeper(self: &Arc<Self>) {
        let (weak, interval): (Weak<Self>, _) = (Arc::downgrade(self), self.idle_timeout / 4);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval.max(Duration::from_millis(20))).await;
                let Some(manager) = weak.upgrade() else { return };
                for id in manager.idle_sessions() {
                    // One that cannot be closed is closed next time.
                    let _ = manager.close_session(&id).await;
                }
            }
        });
    }

    fn idle_sessions(&self) -> Vec<SessionId> {
        let local_sessions = lock(&self.local_sessions);
        let idle = local_sessions.iter().filter(|(_, session)| session.is_idle(self.idle_timeout));
        idle.map(|(id, _)| id.clone()).collect()
    }

    fn local_session(&self, id: &SessionId) -> Result<Arc<LocalSession>, LocalSessionManagerError> {
        let found = lock(&self.local_sessions).get(id).cloned();
        found.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))
    }

    /// How many clients rmcp has in memory.
    #[must_use]
    pub fn live_sessions(&self) -> usize {
        lock(&self.local_sessions).len()
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
        lock(&self.local_sessions).insert(id.clone(), Arc::new(session));
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
        Ok(lock(&self.local_sessions).contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let session = lock(&self.local_sessions).remove(id);
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
            // It gets no response.
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
        // It has no session but this one.
        let RestoreOutcome::Restored(transport) = inner.restore_session(id.clone()).await? else {
            return Ok(RestoreOutcome::NotSupported);
        };
        let session = LocalSession::new(inner, &id).await?;
        let transport =
            CountingTransport { inner: transport, in_flight: session.in_flight.clone() };
        lock(&self.local_sessions).insert(id, Arc::new(session));
        Ok(RestoreOutcome::Restored(transport))
    }

    // There is no `event_store` here: that one is for modern clients, whose call is over with its stream.
}

type BoxedStream = Pin<Box<dyn Stream<Item = ServerSseMessage> + Send + Sync>>;

/// The id under which rmcp opens a stream that has no events yet.
const FIRST_EVENT_ID: &str = "0";

/// A stream that somebody reads.
struct OpenStream<S> {
    stream: S,
    /// CountingTransport.
    _counted: Arc<()>,
}

impl<S: Stream<Item = ServerSseMessage> + Unpin> Stream for OpenStream<S> {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        Pin::new(&mut self.stream).poll_next(cx)
    }
}

/// What a session of rmcp speaks over. See [`HttpSessionManager`].
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
        // It is on its way for less time than a session may be idle.
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
