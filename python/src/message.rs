//! Messages from the hub's thread to Python callers.

use std::sync::Arc;

use crate::{operation::Outcome, server_request::PendingRequest};

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

tokio::task_local! {
    /// Caller of the operation that the current task runs.
    pub(crate) static CALLER: Caller;
}
