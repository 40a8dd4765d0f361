//! Future of a request that passes through the layer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, SET_COOKIE},
    request::Parts,
};
use http_body::Body;
use pin_project_lite::pin_project;
use stayput_core::{Handle, HandleHash, Owner, StoreError};
use stayput_wire::header as mcp;
use tower_service::Service;

use super::{
    ResponseBody,
    body_reader::{BodyReader, Rejection},
    tool_list,
};
use crate::{
    Error, NameSource, ServerSessions,
    names::{RequestHeaders, SessionRef, connection_hash},
    request::{
        RequestInfo, RequestKind, RequestSession, SessionExtension, parse, scope::RequestScope,
    },
};

/// Result of the wrapped service.
type ServiceResult<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// Future of a request that passes through the layer. Written by hand, because every request takes this path:
    /// only requests that need the full path are boxed.
    #[must_use]
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<S, B, S::Future, ServiceResult<R, S::Error>>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S, B, F, T> {
        /// Reading the body.
        Read { pending: Option<PendingRequest<S, B>> },
        /// Running in the wrapped service.
        Call {
            #[pin]
            call: RequestScope<F>,
        },
        /// Running with connection check, cookie or list filter.
        Full { future: Pin<Box<dyn Future<Output = T> + Send>> },
    }
}

/// Request whose body is not read yet.
struct PendingRequest<S, B> {
    sessions: ServerSessions,
    inner: S,
    parts: Parts,
    body: B,
    body_reader: BodyReader,
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(sessions: ServerSessions, inner: S, request: Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        let pending = Some(PendingRequest {
            sessions,
            inner,
            parts,
            body,
            body_reader: BodyReader::default(),
        });
        Self { step: Step::Read { pending } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Unpin + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Output = ServiceResult<R, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                StepProj::Read { pending } => {
                    let Some(request) = pending else { return Poll::Pending };
                    let parsed = ready!(request.poll_parse(cx));
                    match (parsed, pending.take()) {
                        (Ok(parsed), Some(request)) => request.dispatch(parsed),
                        (Err((status, sentence)), _) => {
                            return Poll::Ready(Ok(text_response(status, sentence)));
                        }
                        (_, None) => return Poll::Pending,
                    }
                }
                StepProj::Call { mut call } => {
                    let response = ready!(call.as_mut().poll(cx))?;
                    let request_session = call.take_request();
                    return Poll::Ready(Ok(
                        response.map(|body| ResponseBody::new(body, request_session))
                    ));
                }
                StepProj::Full { future } => return future.as_mut().poll(cx),
            };
            step.set(next);
        }
    }
}

/// Owner, request info and body. The body is `None` if it was not read.
type ParsedRequest = (Owner, RequestInfo, Option<Bytes>);

impl<S, B> PendingRequest<S, B> {
    /// Parses the headers, and the body if it is JSON.
    fn poll_parse(&mut self, cx: &mut Context<'_>) -> Poll<Result<ParsedRequest, Rejection>>
    where
        B: Body + Unpin,
    {
        let (sessions, head) = (&self.sessions, RequestHeaders::read(&self.parts.headers));
        if self.parts.method != Method::POST || !head.is_json {
            let owner = sessions.owner(&self.parts);
            let info = parse::from_headers(sessions, &owner, &head, RequestKind::Other);
            return Poll::Ready(Ok((owner, info, None)));
        }
        let body = ready!(self.body_reader.poll_read(&mut self.body, sessions.body_limit(), cx))?;
        let owner = sessions.owner(&self.parts);
        let (info, edited) = parse::parse_body(sessions, &owner, &head, &body);
        Poll::Ready(Ok((owner, info, Some(edited.unwrap_or(body)))))
    }

    fn dispatch<R>(
        mut self,
        (owner, info, body): ParsedRequest,
    ) -> Step<S, B, S::Future, ServiceResult<R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        B: From<Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Send,
    {
        let request_session = RequestSession::new(self.sessions, owner, info);
        let full_path = needs_full_path(&request_session, &self.parts.method);
        self.parts.extensions.insert(SessionExtension(request_session.clone()));
        let request = Request::from_parts(self.parts, body.map_or(self.body, B::from));
        if full_path {
            return full_path_step(request_session, self.inner, request);
        }
        Step::Call { call: RequestScope::new(request_session, self.inner.call(request)) }
    }
}

/// Returns whether the request needs more than a session: connection check, cookie, list filter or disconnect.
fn needs_full_path(request_session: &RequestSession, method: &Method) -> bool {
    *method == Method::DELETE
        || request_session.unverified_connection().is_some()
        || matches!(request_session.session_ref(), SessionRef::Cookie(_))
        || matches!(request_session.kind(), RequestKind::Initialize | RequestKind::ToolList)
}

/// Kept out of line, so that the code of the common path stays compact.
#[cold]
#[inline(never)]
fn full_path_step<S, B, R>(
    request_session: Arc<RequestSession>,
    inner: S,
    request: Request<B>,
) -> Step<S, B, S::Future, ServiceResult<R, S::Error>>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    Step::Full { future: Box::pin(serve_full(request_session, inner, request)) }
}

