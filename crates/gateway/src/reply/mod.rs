//! Responses to clients.

mod held_by;
pub(crate) mod loss;

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use stayput_core::SessionId;
use stayput_wire::{Code, Era, Message, Raw, header as mcp, json};
use tokio::time::Instant;

pub(crate) use self::held_by::{HeldBy, SessionName, held_elsewhere};

/// Action to run when an answer has been written.
pub(crate) struct AfterWrite {
    /// Session whose loss the answer reports, if it reports one.
    pub(crate) session: Option<SessionId>,
    run: Box<dyn FnOnce() + Send>,
}

impl AfterWrite {
    pub(crate) fn new(session: Option<SessionId>, run: impl FnOnce() + Send + 'static) -> Self {
        Self { session, run: Box::new(run) }
    }

    pub(crate) fn run(self) {
        (self.run)();
    }
}

/// Function that takes the actions of an answer which another replica passes on: they run when that one has written it.
pub(crate) type AfterWriteSink = Arc<dyn Fn(AfterWrite) + Send + Sync>;

impl Reply {
    /// Passes the actions of this answer to `sink` instead of running them. Returns whether there may be any.
    pub(crate) fn defer(&mut self, sink: AfterWriteSink) -> bool {
        match self {
            Self::Whole(_, then) => {
                let Some(action) = then.take() else { return false };
                *then = Some(AfterWrite::new(action.session, move || sink(action)));
            }
            Self::Stream(events) => return events.defer(sink),
            Self::Call(call) => return call.defer(sink),
            Self::GuardedStream(guarded) => return guarded.stream.defer(sink),
        }
        true
    }
}

/// Body of a response.
pub(crate) enum Reply {
    /// Complete body, and an action to run when it is taken for writing. Without a content type it is a JSON-RPC
    /// message: nearly all are, and need no headers of their own.
    Whole(Bytes, Option<AfterWrite>),
    /// Events of a stream that can be resumed.
    Stream(Box<dyn EventBody>),
    /// Messages of a call. Dropping the body cancels the call.
    Call(Box<dyn MessageBody>),
    /// Stream that ends when its client loses access.
    GuardedStream(Box<GuardedStream>),
}

/// Body of a stream, behind a trait so that this module does not depend on the stream.
pub(crate) trait EventBody: Body<Data = Bytes, Error = Infallible> + Send + Unpin {
    /// Returns the one server that speaks on the stream, and `None` if several may.
    fn server(&self) -> Option<Arc<str>>;

    /// Passes the actions of the events to `sink` instead of running them. Returns whether there may be any.
    fn defer(&mut self, sink: AfterWriteSink) -> bool;
}

/// Messages of one call, either as a body of server-sent events or one by one.
pub(crate) trait MessageBody: EventBody {
    /// Returns the next message as it is, and `None` after the last one.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// Access of a client to a stream that it reads.
pub(crate) trait Access: Send + Sync {
    /// Ready when the client has lost access.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Timer of a client's socket, for deadlines of its requests.
pub(crate) trait SocketTimer: Sync {
    /// Ready at `due`. Only the task of the socket may ask.
    fn poll_until(&self, due: Instant, cx: &mut Context<'_>) -> Poll<()>;
}

/// Stream together with the access of its client.
pub(crate) struct GuardedStream {
    pub(crate) stream: Reply,
    pub(crate) access: Box<dyn Access>,
}

/// Request that an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRef<'a> {
    /// Request id, as the client wrote it.
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
}

/// Text of an answer, and an action to run when it has been written.
pub(crate) struct ReplyText {
    pub(crate) text: Bytes,
    pub(crate) then: Option<AfterWrite>,
    /// HTTP status of the answer.
    pub(crate) status: StatusCode,
    /// Replica that holds the session of the request. Nothing was run; the text is for clients whose requests cannot be
    /// forwarded.
    pub(crate) held_by: Option<Box<HeldBy>>,
}

impl ReplyText {
    pub(crate) fn new(text: impl Into<Bytes>) -> Self {
        Self { text: text.into(), then: None, status: StatusCode::OK, held_by: None }
    }

    /// Adds the replica that holds the session of the request.
    pub(crate) fn held_by(self, held_by: Option<Box<HeldBy>>) -> Self {
        Self { held_by, ..self }
    }

    /// Builds an answer with the HTTP status that the era requires: in the modern era, the code of an error decides it.
    pub(crate) fn of_era(era: Era, text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let code = match era {
            Era::Legacy => None,
            Era::Modern => error_code(&text),
        };
        Self { status: code.map(status_of).unwrap_or_default(), ..Self::new(text) }
    }

    /// Sets the action to run when the answer has been written.
    pub(crate) fn then(self, then: Option<AfterWrite>) -> Self {
        Self { then, ..self }
    }

