//! Request to send.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::{HttpError, HttpErrorKind, Target};
use crate::Delivery;

/// HTTP request.
#[derive(Clone)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Target of the request.
    pub url: Target,
    /// Headers, sent as they are. `Host` and the credentials of the URL are added unless they are set.
    /// `Content-Length` and `Transfer-Encoding` must not be set, because the client knows them.
    pub headers: HeaderMap,
    /// Body, sent whole.
    pub body: Bytes,
    /// Time limit until the response head is there: waiting for a connection, sending, and following redirects.
    pub first_byte: Duration,
    /// Longest silence between two chunks of the response.
    pub idle: Duration,
}

/// Request that is being sent, with additional headers that override its own.
#[derive(Clone, Copy)]
pub(super) struct PreparedRequest<'a> {
    pub(super) request: &'a Request,
    pub(super) more: &'a [(HeaderName, HeaderValue)],
    /// Records whether anything of the request was written.
    pub(super) sent: &'a SentFlag,
}

impl Request {
    /// Returns whether the request has a `Content-Length`. Some servers refuse a POST that does not announce
    /// its empty body.
    pub(super) fn says_length(&self) -> bool {
        let usual = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        usual || !self.body.is_empty()
    }

    /// Refuses a request that would be sent as something else than it is.
    pub(super) fn check(&self) -> Result<(), HttpError> {
        let problem = if self.method == Method::CONNECT {
            "the method CONNECT is for proxies and carries no request"
        } else if self.headers.contains_key(CONTENT_LENGTH) {
            "Content-Length is found out and must not be set; remove it from the headers"
        } else if self.headers.contains_key(TRANSFER_ENCODING) {
            "Transfer-Encoding is chosen here and must not be set; remove it from the headers"
        } else {
            return Ok(());
        };
        let sentence = format!("the request to {} cannot be sent: {problem}", self.url);
        Err(HttpError::new(HttpErrorKind::Invalid, Delivery::NotSent, sentence))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any header may be a credential, and the body is user data.
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body", &self.body.len())
            .field("first_byte", &self.first_byte)
            .field("idle", &self.idle)
            .finish()
    }
}

/// Flag that a part of a request may have been written. Shared with the outgoing body.
#[derive(Clone, Default)]
pub(super) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn delivery(&self) -> Delivery {
        if self.0.load(Ordering::Acquire) { Delivery::Unknown } else { Delivery::NotSent }
    }
}

/// OutgoingBody body, which records when it is first asked for anything.
pub(super) struct OutgoingBody {
    /// `None` once it was handed out, and where there is no body to send.
    data: Option<Bytes>,
    sent: SentFlag,
}

impl OutgoingBody {
    pub(super) fn new(request: &Request, sent: SentFlag) -> Self {
        Self { data: request.says_length().then(|| request.body.clone()), sent }
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.note();
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent.note();
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.sent.note();
        let length = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}
