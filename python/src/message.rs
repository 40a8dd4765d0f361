//! Messages from the hub's thread to Python callers.

use std::sync::Arc;

use pyo3::prelude::*;
use serde_json::Value;
use stayput::Error;
use stayput_sync::Mutex;
use tokio::sync::oneshot;

/// Outcome of an operation. Its value becomes a Python object on the caller's thread.
pub(crate) type Outcome = Result<Conversion, Error>;

/// Conversion of a value into a Python object.
pub(crate) type Conversion = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Request of a server, on its way to the caller's loop or thread.
pub(crate) struct PendingRequest {
    /// Id of the hub.
    pub(crate) hub: u64,
    pub(crate) kind: &'static str,
    pub(crate) params: String,
    pub(crate) answer: oneshot::Sender<Result<Value, String>>,
}

/// Destination of messages.
pub(crate) trait Sink: Send + Sync {
    /// Accepts a message, from any thread, without blocking.
    fn put(&self, message: Message);
}

/// Message to the caller of an operation.
pub(crate) struct Message {
    pub(crate) token: u64,
    pub(crate) payload: Payload,
}

/// Content of a message.
pub(crate) enum Payload {
    /// The operation completed.
    Done(Outcome),
    /// A server sent a request.
    Request(PendingRequest),
    /// A server sent a notification, as JSON.
    Notification(String),
}

/// Caller of an operation.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) token: u64,
}

impl Caller {
    pub(crate) fn send(&self, payload: Payload) {
        self.sink.put(Message { token: self.token, payload });
    }
}

/// Last caller that can answer requests of servers.
pub(crate) type FallbackCaller = Arc<Mutex<Option<Caller>>>;

tokio::task_local! {
    /// Caller of the operation that the current task runs.
    pub(crate) static CALLER: Caller;
}
