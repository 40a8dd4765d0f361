//! One call in flight, as its caller sees it.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use super::{Answer, Core, Flight, Incoming};
use crate::{Delivery, Loss, redactor::hide_paths};

/// A call in flight.
///
/// The link owns the call, this is only a way to follow it. Dropped before the answer came, it
/// cancels the call, once, in the way of the server's era.
pub struct Call {
    core: Arc<Core>,
    pub(super) flight: Arc<Flight>,
    /// The answer was read, and nothing comes after it.
    answered: bool,
}

impl Call {
    pub(super) fn new(core: Arc<Core>, flight: Arc<Flight>) -> Self {
        Self { core, flight, answered: false }
    }

    /// What comes next. `None` after the answer.
    pub async fn next(&mut self) -> Option<Incoming> {
        Next { call: self, waits: false }.await
    }

    /// As [`Call::next`], for whoever polls. Who was told to wait polls again when he is woken: it can be
    /// for him to read the answer from its connection.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        let mut next = self.flight.inbox.poll_next(cx);
        if next.is_pending() && self.core.carrier.is_read_by_callers() && self.flight.read_on() {
            next = self.flight.inbox.poll_next(cx);
        }
        self.answered |= matches!(next, Poll::Ready(Some(Incoming::Answer(_))));
        next
    }

    /// The answer alone. Whatever the server asks on the way to it is refused.
    ///
    /// # Errors
    /// If there will be no answer, see [`CallError`].
    pub async fn answer(mut self) -> Result<Answer, CallError> {
        while let Some(incoming) = self.next().await {
            if let Incoming::Answer(end) = incoming {
                return end;
            }
        }
        Err(CallError::Cancelled)
    }

    /// Cancels the call: the server is told, and nobody waits for its answer.
    pub fn cancel(self) {
        drop(self);
    }

    /// Something that can cancel the call from elsewhere, while this follows it.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { core: Arc::downgrade(&self.core), flight: self.flight.clone() }
    }

    /// How many log messages this call missed because it did not read them.
    #[must_use]
    pub fn missed_logs(&self) -> u64 {
        self.flight.inbox.dropped()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (ended, waiting) = match self.answered {
            true => (true, None),
            false => {
                let (ended, waiting) = self.flight.inbox.abandon();
                (ended, Some(waiting))
            }
        };
        if !ended {
            self.core.cancel(self.flight.number);
        } else if self.core.carrier.is_read_by_callers() {
            // The end of a stream may still have to be read.
            self.flight.leave_to_task();
        }
        // After that: what a cancelled call was asked needs no answer.
        drop(waiting);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({})", self.flight.number)
    }
}

/// Waits for what comes next. Dropped while it waits, it leaves the call to others.
struct Next<'a> {
    call: &'a mut Call,
    waits: bool,
}

impl Future for Next<'_> {
    type Output = Option<Incoming>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let next = self.call.poll_next(cx);
        self.waits = next.is_pending();
        next
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.call.flight.unfollowed();
        }
    }
}

/// Cancels a call from elsewhere. It keeps neither the call nor its link.
#[derive(Clone)]
pub struct Canceller {
    core: Weak<Core>,
    flight: Arc<Flight>,
}

impl Canceller {
    /// Cancels the call: the server is told, and whoever follows it gets [`CallError::Cancelled`]. If it
    /// has its answer, nothing happens.
    pub fn cancel(&self) {
        if let Some(core) = self.core.upgrade() {
            core.cancel(self.flight.number);
        }
        self.flight.inbox.end(Err(CallError::Cancelled));
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Canceller({})", self.flight.number)
    }
}

/// Why a call has no answer. An error that the server answered is an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The link is gone, and the state behind it.
    #[error("the link to the server is gone: {loss}")]
    Lost {
        /// What happened to it.
        loss: Arc<Loss>,
        /// How far this call came.
        delivery: Delivery,
    },
    /// Neither an answer nor progress came in time.
    #[error(
        "the server did not answer within {limit:?}; it may still be working on it. A longer limit \
         can be set as the server's `timeout`"
    )]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The server could not be reached or its answer not be read; the link itself may live on.
    #[error("{what}")]
    Failed {
        /// What went wrong.
        what: Arc<str>,
        /// How far this call came.
        delivery: Delivery,
    },
    /// The server wants other credentials.
    #[error("the server refused the credentials (HTTP {status}); check its headers or token")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// What the server said in `WWW-Authenticate`.
        challenge: Option<Arc<str>>,
    },
    /// Too much came for a reader that did not read.
    #[error(
        "more than 4 MiB waited for whoever made this call, who did not read; it was cancelled"
    )]
    SlowReader,
    /// The answer was larger than allowed.
    #[error("the server answered with more than {limit} bytes, which is more than allowed")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// What should be sent cannot be sent.
    #[error("this cannot be sent: {0}")]
    Invalid(Arc<str>),
    /// The caller cancelled it.
    #[error("the call was cancelled")]
    Cancelled,
}

impl CallError {
    pub(crate) fn failed(what: impl fmt::Display, delivery: Delivery) -> Self {
        Self::Failed { what: what.to_string().into(), delivery }
    }

    /// The same for a client: of a URL it shows the origin alone.
    #[must_use]
    pub fn brief(&self) -> String {
        hide_paths(&self.to_string()).into_owned()
    }

    /// How far the call came.
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

    /// The loss, if the state behind the link is gone.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Lost { loss, .. } => Some(loss),
            _ => None,
        }
    }
}
