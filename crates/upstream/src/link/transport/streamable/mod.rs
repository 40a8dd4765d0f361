//! Streamable HTTP link: one POST for each message, and a GET stream of server messages while there are
//! listeners.

mod drive;
mod events;
mod follow;
mod listen;
mod route;
mod session;

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use stayput_http::Worker;
use stayput_http::{HttpError, Request, Response, Target};
use stayput_sync::Mutex;
use stayput_wire::{Era, Version, header};
use tokio::task::AbortHandle;

use crate::{
    CallError, Delivery, HeaderRequest, Loss, LossReason, Scope,
    link::{
        Core, PendingCall, PreparedMessage, Routing, cancellation,
        transport::posting::PostingPermit,
    },
    loss::session_unknown,
    server::redactor,
};

pub(crate) use route::{Route, Routes};
pub(crate) use session::ServerSession;

/// Time that calls in flight have after the server has dropped the session: each of them gets its own response
/// with a status.
const UNKNOWN_SESSION_GRACE: Duration = Duration::from_secs(2);

/// Sending side of Streamable HTTP. It holds no socket: connections belong to the HTTP client.
pub(crate) struct Streamable {
    /// Session id of the server. Set once, by the response to `initialize` or by the id that was kept from an
    /// earlier link. An id that an echo or a proxy sends later does not count.
    session: OnceLock<ServerSession>,
    pub(crate) wire: LinkRoute,
    /// Task that reads the stream of server messages.
    listen_task: Mutex<Option<AbortHandle>>,
}

/// Route and scope of one link's requests.
pub(crate) struct LinkRoute {
    pub(crate) route: Arc<Route>,
    pub(crate) scope: Scope,
}

impl Deref for LinkRoute {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.route
    }
}

impl LinkRoute {
    /// Sends one request. If the server refuses the credentials, asks the provider for new ones and sends once
    /// more.
    pub(crate) async fn send(&self, ask: &RequestParts<'_>) -> Result<Response, CallError> {
        let question = HeaderRequest::new(&self.server, &self.scope);
        let response = self.send_once(ask, question).await?;
        if response.status != StatusCode::UNAUTHORIZED || self.endpoint.provider.is_none() {
            return Ok(response);
        }
        drop(response);
        Box::pin(self.send_once(ask, question.rejected())).await
    }

    async fn send_once(
        &self,
        ask: &RequestParts<'_>,
        question: HeaderRequest<'_>,
    ) -> Result<Response, CallError> {
        let headers = self.endpoint.request_headers(&question).await;
        let headers = headers.map_err(|error| CallError::failed(error, Delivery::NotSent))?;
        let timeouts = self.server.options().timeouts;
        // Skips timeouts that are longer than the call's own deadline.
        let needed = |limit: Duration| if limit < ask.watched { limit } else { Duration::MAX };
        let request = Request {
            method: ask.method.clone(),
            url: ask.target.clone(),
            headers,
            body: ask.body.clone(),
            first_byte: needed(timeouts.first_byte),
            idle: needed(ask.idle.unwrap_or(timeouts.idle)),
        };
        self.client.send_with(&request, &ask.headers).await.map_err(|error| of_http(&error))
    }
}

impl LinkRoute {
    /// Describes a server's error response in a sentence. Servers repeat what they were sent, so secrets are
    /// removed from it.
    pub(crate) fn describe_error(
        &self,
        status: StatusCode,
        body: &[u8],
        session: Option<&str>,
    ) -> String {
        let (status, redactor) = (status.as_u16(), self.server.redactor());
        let body = String::from_utf8_lossy(body);
        let said = redactor.redact_json(&body);
        let mut said = redactor.redact(&said).into_owned();
        if let Some(session) =
            session.filter(|session| session.len() >= redactor::MIN_SECRET_LENGTH)
        {
            said = said.replace(session, redactor::REDACTED);
        }
        let said: String = said.chars().filter(|c| !c.is_control()).take(300).collect();
        let answered = match said.trim() {
            "" => format!("the server answered with HTTP status {status}"),
            said => format!("the server answered with HTTP status {status}: {said}"),
        };
        match is_page(&body) {
            true => {
                format!("the server answered with HTTP status {status} and a web page; {PATH_HINT}")
            }
            false if matches!(status, 404 | 405) => format!("{answered}; {PATH_HINT}"),
            false => answered,
        }
    }
}

/// Remedy for an answer that does not come from an MCP server.
pub(crate) const PATH_HINT: &str = "check the path of its URL, which often ends in /mcp or /sse";

/// Whether a body is HTML.
fn is_page(body: &str) -> bool {
    let start: String = body.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// One HTTP request.
pub(crate) struct RequestParts<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a Target,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    /// Longest silence of the response, if it is not the server's configured idle timeout.
    pub(crate) idle: Option<Duration>,
    /// Time after which the caller ends the request itself, whether the response is silent or has not begun.
    pub(crate) watched: Duration,
}

