//! Call in flight, as seen by its caller.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use super::{Answer, Core, Incoming, PendingCall};
use crate::{Delivery, Loss, server::redactor::hide_paths};

/// Call in flight.
///
/// The link owns the call; this type follows it. If it is dropped before the answer, the call is cancelled,
/// once, as the era of the server defines it.
pub struct Call {
    core: Arc<Core>,
    pub(super) pending_call: Arc<PendingCall>,
    /// The answer was read; nothing follows.
    answered: bool,
}

impl Call {
    pub(super) fn new(core: Arc<Core>, pending_call: Arc<PendingCall>) -> Self {
        Self { core, pending_call, answered: false }
    }

    /// Returns the next event. `None` after the answer.
    pub async fn next(&mut self) -> Option<Incoming> {
        NextEvent { call: self, waits: false }.await
    }

    /// Polls for the next event, as [`Call::next`]. The caller has to poll again when woken: it may have to
    /// read the answer from the connection itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        let mut next = self.pending_call.inbox.poll_next(cx);
        if next.is_pending()
            && self.core.transport.is_read_by_callers()
            && self.pending_call.read_on()
        {
            next = self.pending_call.inbox.poll_next(cx);
        }
        if let Poll::Ready(Some(Incoming::Answer(end))) = &next {
            self.answered = true;
            trace_end(end);
        }
        next
    }

    /// Waits for the answer only. Requests of the server are refused.
    ///
    /// # Errors
    /// If there is no answer, see [`CallError`].
    pub async fn answer(mut self) -> Result<Answer, CallError> {
        while let Some(incoming) = self.next().await {
            if let Incoming::Answer(end) = incoming {
                return end;
            }
        }
        Err(CallError::Cancelled)
    }

    /// Cancels the call and notifies the server.
    pub fn cancel(self) {
        drop(self);
    }

    /// Returns a handle that can cancel the call while this value follows it.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { core: Arc::downgrade(&self.core), pending_call: self.pending_call.clone() }
    }

    /// Number of log messages that were dropped because the caller did not read them.
    #[must_use]
    pub fn missed_logs(&self) -> u64 {
        self.pending_call.inbox.dropped()
    }
}

/// Emits the end of a call. The message of an error is left out, because a server may repeat arguments in it.
fn trace_end(end: &Result<Answer, CallError>) {
    match end {
        Ok(answer) => match answer.code() {
            None => tracing::debug!("answered"),
            Some(code) => tracing::debug!(code = code.0, "answered with an error"),
        },
        Err(error) => {
            tracing::debug!(error = error.brief(), delivery = ?error.delivery(), "no answer");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (ended, waiting) = match self.answered {
            true => (true, None),
            false => {
                let (ended, waiting) = self.pending_call.inbox.abandon();
                (ended, Some(waiting))
            }
        };
        if !ended {
            self.core.cancel(self.pending_call.number);
        } else if self.core.transport.is_read_by_callers() {
            // The end of the stream may still have to be read.
            self.pending_call.leave_to_task();
        }
        // Dropped last: the requests of a cancelled call need no answer.
        drop(waiting);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({})", self.pending_call.number)
    }
}

/// Future of the next event. If it is dropped while it waits, a task may read the answer.
struct NextEvent<'a> {
    call: &'a mut Call,
    waits: bool,
}

impl Future for NextEvent<'_> {
    type Output = Option<Incoming>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let next = self.call.poll_next(cx);
        self.waits = next.is_pending();
        next
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.call.pending_call.on_caller_idle();
        }
    }
}

/// Cancels a call from another task. Keeps neither the call nor the link alive.
#[derive(Clone)]
pub struct Canceller {
    core: Weak<Core>,
    pending_call: Arc<PendingCall>,
}

impl Canceller {
    /// Cancels the call: notifies the server, and its caller gets [`CallError::Cancelled`]. Does nothing if
    /// the call has an answer.
    pub fn cancel(&self) {
        if let Some(core) = self.core.upgrade() {
            core.cancel(self.pending_call.number);
        }
        self.pending_call.inbox.end(Err(CallError::Cancelled));
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Canceller({})", self.pending_call.number)
    }
}

/// Reason why a call has no answer. An error that the server sent is an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The link has ended, and the state behind it is lost.
    #[error("the link to the server is gone: {loss}")]
    Lost {
        /// Reason of the loss.
        loss: Arc<Loss>,
        /// Delivery certainty of the call.
        delivery: Delivery,
    },
    /// Neither an answer nor progress came in time.
    #[error(
        "the server did not answer within {:?}; it may still be working on it. A longer limit \
         can be set as the server's `timeout`", stayput_http::rounded(*limit)
    )]
    TimedOut {
        /// Timeout that expired.
        limit: Duration,
    },
    /// The server could not be reached, or its answer could not be read. The link may still be usable.
    #[error("{what}")]
    Failed {
        /// Description of the failure.
        what: Arc<str>,
        /// Delivery certainty of the call.
        delivery: Delivery,
    },
    /// The server refused the credentials.
    #[error("the server refused the credentials (HTTP {status}); check its headers or token")]
    Unauthorized {
        /// HTTP status, 401 or 403.
        status: u16,
        /// Value of `WWW-Authenticate`.
        challenge: Option<Arc<str>>,
    },
    /// The caller did not read, and its queue is full.
    #[error(
        "more than 4 MiB waited for the client of this call, which did not read; it was cancelled"
    )]
    SlowReader,
    /// The answer exceeds the size limit.
    #[error("the server answered with more than {limit} bytes, which is more than allowed")]
    TooLarge {
        /// Size limit in bytes.
        limit: usize,
    },
    /// The message cannot be sent.
    #[error("this cannot be sent: {0}")]
    Invalid(Arc<str>),
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
}

impl CallError {
    pub(crate) fn failed(what: impl fmt::Display, delivery: Delivery) -> Self {
        Self::Failed { what: what.to_string().into(), delivery }
    }

    /// Message for a client: URLs are cut to their origin.
    #[must_use]
    pub fn brief(&self) -> String {
        hide_paths(&self.to_string()).into_owned()
    }

    /// Delivery certainty of the call.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        match self {
            Self::Lost { delivery, .. } | Self::Failed { delivery, .. } => *delivery,
            Self::Unauthorized { .. } => Delivery::Refused,
            Self::Invalid(_) => Delivery::NotSent,
            Self::TimedOut { .. } | Self::SlowReader | Self::TooLarge { .. } | Self::Cancelled => {
                Delivery::Unknown
            }
        }
    }

    /// Loss, if the state behind the link is gone.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Lost { loss, .. } => Some(loss),
            _ => None,
        }
    }
}
