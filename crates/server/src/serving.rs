//! A request on its way through the layer.

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

use crate::{
    Carrier, Error, Keeper,
    answer::Answer,
    ask::{self, Kind},
    carrier::{Claim, connection_name},
    head::Head,
    listed,
    pieces::{Pieces, Refusal},
    scope::Scoped,
    visit::{Carried, Meant, Visit},
};

/// What a request comes to in the end.
type Served<R, E> = Result<Response<Answer<R>>, E>;

pin_project! {
    /// A request on its way through the layer. By hand: every request goes this way, so it has no box of its own, and
    /// what few of them need is in one.
    #[must_use]
    pub struct Serving<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<S, B, S::Future, Served<R, S::Error>>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S, B, F, T> {
        /// What it says is read.
        Read { unread: Option<Unread<S, B>> },
        /// It was passed on.
        Call {
            #[pin]
            call: Scoped<F>,
        },
        /// It needs more than that.
        Rare { rest: Pin<Box<dyn Future<Output = T> + Send>> },
    }
}

/// A request that was not read yet.
struct Unread<S, B> {
    keeper: Keeper,
    inner: S,
    parts: Parts,
    body: B,
    pieces: Pieces,
}

impl<S, B, R> Serving<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(keeper: Keeper, inner: S, request: Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        let unread = Some(Unread { keeper, inner, parts, body, pieces: Pieces::default() });
        Self { step: Step::Read { unread } }
    }
}

impl<S, B, R> Future for Serving<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Unpin + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Output = Served<R, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                StepProj::Read { unread } => {
                    let Some(request) = unread else { return Poll::Pending };
                    let understood = ready!(request.poll_understood(cx));
                    match (understood, unread.take()) {
                        (Ok(understood), Some(request)) => request.pass_on(understood),
                        (Err((status, sentence)), _) => {
                            return Poll::Ready(Ok(refuse(status, sentence)));
                        }
                        (_, None) => return Poll::Pending,
                    }
                }
                StepProj::Call { mut call } => {
                    let answer = ready!(call.as_mut().poll(cx))?;
                    let visit = call.take();
                    return Poll::Ready(Ok(answer.map(|body| Answer::of(body, visit))));
                }
                StepProj::Rare { rest } => return rest.as_mut().poll(cx),
            };
            step.set(next);
        }
    }
}

/// What is known of a request once it was read: who asks, what is meant, and its body, if that was read for it.
type Understood = (Owner, Meant, Option<Bytes>);

impl<S, B> Unread<S, B> {
    /// Reads the body of a request, if it is JSON, once.
    fn poll_understood(&mut self, cx: &mut Context<'_>) -> Poll<Result<Understood, Refusal>>
    where
        B: Body + Unpin,
    {
        let (keeper, head) = (&self.keeper, Head::read(&self.parts.headers));
        if self.parts.method != Method::POST || !head.json {
            let owner = keeper.owner(&self.parts);
            let meant = ask::plain(keeper, &owner, &head, Kind::Other);
            return Poll::Ready(Ok((owner, meant, None)));
        }
        let body = ready!(self.pieces.poll_whole(&mut self.body, keeper.body_limit(), cx))?;
        let owner = keeper.owner(&self.parts);
        let (meant, edited) = ask::read(keeper, &owner, &head, &body);
        Poll::Ready(Ok((owner, meant, Some(edited.unwrap_or(body)))))
    }

    fn pass_on<R>(
        mut self,
        (owner, meant, body): Understood,
    ) -> Step<S, B, S::Future, Served<R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        B: From<Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Send,
    {
        let visit = Visit::new(self.keeper, owner, meant);
        let rare = is_rare(&visit, &self.parts.method);
        self.parts.extensions.insert(Carried(visit.clone()));
        let request = Request::from_parts(self.parts, body.map_or(self.body, B::from));
        if rare {
            return rarely(visit, self.inner, request);
        }
        Step::Call { call: Scoped::new(visit, self.inner.call(request)) }
    }
}

/// Whether something is to be done for a request beside telling it its session.
fn is_rare(visit: &Visit, method: &Method) -> bool {
    *method == Method::DELETE
        || visit.doubtful().is_some()
        || matches!(visit.claim(), Claim::Cookie(_))
        || matches!(visit.kind(), Kind::Initialize | Kind::Tools)
}

/// What is rare is kept apart, so that what every request needs is close together.
#[cold]
#[inline(never)]
fn rarely<S, B, R>(
    visit: Arc<Visit>,
    inner: S,
    request: Request<B>,
) -> Step<S, B, S::Future, Served<R, S::Error>>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    Step::Rare { rest: Box::pin(serve(visit, inner, request)) }
}