/// Sends DELETE for a session that is not needed any more. A server may refuse that, and a server that cannot
/// be reached is not waited for.
pub(crate) async fn delete(wire: &LinkRoute, version: &Version, session: &ServerSession) {
    let version = HeaderValue::from_str(version.as_str()).ok();
    let Some(session) = session.header() else { return };
    let mut headers = vec![(SESSION, session)];
    headers.extend(version.map(|version| (VERSION, version)));
    let (method, body) = (Method::DELETE, Bytes::new());
    let limit = wire.server.options().timeouts.close;
    let ask =
        RequestParts { method, target: &wire.target, headers, body, idle: None, watched: limit };
    let _ = tokio::time::timeout(limit, wire.send(&ask)).await;
}

/// Returns after the server has dropped the session and the calls in flight had time for their own responses.
pub(crate) async fn session_unknown_grace(core: &Core) {
    core.over.wait().await;
    tokio::time::sleep(UNKNOWN_SESSION_GRACE).await;
}

/// Builds the error of refused credentials, with the challenge that the server may have sent.
pub(crate) fn unauthorized(status: StatusCode, headers: &HeaderMap) -> CallError {
    let challenge = headers.get(http::header::WWW_AUTHENTICATE);
    let challenge = challenge.and_then(|it| Some(it.to_str().ok()?.into()));
    CallError::Unauthorized { status: status.as_u16(), challenge }
}

pub(crate) fn of_http(error: &HttpError) -> CallError {
    CallError::failed(error, error.delivery())
}

impl Streamable {
    pub(crate) fn new(wire: LinkRoute, session: Option<ServerSession>) -> Self {
        let kept = OnceLock::new();
        if let Some(session) = session {
            let _ = kept.set(session);
        }
        Self { session: kept, wire, listen_task: Mutex::default() }
    }

    pub(crate) fn session(&self) -> Option<&ServerSession> {
        self.session.get()
    }

    /// Requests the stream of server messages, or the rest of a stream after the event `last`.
    async fn open_stream(
        &self,
        core: &Core,
        last: Option<HeaderValue>,
    ) -> Result<Response, CallError> {
        let mut headers = self.headers(core, None);
        headers.push((http::header::ACCEPT, HeaderValue::from_static(header::EVENT_STREAM)));
        headers.extend(last.map(|last| (LAST_EVENT_ID, last)));
        let ask = RequestParts {
            method: Method::GET,
            target: &self.wire.target,
            headers,
            body: Bytes::new(),
            idle: None,
            watched: Duration::MAX,
        };
        self.wire.send(&ask).await
    }

