//! Operation on a hub: starts on the caller's thread and continues on the hub's thread.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use pyo3::prelude::*;
use stayput::{
    Error,
    ffi::{InSession as _, Scope},
};
use stayput_sync::Mutex;
use tokio::runtime::Handle;

use crate::{
    error::to_exception,
    message::{CALLER, Caller, Conversion, Message, Outcome, Payload, Sink},
    server_request::ServerRequest,
    shared_hub::{ProcessLocal, SharedHub},
    value::IntoPython,
};

/// Interval at which a blocked thread checks for signals, such as Ctrl-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

type PendingFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Operation on a hub. It starts when the caller waits for it.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Operation {
    pending: Mutex<Option<ProcessLocal<PendingFuture>>>,
    shared: Arc<SharedHub>,
}

impl Operation {
    /// Creates an operation that runs in a scope, if there is one.
    pub(crate) fn new<T, F>(shared: &Arc<SharedHub>, scope: Option<Scope>, future: F) -> Self
    where
        T: IntoPython,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let pending = async move {
            let done = match scope {
                Some(scope) => future.in_session(scope).await,
                None => future.await,
            };
            done.map(|value| -> Conversion { Box::new(move |py| value.into_python(py)) })
        };
        Self {
            pending: Mutex::new(Some(ProcessLocal::new(Box::pin(pending)))),
            shared: shared.clone(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedHub> {
        &self.shared
    }

    /// Starts the operation on this thread and polls it until it has to wait, so that a call is on its way to the
    /// server before another thread wakes up. The hub's thread does the rest. The caller always gets a completion
    /// message.
    pub(crate) fn start(&self, caller: Caller) -> PyResult<RunningOperation> {
        self.shared.check().map_err(|error| to_exception(&error))?;
        let already_started =
            || to_exception(&Error::InvalidInput("the operation was already started".to_owned()));
        let pending = self.pending.lock().take().ok_or_else(already_started)?;
        let pending = pending.into_inner().map_err(|error| to_exception(&error))?;
        let guard = CompletionGuard(Some(caller.clone()));
        let future: OperationFuture = Box::pin(async move {
            let done = CALLER.scope(caller, pending).await;
            guard.complete(done);
        });
        let runtime = self.shared.runtime.clone();
        let work = Arc::new(Mutex::new(SharedWork { future: Some(future), task: None }));
        let waker = SpawnOnWake {
            remainder: Mutex::new(Some(Remainder(work.clone()))),
            runtime: runtime.clone(),
        };
        {
            let _entered = runtime.enter();
            let waker = Waker::from(Arc::new(waker));
            let _ = work.lock().poll(&mut Context::from_waker(&waker));
        }
        Ok(RunningOperation { work: ProcessLocal::new(work), runtime })
    }
}

#[pymethods]
impl Operation {
    /// Starts the operation and waits for it, without the interpreter lock. `listener` gets notifications and
    /// requests of servers meanwhile.
    fn block(&self, py: Python<'_>, listener: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (sender, mut receiver) = mpsc::channel();
        let running = self.start(Caller { sink: Arc::new(ChannelSink(sender)), token: 0 })?;
        let _abort = AbortOnDrop(&running);
        loop {
            let next;
            (receiver, next) = py.detach(move || {
                let next = receiver.recv_timeout(SIGNAL_CHECK_INTERVAL);
                (receiver, next)
            });
            match (next.map(|message| message.payload), listener) {
                (Ok(Payload::Done(done)), _) => return into_result(py, done),
                (Ok(Payload::Request(request)), Some(listener)) => {
                    listener.call_method1("on_request", (ServerRequest::new(request),))?;
                }
                (Ok(Payload::Notification(text)), Some(listener)) => {
                    listener.call_method1("on_notification", (text,))?;
                }
                (Ok(_), None) => {}
                // An exception, such as `KeyboardInterrupt`, cancels the operation.
                (Err(RecvTimeoutError::Timeout), _) => py.check_signals()?,
                (Err(RecvTimeoutError::Disconnected), _) => {
                    return Err(to_exception(&Error::HubClosed));
                }
            }
        }
    }
}

/// Converts an outcome for Python.
pub(crate) fn into_result(py: Python<'_>, done: Outcome) -> PyResult<Py<PyAny>> {
    match done {
        Ok(value) => value(py),
        Err(error) => Err(to_exception(&error)),
    }
}

/// Sink of a thread that blocks.
struct ChannelSink(mpsc::Sender<Message>);

impl Sink for ChannelSink {
    fn put(&self, message: Message) {
        // Fails if the thread has stopped waiting.
        let _ = self.0.send(message);
    }
}

/// Future of an operation, polled first on the caller's thread and then on the hub's thread.
type OperationFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Operation that was started.
pub(crate) struct RunningOperation {
    /// A forked child must not cancel it.
    work: ProcessLocal<Arc<Mutex<SharedWork>>>,
    runtime: Handle,
}

impl RunningOperation {
    /// Cancels the operation. The future is dropped here, so that the server gets the cancellation before the
    /// caller's next call.
    pub(crate) fn abort(&self) {
        let Ok(work) = self.work.get() else { return };
        let _entered = self.runtime.enter();
        let (future, task) = work.lock().take();
        drop(future);
        if let Some(task) = task {
            // The task finds no work left, and ends.
            task.wake();
        }
    }
}

struct SharedWork {
    /// `None` when it is complete or cancelled.
    future: Option<OperationFuture>,
    /// Waker of the task on the hub's thread that continues the work.
    task: Option<Waker>,
}

impl SharedWork {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled =
            self.future.as_mut().map_or(Poll::Ready(()), |future| future.as_mut().poll(cx));
        if polled.is_ready() {
            *self = Self { future: None, task: None };
        }
        polled
    }

    fn take(&mut self) -> (Option<OperationFuture>, Option<Waker>) {
        (self.future.take(), self.task.take())
    }
}

/// Waker of the first poll. Spawns the rest on the hub's runtime when the future can continue. Usually the hub's
/// thread itself wakes it, so no thread is woken up just for this.
struct SpawnOnWake {
    remainder: Mutex<Option<Remainder>>,
    runtime: Handle,
}

impl Wake for SpawnOnWake {
    fn wake(self: Arc<Self>) {
        let remainder = self.remainder.lock().take();
        if let Some(remainder) = remainder {
            self.runtime.spawn(poll_fn(move |cx| remainder.poll(cx)));
        }
    }
}

/// Part of an operation that runs on the hub's thread. Dropping it with the runtime drops the work.
struct Remainder(Arc<Mutex<SharedWork>>);

impl Remainder {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = self.0.lock();
        let polled = work.poll(cx);
        if polled.is_pending() {
            work.task = Some(cx.waker().clone());
        }
        polled
    }
}

impl Drop for Remainder {
    fn drop(&mut self) {
        let left = self.0.lock().take();
        drop(left);
    }
}

/// Aborts an operation on drop.
struct AbortOnDrop<'a>(&'a RunningOperation);

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a completion message on drop, unless one was sent.
struct CompletionGuard(Option<Caller>);

impl CompletionGuard {
    fn complete(mut self, done: Outcome) {
        if let Some(caller) = self.0.take() {
            caller.send(Payload::Done(done));
        }
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        if let Some(caller) = self.0.take() {
            caller.send(Payload::Done(Err(Error::HubClosed)));
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}
