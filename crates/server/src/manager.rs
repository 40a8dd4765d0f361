//! The live sessions of rmcp, ended when nobody is there any more, and not while somebody is.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{
        Transport, WorkerTransport,
        streamable_http_server::session::{
            RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
            local::{LocalSessionManager, LocalSessionManagerError, LocalSessionWorker},
        },
    },
};
use stayput_core::Owner;
use tokio::time::Instant;

use crate::{Keeper, events::Log, visit::Visit};

/// How long rmcp keeps what it has of a client in memory while nobody speaks to it. Whoever comes later is
/// found in the store.
const LINGER: Duration = Duration::from_secs(5 * 60);

/// rmcp's local sessions with what they lack: whose they are, events that are kept in the store under ids nobody
/// else can use, and an end that spares calls in flight and open streams. See [`Keeper::manager`].
pub struct Manager {
    keeper: Keeper,
    workers: Mutex<HashMap<SessionId, Arc<Worker>>>,
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
    used: Mutex<Instant>,
    /// One for each open stream, beside this.
    open: Arc<()>,
    in_flight: InFlight,
}

impl Worker {
    fn new(keeper: &Keeper) -> (Self, Option<Arc<Log>>) {
        let mut inner = LocalSessionManager::default();
        // It would end calls that run longer.
        inner.session_config.keep_alive = None;
        let owner = Visit::current().map_or_else(Owner::anonymous, |it| it.owner().clone());
        let log = keeper.is_resumable().then(|| Arc::new(Log::new(keeper.clone(), owner)));
        if let Some(log) = log.clone() {
            inner = inner.with_event_store(log);
        }
        let used = Mutex::new(Instant::now());
        (Self { inner, used, open: Arc::default(), in_flight: InFlight::default() }, log)
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// A stream of its own that somebody reads.
    fn read(&self, stream: Streamed) -> Open {
        self.touch();
        Open { stream, _open: self.open.clone() }
    }

    /// Whether nobody is inside, and nobody used it for long. Who is inside uses it all the time.
    fn is_silent(&self, linger: Duration) -> bool {
        if Arc::strong_count(&self.open) > 1 || !lock(&self.in_flight).is_empty() {
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
        let (worker, log) = Worker::new(&self.keeper);
        let (id, transport) = worker.inner.create_session().await?;
        if let Some(log) = log {
            log.name(&id);
        }
        let transport = Counted::new(transport, &worker.in_flight);
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
        let stream = worker.inner.create_stream(id, message).await?;
        Ok(worker.read(Box::pin(stream)))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let worker = self.worker(id)?;
        worker.touch();
        worker.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let worker = self.worker(id)?;
        let stream = worker.inner.create_standalone_stream(id).await?;
        Ok(worker.read(Box::pin(stream)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let worker = self.worker(id)?;
        let stream: Streamed = if self.keeper.is_resumable() && last_event_id == FIRST {
            Box::pin(worker.inner.create_standalone_stream(id).await?)
        } else {
            Box::pin(worker.inner.resume(id, last_event_id).await?)
        };
        Ok(worker.read(stream))
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        let (worker, log) = Worker::new(&self.keeper);
        if let Some(log) = log {
            log.name(&id);
        }
        let transport = match worker.inner.restore_session(id.clone()).await? {
            RestoreOutcome::Restored(transport) => Counted::new(transport, &worker.in_flight),
            // It has no session but this one.
            _ => return Ok(RestoreOutcome::NotSupported),
        };
        lock(&self.workers).insert(id, Arc::new(worker));
        Ok(RestoreOutcome::Restored(transport))
    }

    // There is no `event_store` here: that one is for modern clients, whose call is over with its stream.
}

type Streamed = Pin<Box<dyn Stream<Item = ServerSseMessage> + Send + Sync>>;

/// The id under which rmcp opens a stream that has no events yet.
const FIRST: &str = "0";

/// A stream that somebody reads.
struct Open {
    stream: Streamed,
    /// Counted.
    _open: Arc<()>,
}

impl Stream for Open {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        self.stream.as_mut().poll_next(cx)
    }
}

/// The requests that were not answered yet. A call runs on when nobody reads its stream any more.
type InFlight = Arc<Mutex<HashSet<RequestId>>>;

/// What a session of rmcp speaks over. See [`Manager`].
pub struct Counted {
    inner: WorkerTransport<LocalSessionWorker>,
    in_flight: InFlight,
}

impl Counted {
    fn new(inner: WorkerTransport<LocalSessionWorker>, in_flight: &InFlight) -> Self {
        Self { inner, in_flight: in_flight.clone() }
    }
}

pin_project! {
    /// A message on its way to a client. By hand, because it is moved several times, and would be twice as large.
    struct Sending<F> {
        #[pin]
        sent: F,
        answered: Option<RequestId>,
        in_flight: InFlight,
    }
}

impl<F: Future> Future for Sending<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let sent = ready!(this.sent.poll(cx));
        if let Some(id) = this.answered.take() {
            lock(this.in_flight).remove(&id);
        }
        Poll::Ready(sent)
    }
}

impl Transport<RoleServer> for Counted {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            ServerJsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            ServerJsonRpcMessage::Error(answer) => answer.id.clone(),
            _ => None,
        };
        Sending { sent: self.inner.send(item), answered, in_flight: self.in_flight.clone() }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await?;
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                lock(&self.in_flight).insert(request.id.clone());
            }
            ClientJsonRpcMessage::Notification(it) => {
                // It gets no answer.
                if let ClientNotification::CancelledNotification(it) = &it.notification
                    && let Some(id) = &it.params.request_id
                {
                    lock(&self.in_flight).remove(id);
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted({} in flight)", lock(&self.in_flight).len())
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manager({} live)", self.live())
    }
}
