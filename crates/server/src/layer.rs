//! What goes around a service over HTTP.

use std::{
    error::Error as StdError,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, SET_COOKIE},
    request::Parts,
};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use stayput_core::Owner;
use stayput_wire::header as mcp;
use tower_service::Service;

use crate::{
    Carrier, Error, Keeper,
    answer::Answer,
    ask::{Ask, Kind},
    carrier::{Claim, connection_name},
    visit::{Carried, Visit},
};

/// Tells every request of a service its session: reads what names it, checks whose it is, and lets handlers have
/// its [`State`](crate::State). See [`Keeper::layer`].
#[derive(Clone, Debug)]
pub struct Layer {
    keeper: Keeper,
}

impl Layer {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self { keeper }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Layered<S>;

    fn layer(&self, inner: S) -> Layered<S> {
        Layered { keeper: self.keeper.clone(), inner }
    }
}

/// A service whose requests know their session. See [`Keeper::layer`].
#[derive(Clone, Debug)]
pub struct Layered<S> {
    keeper: Keeper,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Layered<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    R: Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = Response<Answer<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is the one that is called.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(serve(self.keeper.clone(), inner, request))
    }
}

async fn serve<S, B, R>(
    keeper: Keeper,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<Answer<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: Body + From<Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let (mut parts, body) = request.into_parts();
    let owner = keeper.owner(&parts);
    let (ask, body) = match understand(&keeper, &owner, &parts, body).await {
        Ok(understood) => understood,
        Err(refused) => return Ok(refuse(refused.0, refused.1)),
    };
    let kind = ask.meant.kind;
    let connection = parts.headers.get(mcp::SESSION_ID).filter(|_| !ask.modern).cloned();
    if let Some(id) = &connection {
        let name = connection_name(&owner, id.as_bytes());
        match keeper.shared().is_connected(name).await {
            Ok(true) => {}
            // As rmcp says it of one that never was.
            Ok(false) => return Ok(refuse(StatusCode::NOT_FOUND, "Not Found: Session not found")),
            Err(error) => return Ok(refused(&error.into())),
        }
    }
    let visit = Visit::new(&keeper, owner, ask.meant);
    let cookie = cookie(&visit, kind).await;
    parts.extensions.insert(Carried(visit.clone()));
    let deleted = connection.filter(|_| parts.method == Method::DELETE);
    let answer = visit.scope(inner.call(Request::from_parts(parts, body))).await?;
    if let Some(id) = deleted.filter(|_| answer.status().is_success())
        && let Err(error) = disconnect(&visit, &id).await
    {
        return Ok(refused(&error));
    }
    if kind == Kind::Initialize
        && let Some(id) = answer.headers().get(mcp::SESSION_ID)
        && let Err(error) = connect(&visit, id.as_bytes()).await
    {
        return Ok(refused(&error));
    }
    let (mut head, body) = answer.into_parts();
    if let Some(line) = cookie {
        head.headers.append(SET_COOKIE, line);
    }
    Ok(Response::from_parts(head, Answer::of(body, visit)))
}

/// Reads the body of a request, if it is JSON, once.
async fn understand<B>(
    keeper: &Keeper,
    owner: &Owner,
    parts: &Parts,
    body: B,
) -> Result<(Ask, B), (StatusCode, &'static str)>
where
    B: Body + From<Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(mcp::JSON.as_bytes()));
    if parts.method != Method::POST || !json {
        return Ok((Ask::plain(keeper, owner, &parts.headers, Kind::Other), body));
    }
    let read = Limited::new(body, keeper.body_limit()).collect().await;
    let read = read.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return (
                StatusCode::PAYLOAD_TOO_LARGE,
                "Payload Too Large: the body has too many bytes",
            );
        }
        (StatusCode::BAD_REQUEST, "Bad Request: the body could not be read")
    })?;
    let mut ask = Ask::read(keeper, owner, &parts.headers, read.to_bytes());
    let body = ask.body.take().unwrap_or_default();
    Ok((ask, B::from(body)))
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

/// A connection is over, and so is the session that was made with it, unless somebody else counts on it.
async fn disconnect(visit: &Visit, id: &HeaderValue) -> Result<(), Error> {
    let (shared, name) = (visit.keeper().shared(), connection_name(visit.owner(), id.as_bytes()));
    shared.disconnect(name).await?;
    Ok(())
}

/// `Set-Cookie`, where the cookie is what names the session. It is in the head of the answer, so the session
/// is found before its handler wants it.
async fn cookie(visit: &Visit, kind: Kind) -> Option<HeaderValue> {
    let Claim::Cookie(said) = visit.claim() else { return None };
    if !visit.keeper().carriers().contains(&Carrier::Cookie)
        || !matches!(kind, Kind::Tool | Kind::Other)
    {
        return None;
    }
    let (cookie, expiry) = (visit.keeper().cookie(), visit.keeper().shared().settings.expiry);
    match visit.session().await {
        Ok(_) => cookie.line(said.as_ref().or(visit.given()), expiry),
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
