//! What went wrong with a request, and whether it can have been executed.

use std::{error::Error, fmt, io, time::Duration};

use super::Target;
use crate::Delivery;

/// Why a request got no answer, or not all of it. Its sentence tells what was tried, what went wrong
/// and what can be done; no URL in it has a user, a password or a query.
#[derive(Clone, thiserror::Error)]
#[error("{}", .0.sentence)]
pub struct HttpError(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: HttpErrorKind,
    delivery: Delivery,
    sentence: String,
}

/// Where a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The host was not found or did not take the connection.
    Connect,
    /// No secure connection came about: above all, the certificate is not believed.
    Tls,
    /// The proxy was not reached or did not lead further.
    Proxy,
    /// Something took too long.
    Timeout(Phase),
    /// The body of the answer is larger than the caller takes.
    TooLarge {
        /// How many bytes the caller takes.
        limit: usize,
    },
    /// The server sent the request to a place where it must not go.
    Redirect,
    /// The connection ended midway, or what came over it is not HTTP.
    Broken,
    /// The request cannot be sent by anyone.
    Invalid,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Making a connection.
    Connect,
    /// The head of the answer.
    FirstByte,
    /// The next chunk of the body.
    Idle,
}

impl HttpError {
    /// Where it failed.
    #[must_use]
    pub fn kind(&self) -> HttpErrorKind {
        self.0.kind
    }

    /// Whether the server can have executed the request.
    ///
    /// It is [`Delivery::NotSent`] only if the request was never taken up by a connection. This does not
    /// rest on how an error is worded: HTTP puts the length of the body into the head, so nothing can be
    /// written before the body was asked for its length, and the body notes that it was asked.
    /// [`Delivery::Refused`] is never said here.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    pub(super) fn new(kind: HttpErrorKind, delivery: Delivery, sentence: String) -> Self {
        Self(Box::new(Parts { kind, delivery, sentence }))
    }

    /// No connection came about, for `reason`. It is the connection for a second sending of the request
    /// if `delivery` is not [`Delivery::NotSent`].
    pub(super) fn unconnected(
        kind: HttpErrorKind,
        delivery: Delivery,
        to: &Target,
        reason: &str,
    ) -> Self {
        let origin = to.origin();
        let sentence = match kind {
            HttpErrorKind::Tls => format!(
                "no secure connection to {origin} could be made: {reason}; if its certificate comes \
                 from an authority of your own, add that authority's file to those that are trusted"
            ),
            HttpErrorKind::Proxy => format!(
                "{origin} cannot be reached through the proxy: {reason}; check the proxy's address, \
                 user and password, or name the host in NO_PROXY"
            ),
            HttpErrorKind::Timeout(_) => format!(
                "{origin} could not be reached in time: {reason}; check the address, the network and \
                 whether a proxy is needed"
            ),
            _ => format!(
                "{origin} cannot be reached: {reason}; check the address and whether the server runs"
            ),
        };
        Self::new(kind, delivery, sentence)
    }

    /// Nothing came within `limit`.
    pub(super) fn late(phase: Phase, delivery: Delivery, to: &Target, limit: Duration) -> Self {
        let sentence = match phase {
            Phase::Connect => format!(
                "{} gave no connection within {limit:?}, and nothing was sent; check the address and \
                 the network",
                to.origin()
            ),
            Phase::FirstByte => format!(
                "{to} did not begin to answer within {limit:?}; the request may have been executed, \
                 so look before you repeat it, or allow more time"
            ),
            Phase::Idle => format!(
                "{to} began to answer and then sent nothing for {limit:?}; the request may have been \
                 executed, so look before you repeat it, or allow more time"
            ),
        };
        Self::new(HttpErrorKind::Timeout(phase), delivery, sentence)
    }

    /// The connection to `to` ended midway, for `reason`.
    pub(super) fn broken(delivery: Delivery, to: &Target, reason: &str) -> Self {
        let sentence = if delivery == Delivery::NotSent {
            format!(
                "the connection to {} was lost before anything was sent: {reason}; try again",
                to.origin()
            )
        } else {
            format!(
                "the connection to {to} broke before the answer was complete: {reason}; the request \
                 may have been executed, so look before you repeat it"
            )
        };
        Self::new(HttpErrorKind::Broken, delivery, sentence)
    }

    /// The body of the answer has more than `limit` bytes.
    pub(super) fn too_large(limit: usize, to: &Target) -> Self {
        let sentence = format!(
            "{to} answers with more than {limit} bytes; raise the limit, or ask for less at a time"
        );
        Self::new(HttpErrorKind::TooLarge { limit }, Delivery::Unknown, sentence)
    }
}

impl fmt::Debug for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpError")
            .field("kind", &self.0.kind)
            .field("delivery", &self.0.delivery)
            .field("sentence", &self.0.sentence)
            .finish()
    }
}

/// All that `error` has to say, from the outside in: libraries like to hide what matters at the end.
pub(super) fn reasons(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut next = inner(error);
    while let Some(error) = next {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        next = inner(error);
    }
    said
}

/// The first `E` inside `error`, itself included.
pub(super) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = inner(error);
    }
    None
}

/// What stands behind `error`. An I/O error that wraps another names that one's source as its own and
/// so would hide it.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
