//! Mailbox of an event loop: messages wait here until the loop fetches them.

use std::{
    collections::HashMap,
    fmt,
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pyo3::{PyTraverseError, PyVisit, intern, prelude::*};
use stayput_sync::Mutex;

use crate::{
    message::{Caller, Message, Outcome, Payload, PendingRequest, Sink},
    operation::{Operation, RunningOperation, into_result},
    server_request::ServerRequest,
};

/// Messages for the callers of one event loop. The loop watches the reading end of a pipe, and fetches all messages
/// at once.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Mailbox {
    queue: Arc<Queue>,
    next: AtomicU64,
    pending: Mutex<HashMap<u64, PendingOperation>>,
    /// Listeners by hub, for requests that servers send outside of calls.
    listeners: Mutex<HashMap<u64, Py<PyAny>>>,
}

/// Operation that a future of the loop waits for.
struct PendingOperation {
    future: Py<PyAny>,
    listener: Option<Py<PyAny>>,
    running: RunningOperation,
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = pipe()?;
        let state = QueueState { messages: Vec::new(), signalled: false, writer };
        Ok(Self {
            queue: Arc::new(Queue { state: Mutex::new(state), reader }),
            next: AtomicU64::new(1),
            pending: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    /// File descriptor that becomes readable when there are messages.
    fn fileno(&self) -> i32 {
        self.queue.reader.as_raw_fd()
    }

    /// Starts an operation whose outcome completes `future`. `listener` gets notifications and requests of servers
    /// meanwhile.
    fn start(
        &self,
        py: Python<'_>,
        op: &Bound<'_, Operation>,
        future: Py<PyAny>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (caller, op) = (Caller { sink: self.queue.clone(), token }, op.get());
        if let Some(listener) = &listener {
            let shared = op.shared();
            *shared.fallback.lock() = Some(Caller { token: 0, ..caller.clone() });
            let outside_calls = listener.call_method0(py, intern!(py, "outside_calls"))?;
            let before = self.listeners.lock().insert(shared.id, outside_calls);
            // Dropped after the lock is released, because its destructor may run any code.
            drop(before);
        }
        let running = op.start(caller)?;
        // Messages that arrive before this line wait in the queue, which only the loop reads, later.
        self.pending.lock().insert(token, PendingOperation { future, listener, running });
        Ok(token)
    }

    /// Forgets a future that was cancelled, and cancels its operation.
    fn cancel(&self, token: u64) {
        let pending = self.pending.lock().remove(&token);
        if let Some(pending) = pending {
            pending.running.abort();
        }
    }

    /// A future refers to its task, and the task to this mailbox: only the collector can free futures of a closed
    /// loop.
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 gives it")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector must not block. A locked map is in use, so it is not garbage.
        if let Some(pending) = self.pending.try_lock() {
            for operation in pending.values() {
                visit.call(&operation.future)?;
                visit.call(&operation.listener)?;
            }
        }
        if let Some(listeners) = self.listeners.try_lock() {
            for listener in listeners.values() {
                visit.call(listener)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        for operation in pending.values() {
            operation.running.abort();
        }
        let listeners = std::mem::take(&mut *self.listeners.lock());
        // Dropped after the locks are released, because destructors may run any code.
        drop((pending, listeners));
    }

    /// Delivers all messages to their futures and listeners.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut result = Ok(());
        for Message { token, payload } in self.queue.fetch()? {
            let delivered = match payload {
                Payload::Done(done) => self.complete(py, token, done),
                Payload::Request(request) => self.deliver_request(py, token, request),
                Payload::Notification(text) => self.deliver_notification(py, token, &text),
            };
            // An error of one delivery does not affect the others.
            result = result.and(delivered);
        }
        result
    }
}

impl Mailbox {
    fn complete(&self, py: Python<'_>, token: u64, done: Outcome) -> PyResult<()> {
        // The future was cancelled.
        let Some(pending) = self.pending.lock().remove(&token) else { return Ok(()) };
        let future = pending.future.bind(py);
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        match into_result(py, done) {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => {
                future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?
            }
        };
        Ok(())
    }

    fn listener(&self, py: Python<'_>, token: u64) -> Option<Py<PyAny>> {
        let pending = self.pending.lock();
        pending.get(&token)?.listener.as_ref().map(|listener| listener.clone_ref(py))
    }

    fn deliver_request(&self, py: Python<'_>, token: u64, request: PendingRequest) -> PyResult<()> {
        let hub_listener = || self.listeners.lock().get(&request.hub).map(|it| it.clone_ref(py));
        // Dropping the request refuses it.
        if let Some(listener) = self.listener(py, token).or_else(hub_listener) {
            listener.call_method1(py, intern!(py, "on_request"), (ServerRequest::new(request),))?;
        }
        Ok(())
    }

    fn deliver_notification(&self, py: Python<'_>, token: u64, text: &str) -> PyResult<()> {
        if let Some(listener) = self.listener(py, token) {
            listener.call_method1(py, intern!(py, "on_notification"), (text,))?;
        }
        Ok(())
    }
}

/// Messages that were not fetched yet.
struct Queue {
    state: Mutex<QueueState>,
    reader: PipeReader,
}

struct QueueState {
    messages: Vec<Message>,
    /// Whether there is a byte in the pipe.
    signalled: bool,
    writer: PipeWriter,
}

impl Queue {
    fn fetch(&self) -> PyResult<Vec<Message>> {
        let mut state = self.state.lock();
        if state.signalled {
            // The byte is there, because it was written under the same lock.
            (&self.reader).read_exact(&mut [0])?;
            state.signalled = false;
        }
        Ok(std::mem::take(&mut state.messages))
    }
}

impl Sink for Queue {
    fn put(&self, message: Message) {
        let mut state = self.state.lock();
        state.messages.push(message);
        if !state.signalled {
            state.signalled = state.writer.write_all(&[1]).is_ok();
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}
