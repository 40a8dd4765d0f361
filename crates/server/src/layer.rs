//! What goes around a service over HTTP.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, SET_COOKIE},
    request::Parts,
};
use http_body::Body;
use http_body_util::BodyExt as _;
use stayput_core::{Handle, HandleHash, Owner, StoreError};
use stayput_wire::header as mcp;
use tower_service::Service;

use crate::{
    Carrier, Error, Keeper,
    answer::Answer,
    ask::{self, Kind},
    carrier::{Claim, connection_name},
    listed,
    visit::{Carried, Meant, Visit},
};

/// Tells every request of a service its session: reads what names it, checks whose it is, and lets handlers have
/// its [`State`](crate::State). See [`Keeper::layer`].
#[derive(Clone, Debug)]
#[must_use]
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
#[must_use]
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
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
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
    R: Body<Data = Bytes>,
{
    let (mut parts, body) = request.into_parts();
    let owner = keeper.owner(&parts);
    let (meant, body) = match understand(&keeper, &owner, &parts, body).await {
        Ok(understood) => understood,
        Err(refused) => return Ok(refuse(refused.0, refused.1)),
    };
    let visit = Visit::new(keeper, owner, meant);
    if let Some(name) = visit.connection() {
        match is_connected(visit.keeper(), name).await {
            Ok(true) => {}
            // As rmcp says it of one that never was.
            Ok(false) => return Ok(refuse(StatusCode::NOT_FOUND, "Not Found: Session not found")),
            Err(error) => return Ok(refused(&error.into())),
        }
    }
    // What is rare is kept apart, so that what every request is moved with stays small.
    let cookie = match visit.claim() {
        Claim::Cookie(said) => Box::pin(cookie(&visit, said.as_ref())).await,
        _ => None,
    };
    parts.extensions.insert(Carried(visit.clone()));
    let deleted = visit.connection().filter(|_| parts.method == Method::DELETE);
    let answer = visit.scope(inner.call(Request::from_parts(parts, body))).await?;
    if let Some(name) = deleted.filter(|_| answer.status().is_success())
        && let Err(error) = Box::pin(visit.keeper().shared().disconnect(name)).await
    {
        return Ok(refused(&error.into()));
    }
    if visit.kind() == Kind::Initialize
        && let Some(id) = answer.headers().get(mcp::SESSION_ID)
        && let Err(error) = Box::pin(connect(&visit, id.as_bytes())).await
    {
        return Ok(refused(&error));
    }
    if listed::is_too_long(&visit, answer.headers()) {
        return Ok(Box::pin(listed::shortened(visit.keeper(), answer)).await);
    }
    let (mut head, body) = answer.into_parts();
    if let Some(line) = cookie {
        head.headers.append(SET_COOKIE, line);
    }
    Ok(Response::from_parts(head, Answer::of(body, visit)))
}

/// Why a request is not passed on.
type Refusal = (StatusCode, &'static str);

/// Reads the body of a request, if it is JSON, once.
async fn understand<B>(
    keeper: &Keeper,
    owner: &Owner,
    parts: &Parts,
    body: B,
) -> Result<(Meant, B), Refusal>
where
    B: Body + From<Bytes>,
{
    let json = parts.headers.get(CONTENT_TYPE);
    let json = json.is_some_and(|it| it.as_bytes().starts_with(mcp::JSON.as_bytes()));
    if parts.method != Method::POST || !json {
        return Ok((ask::plain(keeper, owner, &parts.headers, Kind::Other), body));
    }
    let body = whole(body, keeper.body_limit()).await?;
    let (meant, edited) = ask::read(keeper, owner, &parts.headers, &body);
    Ok((meant, B::from(edited.unwrap_or(body))))
}

/// All of a body. It nearly always comes in one piece, and then nothing is copied.
async fn whole<B: Body>(body: B, limit: usize) -> Result<Bytes, Refusal> {
    const LARGE: Refusal =
        (StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large: the body has too many bytes");
    const BROKEN: Refusal = (StatusCode::BAD_REQUEST, "Bad Request: the body could not be read");
    let mut body = pin!(body);
    if body.size_hint().lower() > limit as u64 {
        return Err(LARGE);
    }
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(mut piece) = frame.map_err(|_| BROKEN)?.into_data() else { continue };
        if piece.remaining() > limit - first.len().max(more.len()) {
            return Err(LARGE);
        }
        if first.is_empty() {
            first = piece.copy_to_bytes(piece.remaining());
        } else {
            if more.is_empty() {
                more.extend_from_slice(&first);
            }
            more.put(piece);
        }
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}

/// Whether there is this connection, for whoever asks.
async fn is_connected(keeper: &Keeper, name: HandleHash) -> Result<bool, StoreError> {
    let shared = keeper.shared();
    if shared.trusts(name) {
        return Ok(true);
    }
    Box::pin(shared.is_connected(name)).await
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    /// R060: a body is read whole, however it comes, and no further than it may be long.
    #[tokio::test]
    async fn a_body_in_pieces_is_whole() {
        let pieces = |texts: &[&'static str]| {
            let frame = |text: &&'static str| Ok::<_, Infallible>(Frame::data(Bytes::from(*text)));
            StreamBody::new(futures_util::stream::iter(texts.iter().map(frame).collect::<Vec<_>>()))
        };
        for texts in [&["abc"][..], &["a", "b", "c"], &["", "ab", "", "c"]] {
            assert_eq!(whole(pieces(texts), 3).await.unwrap(), "abc", "{texts:?}");
        }
        assert_eq!(whole(pieces(&[]), 3).await.unwrap(), "");
        for texts in [&["abcd"][..], &["ab", "cd"], &["a", "b", "c", "d"]] {
            let (status, _) = whole(pieces(texts), 3).await.unwrap_err();
            assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{texts:?}");
        }
        let (status, _) = whole(Full::<Bytes>::from("abcd"), 3).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