    /// Converts the answer to the response to a POST.
    pub(crate) fn response(self) -> Response<Reply> {
        let mut response = message_then(self.text, self.then);
        *response.status_mut() = self.status;
        held_elsewhere(&mut response, self.held_by);
        response
    }
}

/// Returns whether a client accepts this media type. Parameters and weights are ignored.
pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    accepted.any(|it| it.contains(kind) || it.contains("*/*"))
}

/// Returns the code of a JSON-RPC error.
fn error_code(text: &[u8]) -> Option<Code> {
    let message = Message::parse(text).ok()?;
    message.error()?.find(&["code"]).and_then(Raw::integer).map(Code)
}

/// Returns the HTTP status for an error code in the modern era.
pub(crate) fn status_of(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status(Era::Modern)).unwrap_or_default()
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes, then) => {
                let bytes = std::mem::take(bytes);
                if let Some(then) = then.take() {
                    then.run();
                }
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Stream(events) => Pin::new(&mut **events).poll_frame(cx),
            Self::Call(call) => Pin::new(&mut **call).poll_frame(cx),
            Self::GuardedStream(guarded) => Pin::new(&mut guarded.stream).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes, _) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) | Self::Call(_) | Self::GuardedStream(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes, _) => write!(f, "Reply({} bytes)", bytes.len()),
            Self::Stream(_) | Self::Call(_) | Self::GuardedStream(_) => {
                f.write_str("Reply(stream)")
            }
        }
    }
}

/// Builds a JSON-RPC response.
pub(crate) fn message(text: impl Into<Bytes>) -> Response<Reply> {
    message_then(text, None)
}

/// Builds a JSON-RPC response with an action to run when it has been written.
pub(crate) fn message_then(text: impl Into<Bytes>, then: Option<AfterWrite>) -> Response<Reply> {
    Response::new(Reply::Whole(text.into(), then))
}

/// Builds a resumable event stream.
pub(crate) fn stream(body: impl EventBody + 'static) -> Response<Reply> {
    events(Reply::Stream(Box::new(body)))
}

/// Builds an event stream.
pub(crate) fn events(body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(mcp::EVENT_STREAM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(mcp::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Builds a response that has only a status.
pub(crate) fn status(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Bytes::new(), None));
    *response.status_mut() = status;
    response
}

/// Builds a plain-text response.
pub(crate) fn text(status: StatusCode, sentence: &str) -> Response<Reply> {
    let mut response = plain(format!("{sentence}\n"), "text/plain; charset=utf-8");
    *response.status_mut() = status;
    response
}

/// Builds a page for a browser.
pub(crate) fn page(html: String) -> Response<Reply> {
    plain(html, "text/html; charset=utf-8")
}

/// Builds a page of Prometheus metrics.
pub(crate) fn metrics(page: String) -> Response<Reply> {
    plain(page, "text/plain; version=0.0.4; charset=utf-8")
}

fn plain(body: String, kind: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(body.into(), None));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Builds a JSON-RPC error with an HTTP status, for the request with this id or for none.
pub(crate) fn refusal(
    status: StatusCode,
    id: Option<&str>,
    code: Code,
    sentence: &str,
) -> Response<Reply> {
    let mut response = message(error(id.unwrap_or("null"), code, sentence));
    *response.status_mut() = status;
    response
}

/// Builds the response while a part of the gateway is unavailable.
pub(crate) fn unavailable(sentence: &str) -> Response<Reply> {
    later(refusal(StatusCode::SERVICE_UNAVAILABLE, None, Code::INTERNAL_ERROR, sentence), AWHILE)
}

/// Retry time for services that are unavailable.
pub(crate) const AWHILE: Duration = Duration::from_secs(5);

/// Builds the response for an owner over its rate limit.
pub(crate) fn too_fast(wait: Duration) -> Response<Reply> {
    let seconds = whole_seconds(wait);
    let sentence = format!(
        "you make more requests than `limits.per_owner.requests_per_second` allows, and this one was not \
         looked at; try again in {seconds} s, and ask less often"
    );
    let status = StatusCode::TOO_MANY_REQUESTS;
    later(refusal(status, None, Code::INTERNAL_ERROR, &sentence), wait)
}

/// Adds `Retry-After` to a response.
pub(crate) fn later(mut response: Response<Reply>, wait: Duration) -> Response<Reply> {
    response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(wait).into());
    response
}

/// Rounds up to whole seconds.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Builds a JSON-RPC error.
pub(crate) fn error(id: &str, code: Code, sentence: &str) -> String {
    let message = json::quote(sentence);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{message}}}}}"#, code.0)
}

/// Builds a JSON-RPC result.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// Builds a tool error, which a model can read, for `tools/call`, and a JSON-RPC error for every other method.
pub(crate) fn failure(
    RequestRef { id, method }: RequestRef<'_>,
    era: Era,
    sentence: &str,
) -> String {
    if method == "tools/call" {
        let (kind, text) = (kind_of_result(era), json::quote(sentence));
        let content =
            format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#);
        return result(id, &content);
    }
    error(id, Code::INTERNAL_ERROR, sentence)
}

/// Returns the first member of a result: the modern era requires `resultType`.
pub(crate) fn kind_of_result(era: Era) -> &'static str {
    match era {
        Era::Legacy => "",
        Era::Modern => r#""resultType":"complete","#,
    }
}
