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
use tokio::{sync::mpsc::Receiver, time::Instant};

use self::in_flight::{Begun, InFlight};
use crate::{Keeper, events::Log, scope};

/// How long rmcp keeps what it has of a client in memory while nobody speaks to it. Whoever comes later is
/// found in the store.
const LINGER: Duration = Duration::from_secs(5 * 60);

/// rmcp's local sessions with what they lack: whose they are, events that are kept in the store under ids nobody
/// else can use, and an end that spares calls in flight and open streams. See [`Keeper::manager`].
pub struct Manager {
    keeper: Keeper,
    /// By what they are called here: rmcp makes these ids, and nobody else.
    workers: Mutex<HashMap<SessionId, Arc<Worker>, BuildQuick>>,
    linger: Duration,
}

impl Keeper {
    /// What rmcp manages the sessions of its clients with, for a `StreamableHttpService` that is put together by
    /// hand. [`Keeper::http`] has it.
    #[must_use]
    pub fn manager(&self) -> Arc<Manager> {
        self.manager_for(LINGER)
    }

    /// The same, where rmcp forgets a client that has been silent for so long.
    #[must_use]
    pub fn manager_for(&self, linger: Duration) -> Arc<Manager> {
        let manager = Manager { keeper: self.clone(), workers: Mutex::default(), linger };
        let manager = Arc::new(manager);
        manager.tend();
        manager
    }
}

/// One live session of rmcp. It has a manager of its own, because that is the only way to tell its events from
/// those of others.
struct Worker {
    inner: LocalSessionManager,
    /// Its only session, so that it is not looked for again.
    handle: LocalSessionHandle,
    used: Mutex<Instant>,
    /// One for each open stream, beside this.
    open: Arc<()>,
    in_flight: Arc<InFlight>,
}

/// What manages one session, and the log of its events, if it has one.
fn local(keeper: &Keeper) -> (LocalSessionManager, Option<Arc<Log>>) {
    let mut inner = LocalSessionManager::default();
    // It would end calls that run longer.
    inner.session_config.keep_alive = None;
    let owner = scope::current().map_or_else(Owner::anonymous, |it| it.owner().clone());
    let log = keeper.is_resumable().then(|| Arc::new(Log::new(keeper.clone(), owner)));
    if let Some(log) = log.clone() {
        inner = inner.with_event_store(log);
    }
    (inner, log)
}

impl Worker {
    async fn new(
        inner: LocalSessionManager,
        id: &SessionId,
    ) -> Result<Self, LocalSessionManagerError> {
        let handle = inner.sessions.read().await.get(id).cloned();
        let handle = handle.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let used = Mutex::new(Instant::now());
        Ok(Self { inner, handle, used, open: Arc::default(), in_flight: Arc::default() })
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// A stream of its own that somebody reads.
    fn read<S>(&self, stream: S) -> Open<S> {
        self.touch();
        Open { stream, _open: self.open.clone() }
    }

    /// Whether nobody is inside, and nobody used it for long. Who is inside uses it all the time.
    fn is_silent(&self, linger: Duration) -> bool {
        if Arc::strong_count(&self.open) > 1 || !self.in_flight.is_empty() {
            self.touch();
        }
        lock(&self.used).elapsed() >= linger
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Manager {
    /// Ends what nobody uses, until nobody has this any more.
    fn tend(self: &Arc<Self>) {
        let (weak, period): (Weak<Self>, _) = (Arc::downgrade(self), self.linger / 4);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(period.max(Duration::from_millis(20))).await;
                let Some(manager) = weak.upgrade() else { return };
                for id in manager.silent() {
                    // One that cannot be closed is closed next time.
                    let _ = manager.close_session(&id).await;
                }
            }
        });
    }

    fn silent(&self) -> Vec<SessionId> {
        let workers = lock(&self.workers);
        let silent = workers.iter().filter(|(_, worker)| worker.is_silent(self.linger));
        silent.map(|(id, _)| id.clone()).collect()
    }