    /// Returns the headers of the protocol.
    fn headers(&self, core: &Core, routing: Option<&Routing>) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::with_capacity(6);
        if let Some(protocol) = core.protocol.get() {
            headers.extend(protocol.header().map(|version| (VERSION, version)));
            if protocol.era() == Era::Legacy {
                let session = self.session().and_then(ServerSession::header);
                headers.extend(session.map(|id| (SESSION, id)));
            }
        }
        if let Some(routing) = routing {
            let pairs = [(METHOD, Some(&routing.method)), (NAME, routing.name.as_ref())];
            for (name, value) in pairs {
                let value = value.and_then(|value| HeaderValue::from_str(value).ok());
                headers.extend(value.map(|value| (name, value)));
            }
            for (name, value) in &routing.params {
                let name = HeaderName::from_bytes(name.as_bytes()).ok();
                headers.extend(name.zip(HeaderValue::from_str(value).ok()));
            }
        }
        headers
    }

    fn post<'a>(&'a self, core: &Core, routing: Option<&Routing>, text: Bytes) -> RequestParts<'a> {
        let mut headers = self.headers(core, routing);
        headers.push((http::header::CONTENT_TYPE, HeaderValue::from_static(header::JSON)));
        headers.push((http::header::ACCEPT, HeaderValue::from_static(header::ACCEPT_BOTH)));
        // A modern server may be silent for hours on `subscriptions/listen`.
        let listens = routing.is_some_and(|routing| &*routing.method == "subscriptions/listen");
        let idle = listens.then_some(Duration::MAX);
        let (target, watched) = (&self.wire.target, Duration::MAX);
        RequestParts { method: Method::POST, target, headers, body: text, idle, watched }
    }

    /// Sends a request. The task that follows the call reads the response.
    pub(crate) fn request(
        &self,
        core: &Arc<Core>,
        pending_call: &Arc<PendingCall>,
        prepared: PreparedMessage,
    ) {
        let reading = drive::drive(core.clone(), pending_call.clone(), prepared);
        pending_call.read_by_caller(core, Box::pin(reading));
    }

    /// Sends a message that needs no response, in the background.
    pub(crate) fn message(&self, core: &Arc<Core>, text: Bytes) {
        if core.over.is_raised() {
            return;
        }
        let Some(permit) = PostingPermit::acquire(core) else { return };
        begin(core, async move {
            let Some(http) = drive::streamable(permit.core()) else { return };
            // No caller waits for an error. A lost session is reported to the next call.
            let _ = http.tell(permit.core(), text).await;
        });
    }

    /// Sends a message that needs no response, and waits until the server has it.
    pub(crate) async fn tell(&self, core: &Arc<Core>, text: Bytes) -> Result<(), CallError> {
        let response = self.wire.send(&self.post(core, None, text)).await?;
        let (status, headers) = (response.status, response.headers);
        // Reads the body so that the connection can be used again.
        let body = response.body.collect(session_unknown::MAX_ERROR_BODY).await;
        if status.is_success() {
            return Ok(());
        }
        let body = body.unwrap_or_default();
        match session_unknown::of_status(status.as_u16(), &body, self.session().is_some()) {
            session_unknown::ErrorMeaning::SessionGone => {
                let loss = core.end_unknown_session(&self.describe_error(status, &body));
                Err(CallError::Lost { loss, delivery: Delivery::Refused })
            }
            session_unknown::ErrorMeaning::Unauthorized => Err(unauthorized(status, &headers)),
            _ => Err(CallError::failed(self.describe_error(status, &body), Delivery::Refused)),
        }
    }

    /// Cancels a call. In the modern era, closing the response stream cancels it, and the driver is stopped
    /// anyway. In the legacy era a cancellation is sent.
    pub(crate) fn cancel(&self, core: &Arc<Core>, number: u64, reason: &str) {
        let legacy = core.protocol.get().is_none_or(|protocol| protocol.era() == Era::Legacy);
        if legacy {
            self.message(core, cancellation(number, reason));
        }
    }

    /// Handles a session that the server has dropped. Calls in flight have a moment for their own responses:
    /// one task fails the rest after that, so that no call has to watch for it.
    pub(crate) fn on_session_unknown(&self, core: &Arc<Core>) {
        let last = core.clone();
        core.runtime().spawn(async move {
            session_unknown_grace(&last).await;
            last.fail_rest();
        });
    }

    /// Opens or closes the stream of server messages when listeners change. The current listeners are read
    /// here, because the notices of two changes may come in either order.
    pub(crate) fn listen(&self, core: &Arc<Core>) {
        let mut listen_task = self.listen_task.lock();
        let wanted = !core.listeners.lock().is_empty() && !core.over.is_raised();
        match &*listen_task {
            Some(task) if !wanted => task.abort(),
            Some(task) if !task.is_finished() => return,
            _ => {}
        }
        *listen_task = None;
        if wanted {
            *listen_task = begin(core, listen::listen(Arc::downgrade(core)));
        }
    }

    /// Describes a server's error response in a sentence for the operator.
    fn describe_error(&self, status: StatusCode, body: &[u8]) -> String {
        let session = self.session().map(ServerSession::as_str);
        self.wire.describe_error(status, body, session)
    }

    /// Ends the link, and deletes the server's session only if that is configured.
    pub(crate) fn begin_close(&self, core: &Arc<Core>, reason: LossReason) {
        let first = core.close(Loss::new(reason, ""), &|_| false);
        if let Some(listen_task) = self.listen_task.lock().take() {
            listen_task.abort();
        }
        let wanted = self.wire.server.options().delete_on_end;
        // No later link resumes the session: a changed configuration is another server.
        let over = matches!(reason, LossReason::Ended | LossReason::Reconfigured);
        let last = first && wanted && over;
        if !last || self.session().is_none() {
            return core.release_permit();
        }
        let core = core.clone();
        core.runtime().clone().spawn(async move {
            if let Some(http) = drive::streamable(&core)
                && let Some((session, protocol)) = http.session().zip(core.protocol.get())
            {
                delete(&http.wire, &protocol.version, session).await;
            }
            core.release_permit();
        });
    }
}

/// Polls the future once, at once, and runs the rest in a task: messages go out in their order, and a call goes
/// out when it is made.
fn begin(core: &Core, saying: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
    let mut saying = Box::pin(saying);
    let begun = {
        let _entered = (!Worker::is_current()).then(|| core.runtime().enter());
        saying.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    begun.is_pending().then(|| Worker::runtime_or(core.runtime()).spawn(saying).abort_handle())
}

const VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const SESSION: HeaderName = HeaderName::from_static(header::MCP_SESSION_ID);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);

impl fmt::Debug for Streamable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streamable")
    }
}
