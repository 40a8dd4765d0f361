//! Errors of requests, and whether the request can have been executed.

use std::{error::Error, fmt, io, path::PathBuf, time::Duration};

use super::Target;
use crate::Delivery;

/// Reason why a request got no response, or not all of it. The message says what was tried, what went wrong and
/// what can be done; no URL in it has a user, a password or a query.
#[derive(Clone, thiserror::Error)]
#[error("{}", .0.sentence)]
pub struct HttpError(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: HttpErrorKind,
    delivery: Delivery,
    sentence: String,
}

/// Step in which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The host was not found or did not accept the connection.
    Connect,
    /// TLS failed: above all, the certificate is not trusted.
    Tls,
    /// The proxy was not reached or did not connect to the server.
    Proxy,
    /// A time limit is over.
    Timeout(Phase),
    /// The response body is larger than the caller accepts.
    TooLarge {
        /// Limit of the caller in bytes.
        limit: usize,
    },
    /// The server redirected the request to where it must not go.
    Redirect,
    /// The connection ended midway, or the bytes on it are not HTTP.
    Broken,
    /// The request is invalid.
    Invalid,
}

/// Step that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening a connection.
    Connect,
    /// Waiting for the response head.
    FirstByte,
    /// Waiting for the next chunk of the body.
    Idle,
}

/// Rounds a time up for a message: to tenths of a second, or to milliseconds below a second.
#[must_use]
pub fn rounded(limit: Duration) -> Duration {
    let unit = if limit < Duration::from_secs(1) { 1 } else { 100 };
    let millis = limit.as_nanos().div_ceil(1_000_000).div_ceil(unit).saturating_mul(unit);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl HttpError {
    /// Returns the step that failed.
    #[must_use]
    pub fn kind(&self) -> HttpErrorKind {
        self.0.kind
    }

    /// Returns whether the server can have executed the request.
    ///
    /// It is [`Delivery::NotSent`] only if no connection ever took up the request. This does not depend on the
    /// wording of an error: HTTP puts the length of the body into the head, so nothing can be written before
    /// the body is asked for its length, and the body records that it was asked. [`Delivery::Refused`] is never
    /// returned here.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    pub(super) fn new(kind: HttpErrorKind, delivery: Delivery, sentence: String) -> Self {
        Self(Box::new(Parts { kind, delivery, sentence }))
    }

    /// Builds the error of a connection that could not be opened, for `reason`. If `delivery` is not
    /// [`Delivery::NotSent`], the connection was for a second sending of the request.
    pub(super) fn unconnected(
        kind: HttpErrorKind,
        delivery: Delivery,
        to: &Target,
        reason: &str,
    ) -> Self {
        let origin = to.origin();
        let sentence = match kind {
            // The error of rustls for bytes that are no TLS.
            HttpErrorKind::Tls if reason.contains("InvalidContentType") => format!(
                "{origin} does not speak TLS at this port: write http:// instead of https://, or use the port that \
                 speaks it"
            ),
            HttpErrorKind::Tls => format!(
                "no secure connection to {origin} could be made: {reason}; if its certificate comes \
                 from an authority of your own, name that authority's file in SSL_CERT_FILE or in `ca_file`"
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
                "no connection to {origin}: {reason}; check the address and whether the server runs"
            ),
        };
        Self::new(kind, delivery, sentence)
    }

    /// Builds the error of a step that took longer than `limit`.
    pub(super) fn timed_out(
        phase: Phase,
        delivery: Delivery,
        to: &Target,
        limit: Duration,
    ) -> Self {
        let limit = rounded(limit);
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

    /// Builds the error of a connection to `to` that ended midway, for `reason`.
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

    /// Builds the error of a response body of more than `limit` bytes.
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

/// Reason why a client could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A file of authorities cannot be used.
    #[error("the file of authorities {} cannot be used: {problem}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Problem of the file.
        problem: String,
    },
    /// The value of a proxy variable cannot be parsed.
    #[error("{variable} does not name a proxy; write it like http://proxy.example.com:3128")]
    Proxy {
        /// Name of the environment variable.
        variable: String,
    },
    /// The cryptography provider refuses these settings.
    #[error("secure connections cannot be set up: {0}")]
    Tls(String),
    /// No Tokio runtime is available.
    #[error(
        "an HTTP client needs a Tokio runtime; name one in its settings or make it inside of one"
    )]
    NoRuntime,
}

/// Returns the messages of `error` and its sources, from the outside in: libraries often have the cause at the
/// end.
pub(super) fn reasons(error: &(dyn Error + 'static)) -> String {
    let mut text = without_code(error);
    let mut next = inner(error);
    while let Some(error) = next {
        let more = without_code(error);
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = inner(error);
    }
    text
}

/// Formats an error without the number that the system has for it, which stands behind its words.
fn without_code(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, code)) if code.ends_with(')') => words.to_owned(),
        _ => text,
    }
}

/// Returns the first `E` in the chain of `error`, which begins with `error` itself.
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

/// Returns the source of `error`. An I/O error that wraps another error returns the source of that error as its
/// own, and so would hide the wrapped error.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_messages_have_at_most_three_digits_behind_the_point() {
        let shown = |nanos: u64| format!("{:?}", rounded(Duration::from_nanos(nanos)));
        assert_eq!(shown(1_437_250_720), "1.5s");
        assert_eq!(shown(2_986_402_631), "3s");
        assert_eq!(shown(50_000_001), "51ms");
        assert_eq!(shown(30_000_000_000), "30s");
        assert!(rounded(Duration::MAX) > Duration::from_secs(1 << 40));
    }
}
