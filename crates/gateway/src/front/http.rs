//! The HTTP front: one path for each server, and one for all.

use std::{convert::Infallible, net::IpAddr, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stayput_wire::{Code, header as mcp};
use tokio::net::TcpStream;

use super::{metadata, post, sse};
use crate::{
    admin,
    connection::Connection,
    house::{House, Rules},
    identify::{cookie, path},
    listening, modern,
    owners::Principal,
    reply::{self, Reply},
    target::Target,
};

/// How long a body may not go on.
const BODY: Duration = Duration::from_secs(30);

/// How long the head of a request may take, and how large it may be.
pub(super) const HEAD: Duration = Duration::from_secs(30);
pub(super) const HEAD_SIZE: usize = 64 << 10;

/// Serves one connection of TCP until it ends, or until `stop`.
pub(crate) async fn serve(house: Arc<House>, socket: TcpStream, stop: impl Future<Output = ()>) {
    let Ok(from) = socket.peer_addr() else { return };
    // Small answers wait for nobody.
    let _ = socket.set_nodelay(true);
    let stopping = house.clone();
    let service = service_fn(move |request| {
        let house = house.clone();
        async move { Ok::<_, Infallible>(answer(&house, from.ip(), request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_SIZE);
    let connection = http.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    tokio::pin!(stop);
    // Once it knows whom to wake, all sockets leave it alone until it is time.
    let mut known = false;
    let stop = std::future::poll_fn(|cx| {
        if std::mem::replace(&mut known, true) && !stopping.health.is_stopping() {
            return Poll::Pending;
        }
        stop.as_mut().poll(cx)
    });
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(house: &Arc<House>, from: IpAddr, request: Request<Incoming>) -> Response<Reply> {
    if let Some(health) = health(house, request.uri().path()) {
        return health;
    }
    let response = enter(house, from, request).await;
    count_refusal(house, response.status());
    response
}

/// How it goes. Whoever asks for that may call us by any name: there is nothing to be learned from it.
pub(super) fn health(house: &House, path: &str) -> Option<Response<Reply>> {
    match (path, house.health.problem()) {
        ("/healthz", _) | ("/readyz", None) => Some(reply::text(StatusCode::OK, "ok")),
        ("/readyz", Some(problem)) => Some(reply::text(StatusCode::SERVICE_UNAVAILABLE, problem)),
        _ => None,
    }
}

/// Who is not from elsewhere, and says who it is, gets to its server.
async fn enter(house: &Arc<House>, from: IpAddr, request: Request<Incoming>) -> Response<Reply> {
    let path = request.uri().path();
    if let Some(refusal) =
        too_large(request.headers()).or_else(|| foreign(&house.rules, request.headers()))
    {
        return refusal;
    }
    if let Some(metadata) = metadata::of(house, path) {
        return metadata;
    }
    let principal = match house.owners.principal(from, request.headers()).await {
        Ok(principal) => principal,
        Err(stranger) => return stranger.answer(metadata::url(house, path).as_deref()),
    };
    inside(house, principal, request).await
}

/// Who was let in gets to where it wants to.
pub(super) async fn inside(
    house: &Arc<House>,
    principal: Principal,
    request: Request<Incoming>,
) -> Response<Reply> {
    let path = request.uri().path();
    if path == "/metrics" {
        return reply::metrics(house.metrics_page());
    }
    if admin::has(path) {
        let (method, uri) = (request.method(), request.uri());
        return Box::pin(admin::answer(house, &principal, method, uri)).await;
    }
    if house.health.is_stopping() {
        let sentence = "the gateway is stopping; try again in a moment";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return reply::refusal(status, None, Code::INTERNAL_ERROR, sentence);
    }
    if let Some(at) = sse::At::of(path) {
        // In a box, as all that is rare: every request would have to be as large.
        return Box::pin(sse::answer(house, (at, principal), request)).await;
    }
    let path::Split { path, key } = match split(house, path) {
        Ok(split) => split,
        Err(error) => {
            let (status, sentence) = (StatusCode::BAD_REQUEST, error.to_string());
            return reply::refusal(status, None, Code::INVALID_REQUEST, &sentence);
        }
    };
    let Some(target) = target(house, path) else {
        return nowhere(house);
    };
    let at = At { target, key, principal };
    match *request.method() {
        Method::POST => post(house, &at, request).await,
        // What a modern client has to say it posts.
        _ if modern::is_named(request.headers()) => only("POST"),
        Method::GET => Box::pin(get(house, &at, request.headers())).await,
        Method::DELETE => Box::pin(delete(house, &at, request.headers())).await,
        _ => only("GET, POST, DELETE"),
    }
}

/// There is no such path.
pub(super) fn nowhere(house: &House) -> Response<Reply> {
    let known: Vec<_> = house.servers.keys().map(|name| format!("/mcp/{name}")).collect();
    let sentence = match known.is_empty() {
        true => "there is nothing here, and no server is configured".to_owned(),
        false => {
            let known = known.join(", ");
            format!("there is nothing here; servers are at {known}, and all at /mcp")
        }
    };
    reply::refusal(StatusCode::NOT_FOUND, None, Code::INVALID_REQUEST, &sentence)
}

/// The method is not one of these.
pub(super) fn only(methods: &'static str) -> Response<Reply> {
    let mut refused = reply::status(StatusCode::METHOD_NOT_ALLOWED);
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    refused
}

/// Where a request goes.
pub(super) struct At {
    pub(super) target: Target,
    /// The session in the path.
    pub(super) key: Option<String>,
    /// Who it is from.
    pub(super) principal: Principal,
}

/// A path, and the session in it, if a path can name one.
fn split<'a>(house: &House, path: &'a str) -> Result<path::Split<'a>, path::NoKey> {
    match house.identify.configured.carriers.path {
        true => path::split(path),
        false => Ok(path::Split { path, key: None }),
    }
}

/// Where a path leads; nowhere if there is no such server.
fn target(house: &House, path: &str) -> Option<Target> {
    if path == "/mcp" {
        return Some(Target::All);
    }
    server(house, path.strip_prefix("/mcp/")?)
}

/// One server; nothing if there is none of this name.
pub(super) fn server(house: &House, name: &str) -> Option<Target> {
    house.servers.get(name).map(|server| Target::Server(server.shared_name()))
}

/// Counts a request that is answered with a status that says no.
fn count_refusal(house: &House, status: StatusCode) {
    let why = match status {
        StatusCode::BAD_REQUEST => "malformed",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "foreign",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method",
        StatusCode::NOT_ACCEPTABLE => "not_acceptable",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        other if other.is_client_error() || other.is_server_error() => "other",
        _ => return,
    };
    house.metrics.refused(why);
}

/// A head that is larger than what one is read in never comes here; this one is told why.
fn too_large(headers: &HeaderMap) -> Option<Response<Reply>> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    (size > HEAD_SIZE).then(|| {
        let sentence = format!("the headers have more than {HEAD_SIZE} bytes, which is the limit");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        reply::refusal(status, None, Code::INVALID_REQUEST, &sentence)
    })
}

/// A page of somebody else, open in a browser on this machine, must not reach us by a name of its own.
fn foreign(rules: &Rules, headers: &HeaderMap) -> Option<Response<Reply>> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    if !is_local(host) && !rules.allowed_hosts.iter().any(|allowed| allowed == host) {
        let sentence = "this Host is not allowed; add it to `allowed_hosts`";
        return Some(reply::refusal(StatusCode::FORBIDDEN, None, Code::INVALID_REQUEST, sentence));
    }
    let origin = text(header::ORIGIN)?;
    let of = origin.split_once("://").map_or(origin, |(_, host)| host);
    let allowed = rules.allowed_origins.iter().any(|allowed| allowed == origin);
    (!is_local(of) && !allowed).then(|| {
        let sentence = "this Origin is not allowed; add it to `allowed_origins`";
        reply::refusal(StatusCode::FORBIDDEN, None, Code::INVALID_REQUEST, sentence)
    })
}

fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    matches!(name, "localhost" | "127.0.0.1" | "::1")
}

async fn post(house: &Arc<House>, at: &At, request: Request<Incoming>) -> Response<Reply> {
    let (head, body) = request.into_parts();
    let body = match read(body, house.rules.body_limit).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    post::take(house, at, &head.headers, &body).await
}

/// The whole body. Of one that is too large some more is read and dropped: a client that is still sending
/// would see its connection break instead of the answer.
pub(super) async fn read(mut body: Incoming, limit: usize) -> Result<Bytes, Response<Reply>> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut size = 0_usize;
    loop {
        let Ok(frame) = tokio::time::timeout(BODY, body.frame()).await else {
            let sentence = "nothing more of the body came for 30 s; send the whole request at once";
            let status = StatusCode::REQUEST_TIMEOUT;
            let mut refused = reply::refusal(status, None, Code::INVALID_REQUEST, sentence);
            refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return Err(refused);
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else { return Err(reply::status(StatusCode::BAD_REQUEST)) };
        let Ok(data) = frame.into_data() else { continue };
        size = size.saturating_add(data.len());
        if size > limit.saturating_mul(2) {
            break;
        }
        if size <= limit {
            parts.push(data);
        } else {
            parts.clear();
        }
    }
    if size > limit {
        let sentence = format!("the body has more than {limit} bytes, which is the limit");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(reply::refusal(status, None, Code::INVALID_REQUEST, &sentence));
    }
    // Most come in one piece, and are not copied.
    Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
}

/// The connection that a request names; what to answer if it names none that is known.
pub(super) async fn named(
    house: &Arc<House>,
    at: &At,
    headers: &HeaderMap,
) -> Result<Arc<Connection>, Response<Reply>> {
    let by_cookie = cookie::is_on(house) && cookie::read(headers).is_some();
    if !by_cookie && !headers.contains_key(mcp::SESSION_ID) {
        let sentence = "Mcp-Session-Id is missing: begin with `initialize`, and send the id that its \
                        answer carries";
        let status = StatusCode::BAD_REQUEST;
        return Err(reply::refusal(status, None, Code::INVALID_REQUEST, sentence));
    }
    let unknown = || {
        let sentence = "Session not found: it was ended, or never was; begin with `initialize`";
        reply::refusal(StatusCode::NOT_FOUND, None, Code::INVALID_REQUEST, sentence)
    };
    let name = cookie::connection(house, headers).ok_or_else(unknown)?;
    let found = match house.connection(&at.principal.owner, &name).await {
        Ok(found) => found,
        Err(error) => {
            return Err(reply::unavailable(&error.to_string()));
        }
    };
    // On another path it is as good as unknown.
    found.filter(|it| it.target == at.target).ok_or_else(unknown)
}

async fn get(house: &Arc<House>, at: &At, headers: &HeaderMap) -> Response<Reply> {
    if !accepts(headers, mcp::EVENT_STREAM) {
        return reply::status(StatusCode::NOT_ACCEPTABLE);
    }
    let connection = match named(house, at, headers).await {
        Ok(connection) => connection,
        Err(refused) => return refused,
    };
    let last = headers.get(mcp::LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let place = last.and_then(|id| house.ids.open(&connection.owner, connection.session, id).ok());
    if let Some((topic, number)) = place
        && let Some(stream) = connection.streams.get(topic.stream)
    {
        let ear = connection.ear().is_some_and(|ear| Arc::ptr_eq(&ear, &stream));
        if !ear {
            return reply::stream(stream.read_after(number, &house.ids));
        }
        if !stream.has_ended() {
            let session =
                house.sessions.by_id(&connection.owner, connection.default_session()).await.ok();
            listening::resume(house, &connection).await;
            return reply::stream(stream.read_after(number, &house.ids).keeping(session));
        }
    }
    let session = house.sessions.by_id(&connection.owner, connection.default_session()).await.ok();
    let stream = listening::open(house, &connection).await;
    reply::stream(stream.read_after(0, &house.ids).keeping(session))
}

async fn delete(house: &Arc<House>, at: &At, headers: &HeaderMap) -> Response<Reply> {
    if let Err(refused) = named(house, at, headers).await {
        return refused;
    }
    let Some(name) = cookie::connection(house, headers) else {
        return reply::status(StatusCode::NOT_FOUND);
    };
    // In a task of its own: a client that does not wait for the answer has said goodbye all the same.
    let (leaving, owner) = (house.clone(), at.principal.owner.clone());
    let left = tokio::runtime::Handle::current()
        .spawn(async move { leaving.disconnect(&owner, &name).await });
    match left.await.unwrap_or(Ok(true)) {
        Ok(true) => reply::status(StatusCode::OK),
        Ok(false) => reply::status(StatusCode::NOT_FOUND),
        Err(error) => reply::unavailable(&error.to_string()),
    }
}

pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let said = headers.get_all(header::ACCEPT);
    said.iter()
        .any(|said| said.to_str().is_ok_and(|said| said.contains(kind) || said.contains("*/*")))
}