    fn worker(&self, id: &SessionId) -> Result<Arc<Worker>, LocalSessionManagerError> {
        let found = lock(&self.workers).get(id).cloned();
        found.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))
    }

    /// How many clients rmcp has in memory.
    #[must_use]
    pub fn live(&self) -> usize {
        lock(&self.workers).len()
    }
}

type Said = Result<ServerJsonRpcMessage, LocalSessionManagerError>;

impl SessionManager for Manager {
    type Error = LocalSessionManagerError;
    type Transport = Counted;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (inner, log) = local(&self.keeper);
        let (id, transport) = inner.create_session().await?;
        if let Some(log) = log {
            log.name(&id);
        }
        let worker = Worker::new(inner, &id).await?;
        let transport = Counted { inner: transport, in_flight: worker.in_flight.clone() };
        lock(&self.workers).insert(id.clone(), Arc::new(worker));
        Ok((id, transport))
    }

    async fn initialize_session(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Said {
        self.worker(id)?.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(lock(&self.workers).contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let worker = lock(&self.workers).remove(id);
        match worker {
            Some(worker) => worker.inner.close_session(id).await,
            None => Ok(()),
        }
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let worker = self.worker(id)?;
        let channel = worker.handle.establish_request_wise_channel().await?;
        let begun = Begun::of(&worker.in_flight, &message);
        worker.handle.push_message(message, channel.http_request_id).await?;
        begun.arrived();
        Ok(worker.read(Received(channel.inner)))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let worker = self.worker(id)?;
        worker.touch();
        if let ClientJsonRpcMessage::Notification(it) = &message
            && let ClientNotification::CancelledNotification(it) = &it.notification
            && let Some(id) = &it.params.request_id
        {
            // It gets no answer.
            worker.in_flight.end(id);
        }
        Ok(worker.handle.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let worker = self.worker(id)?;
        let channel = worker.handle.establish_common_channel().await?;
        Ok(worker.read(Received(channel.inner)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let worker = self.worker(id)?;
        let stream: Streamed = if self.keeper.is_resumable() && last_event_id == FIRST {
            Box::pin(Received(worker.handle.establish_common_channel().await?.inner))
        } else {
            Box::pin(worker.inner.resume(id, last_event_id).await?)
        };
        Ok(worker.read(stream))
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        let (inner, log) = local(&self.keeper);
        if let Some(log) = log {
            log.name(&id);
        }
        // It has no session but this one.
        let RestoreOutcome::Restored(transport) = inner.restore_session(id.clone()).await? else {
            return Ok(RestoreOutcome::NotSupported);
        };
        let worker = Worker::new(inner, &id).await?;
        let transport = Counted { inner: transport, in_flight: worker.in_flight.clone() };
        lock(&self.workers).insert(id, Arc::new(worker));
        Ok(RestoreOutcome::Restored(transport))
    }

    // There is no `event_store` here: that one is for modern clients, whose call is over with its stream.
}

type Streamed = Pin<Box<dyn Stream<Item = ServerSseMessage> + Send + Sync>>;

/// The id under which rmcp opens a stream that has no events yet.
const FIRST: &str = "0";

/// What one channel of a session says.
struct Received(Receiver<ServerSseMessage>);

impl Stream for Received {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        self.0.poll_recv(cx)
    }
}

/// A stream that somebody reads.
struct Open<S> {
    stream: S,
    /// Counted.
    _open: Arc<()>,
}

impl<S: Stream<Item = ServerSseMessage> + Unpin> Stream for Open<S> {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        Pin::new(&mut self.stream).poll_next(cx)
    }
}

/// What a session of rmcp speaks over. See [`Manager`].
pub struct Counted {
    inner: WorkerTransport<LocalSessionWorker>,
    in_flight: Arc<InFlight>,
}

impl Transport<RoleServer> for Counted {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // It is on its way for less time than a session may be silent.
        match &item {
            ServerJsonRpcMessage::Response(answer) => self.in_flight.end(&answer.id),
            ServerJsonRpcMessage::Error(answer) => {
                answer.id.iter().for_each(|id| self.in_flight.end(id));
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

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted({} in flight)", self.in_flight.len())
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manager({} live)", self.live())
    }
}
