//! The HTTP front: one path for each server.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stayput_wire::{Code, header as mcp};
use tokio::net::TcpStream;

use super::post;
use crate::{
    connection::Connection,
    house::{House, Rules},
    identify::{self, cookie, path},
    listening,
    reply::{self, Reply},
    target::Target,
};

/// Serves one connection of TCP until it ends, or until `stop`.
pub(crate) async fn serve(house: Arc<House>, socket: TcpStream, stop: impl Future<Output = ()>) {
    // Small answers wait for nobody.
    let _ = socket.set_nodelay(true);
    let service = service_fn(move |request| {
        let house = house.clone();
        async move { Ok::<_, Infallible>(answer(&house, request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(std::time::Duration::from_secs(30));
    let connection = http.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    tokio::pin!(stop);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(house: &Arc<House>, request: Request<Incoming>) -> Response<Reply> {
    let uri = request.uri().clone();
    let path = uri.path();
    if matches!(path, "/healthz" | "/readyz") {
        return reply::status(StatusCode::OK);
    }
    if let Some(refusal) = foreign(&house.rules, request.headers()) {
        return refusal;
    }
    let path::Split { path, key } = match split(house, path) {
        Ok(split) => split,
        Err(error) => {
            let (status, sentence) = (StatusCode::BAD_REQUEST, error.to_string());
            return reply::refusal(status, None, Code::INVALID_REQUEST, &sentence);
        }
    };
    let Some(target) = target(house, path) else {
        let known: Vec<_> = house.servers.keys().map(|name| format!("/mcp/{name}")).collect();
        let sentence = format!("there is nothing here; servers are at {}", known.join(", "));
        return reply::refusal(StatusCode::NOT_FOUND, None, Code::INVALID_REQUEST, &sentence);
    };
    match *request.method() {
        Method::POST => post(house, &At { target, key }, request).await,
        Method::GET => get(house, &target, request.headers()).await,
        Method::DELETE => delete(house, &target, request.headers()).await,
        _ => {
            let mut refused = reply::status(StatusCode::METHOD_NOT_ALLOWED);
            let allowed = http::HeaderValue::from_static("GET, POST, DELETE");
            refused.headers_mut().insert(header::ALLOW, allowed);
            refused
        }
    }
}

/// Where a request goes.
pub(super) struct At {
    pub(super) target: Target,
    /// The session in the path.
    pub(super) key: Option<String>,
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
    let name = path.strip_prefix("/mcp/")?;
    let (name, _) = house.servers.get_key_value(name)?;
    Some(Target::Server(name.as_str().into()))
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
async fn read(mut body: Incoming, limit: usize) -> Result<Bytes, Response<Reply>> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut size = 0_usize;
    while let Some(frame) = body.frame().await {
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
    target: &Target,
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
    let found = match house.connection(&identify::owner(headers), &name).await {
        Ok(found) => found,
        Err(error) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let sentence = error.to_string();
            return Err(reply::refusal(status, None, Code::INTERNAL_ERROR, &sentence));
        }
    };
    // On another path it is as good as unknown.
    found.filter(|it| it.target == *target).ok_or_else(unknown)
}

async fn get(house: &Arc<House>, target: &Target, headers: &HeaderMap) -> Response<Reply> {
    if !accepts(headers, mcp::EVENT_STREAM) {
        return reply::status(StatusCode::NOT_ACCEPTABLE);
    }
    let connection = match named(house, target, headers).await {
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

async fn delete(house: &Arc<House>, target: &Target, headers: &HeaderMap) -> Response<Reply> {
    if let Err(refused) = named(house, target, headers).await {
        return refused;
    }
    let Some(name) = cookie::connection(house, headers) else {
        return reply::status(StatusCode::NOT_FOUND);
    };
    // In a task of its own: a client that does not wait for the answer has said goodbye all the same.
    let (leaving, owner) = (house.clone(), identify::owner(headers));
    let left = tokio::runtime::Handle::current()
        .spawn(async move { leaving.disconnect(&owner, &name).await });
    match left.await.unwrap_or(Ok(true)) {
        Ok(true) => reply::status(StatusCode::OK),
        Ok(false) => reply::status(StatusCode::NOT_FOUND),
        Err(error) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            reply::refusal(status, None, Code::INTERNAL_ERROR, &error.to_string())
        }
    }
}

pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let said = headers.get_all(header::ACCEPT);
    said.iter()
        .any(|said| said.to_str().is_ok_and(|said| said.contains(kind) || said.contains("*/*")))
}