/// All that is to be done.
async fn serve<S, B, R>(visit: Arc<Visit>, mut inner: S, request: Request<B>) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    if let Some(name) = visit.doubtful() {
        match is_connected(&visit, name).await {
            Ok(true) => {}
            // As rmcp says it of one that never was.
            Ok(false) => return Ok(refuse(StatusCode::NOT_FOUND, "Not Found: Session not found")),
            Err(error) => return Ok(refused(&error.into())),
        }
    }
    let cookie = match visit.claim() {
        Claim::Cookie(said) => cookie(&visit, said.as_ref()).await,
        _ => None,
    };
    let deleted = visit.connection().filter(|_| *request.method() == Method::DELETE);
    let answer = Scoped::new(visit.clone(), inner.call(request)).await?;
    if let Some(name) = deleted.filter(|_| answer.status().is_success())
        && let Err(error) = visit.keeper().shared().disconnect(name).await
    {
        return Ok(refused(&error.into()));
    }
    if visit.kind() == Kind::Initialize
        && let Some(id) = answer.headers().get(mcp::SESSION_ID)
        && let Err(error) = connect(&visit, id.as_bytes()).await
    {
        return Ok(refused(&error));
    }
    if listed::is_too_long(&visit, answer.headers()) {
        return Ok(listed::shortened(visit.keeper(), answer).await);
    }
    let (mut head, body) = answer.into_parts();
    if let Some(line) = cookie {
        head.headers.append(SET_COOKIE, line);
    }
    Ok(Response::from_parts(head, Answer::of(body, Some(visit))))
}

/// Whether there is this connection, for whoever asks.
async fn is_connected(visit: &Visit, name: HandleHash) -> Result<bool, StoreError> {
    let shared = visit.keeper().shared();
    match visit.client() {
        Some(id) => shared.is_called(visit.owner(), id.as_bytes(), name).await,
        None => shared.is_connected(name).await,
    }
}

/// Notes whose a connection is that was just made, unless [`Keeper::session_store`] has.
async fn connect(visit: &Visit, id: &[u8]) -> Result<(), Error> {
    let (shared, name) = (visit.keeper().shared(), connection_name(visit.owner(), id));
    visit.keeper().tend();
    if !shared.is_connected(name).await? {
        shared.connect(visit.owner(), name, Vec::new()).await?;
    }
    Ok(())
}

/// `Set-Cookie`, where the cookie is what names the session. It is in the head of the answer, so the session
/// is found before its handler wants it.
async fn cookie(visit: &Visit, said: Option<&Handle>) -> Option<HeaderValue> {
    if !visit.keeper().carriers().contains(&Carrier::Cookie)
        || !matches!(visit.kind(), Kind::Tool | Kind::Other)
    {
        return None;
    }
    let (cookie, expiry) = (visit.keeper().cookie(), visit.keeper().shared().settings.expiry);
    match visit.session().await {
        Ok(_) => cookie.line(said.or(visit.given()), expiry),
        // R045: it is told, and whoever comes without it gets a new one.
        Err(Error::Session(
            stayput_core::OpenError::Unknown | stayput_core::OpenError::Over(_),
        )) => cookie.line(None, expiry),
        Err(_) => None,
    }
}

fn refused<R>(error: &Error) -> Response<Answer<R>> {
    refuse(error.status(), error.to_string())
}

fn refuse<R>(status: StatusCode, sentence: impl Into<Bytes>) -> Response<Answer<R>> {
    let mut answer = Response::new(Answer::ours(sentence.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

impl<S, B, R> fmt::Debug for Serving<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.step {
            Step::Read { .. } => "Serving(it is read)",
            Step::Call { .. } | Step::Rare { .. } => "Serving(it was passed on)",
        })
    }
}