/// Checks the connection, runs the request, and applies its effects on connection, cookie and tool list.
async fn serve_full<S, B, R>(
    request_session: Arc<RequestSession>,
    mut inner: S,
    request: Request<B>,
) -> ServiceResult<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    if let Some(name) = request_session.unverified_connection() {
        match check_connection(&request_session, name).await {
            Ok(true) => {}
            // The same text as rmcp's for an unknown session.
            Ok(false) => {
                return Ok(text_response(StatusCode::NOT_FOUND, "Not Found: Session not found"));
            }
            Err(error) => return Ok(error_response(&error.into())),
        }
    }
    let cookie = match request_session.session_ref() {
        SessionRef::Cookie(handle) => session_cookie(&request_session, handle.as_ref()).await,
        _ => None,
    };
    let deleted = request_session.connection_hash().filter(|_| *request.method() == Method::DELETE);
    let response = RequestScope::new(request_session.clone(), inner.call(request)).await?;
    if let Some(name) = deleted.filter(|_| response.status().is_success())
        && let Err(error) = request_session.sessions().registry().disconnect(name).await
    {
        return Ok(error_response(&error.into()));
    }
    if request_session.kind() == RequestKind::Initialize
        && let Some(id) = response.headers().get(mcp::MCP_SESSION_ID)
        && let Err(error) = record_connection(&request_session, id.as_bytes()).await
    {
        return Ok(error_response(&error));
    }
    if tool_list::needs_filter(&request_session, response.headers()) {
        return Ok(tool_list::filter_response(request_session.sessions(), response).await);
    }
    let (mut head, body) = response.into_parts();
    if let Some(set_cookie) = cookie {
        head.headers.append(SET_COOKIE, set_cookie);
    }
    Ok(Response::from_parts(head, ResponseBody::new(body, Some(request_session))))
}

/// Returns whether the owner has this connection.
async fn check_connection(
    request_session: &RequestSession,
    name: HandleHash,
) -> Result<bool, StoreError> {
    let registry = request_session.sessions().registry();
    match request_session.connection_id() {
        Some(id) => {
            registry.verify_connection_id(request_session.owner(), id.as_bytes(), name).await
        }
        None => registry.connection_exists(name).await,
    }
}

/// Records the owner of a new connection, unless [`ServerSessions::session_store`] has done so.
async fn record_connection(request_session: &RequestSession, id: &[u8]) -> Result<(), Error> {
    let (registry, name) =
        (request_session.sessions().registry(), connection_hash(request_session.owner(), id));
    request_session.sessions().start_sweeper();
    if !registry.connection_exists(name).await? {
        registry.connect(request_session.owner(), name, Vec::new()).await?;
    }
    Ok(())
}

/// Returns the `Set-Cookie` header if the session is named by cookie. The header is sent before the handler runs, so
/// the session is opened here.
async fn session_cookie(
    request_session: &RequestSession,
    handle: Option<&Handle>,
) -> Option<HeaderValue> {
    if !request_session.sessions().name_sources().contains(&NameSource::Cookie)
        || !matches!(request_session.kind(), RequestKind::ToolCall | RequestKind::Other)
    {
        return None;
    }
    let (cookie, expiry) = (
        request_session.sessions().cookie(),
        request_session.sessions().registry().settings.expiry,
    );
    match request_session.session().await {
        Ok(_) => cookie.set_cookie(handle.or(request_session.open_minted_handle()), expiry),
        // R045: the handler reports the error; without the cookie the client gets a new session.
        Err(Error::Session(
            stayput_core::SessionOpenError::Unknown | stayput_core::SessionOpenError::Ended(_),
        )) => cookie.set_cookie(None, expiry),
        Err(_) => None,
    }
}

fn error_response<R>(error: &Error) -> Response<ResponseBody<R>> {
    text_response(error.status(), error.to_string())
}

fn text_response<R>(status: StatusCode, sentence: impl Into<Bytes>) -> Response<ResponseBody<R>> {
    let mut response = Response::new(ResponseBody::text(sentence.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.step {
            Step::Read { .. } => "ResponseFuture(reading)",
            Step::Call { .. } | Step::Full { .. } => "ResponseFuture(running)",
        })
    }
}
