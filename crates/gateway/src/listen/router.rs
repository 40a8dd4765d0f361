//! HTTP router: `/mcp/<server>` for each server, and `/mcp` for all of them.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, request::Parts};
use stayput_core::{Owner, SessionOpenError};
use stayput_identify::{InvalidPathKey, SplitPath};
use stayput_wire::{Code, header as mcp};

use super::{
    host_check, post,
    refusal::{count_refusal, method_not_allowed, no_metrics, path_not_found},
};
use crate::{
    admin::{self, dashboard},
    auth::{AuthError, MetricsAccess, Principal, rate_limit::RateLimited},
    call::era,
    cluster::{self, SignatureError, VerifiedRequest},
    config::target::Target,
    connections::{connection::ConnectionGuard, legacy_clients::LegacyClient},
    identify::{cookie, header_names, read_connection_name, renew_cookie},
    listen::{access, forward, home_page, legacy_sse, page_login, replica_requests, well_known},
    messages::listen_stream,
    reply::{self, Reply, SocketTimer, accepts},
    state::AppState,
};

/// Origin of a request, which decides how it is authenticated.
#[derive(Clone, Copy)]
pub(super) enum RequestPeer {
    /// TCP connection from this address. The request has to carry the credential.
    Address(IpAddr),
    /// Unix socket in the data folder. The operating system has checked the peer: it is the user who runs the
    /// gateway.
    LocalSocket,
    /// Internal listener. The request has to carry the signature of another replica.
    Replica,
}

impl RequestPeer {
    /// Whether the request was forwarded by another replica.
    pub(super) fn is_replica(self) -> bool {
        matches!(self, Self::Replica)
    }
}

/// Result of routing a request by its head.
pub(super) enum Step {
    Answer(Box<Response<Reply>>),
    /// The body has to be read before the request can be answered.
    Body(BodyHandler),
}

/// Mark of a response to a request that a replica has signed.
#[derive(Clone)]
struct Signed;

impl Step {
    /// Whether the request had a valid signature of a replica.
    pub(super) fn is_signed(&self) -> bool {
        match self {
            Self::Answer(response) => response.extensions().get::<Signed>().is_some(),
            Self::Body(handler) => handler.signed.is_some(),
        }
    }
}

impl From<Response<Reply>> for Step {
    fn from(answer: Response<Reply>) -> Self {
        Self::Answer(answer.into())
    }
}

impl From<BodyKind> for Step {
    fn from(kind: BodyKind) -> Self {
        Self::Body(BodyHandler { own: None, signed: None, kind })
    }
}

/// Receiver of the body of a request.
pub(super) struct BodyHandler {
    /// Application state as this client sees it, if it differs from the shared one.
    own: Option<Arc<AppState>>,
    /// Signature of the replica that forwarded the request, which covers the body.
    signed: Option<Box<VerifiedRequest>>,
    kind: BodyKind,
}

pub(super) enum BodyKind {
    /// Message for the target of a path.
    Post(RequestTarget),
    /// Message of a client of the 2024-11-05 transport.
    LegacyClient(Arc<LegacyClient>),
    /// Preference of a client of another replica.
    Preference(Principal),
}

impl BodyHandler {
    /// Owner of the request.
    pub(super) fn owner(&self) -> &Owner {
        match &self.kind {
            BodyKind::Post(at) => &at.principal.owner,
            BodyKind::LegacyClient(caller) => &caller.principal.owner,
            BodyKind::Preference(principal) => &principal.owner,
        }
    }

    /// Answers a request whose body was read to its end. `timer` is that of the client's socket, if this is its task.
    pub(super) async fn answer(
        self,
        app: &Arc<AppState>,
        headers: &HeaderMap,
        body: Bytes,
        timer: Option<&dyn SocketTimer>,
    ) -> Response<Reply> {
        let app = self.own.as_ref().unwrap_or(app);
        if self.signed.is_some_and(|signed| !signed.has_body(&body)) {
            return refuse_signature(app, SignatureError::Invalid);
        }
        let response = match self.kind {
            BodyKind::Post(at) => {
                let response = post::answer(app, &at, headers, &body, timer).await;
                if let Reply::Whole(text, _) = response.body() {
                    app.rate_limiter.charge_now(&at.principal.owner, text.len());
                }
                let mut response = access::guard(app, &at.principal, response);
                forward::note_client(&mut response, &at.principal);
                response
            }
            // Boxed because it is rare: without the box, the future of every request would be as large as this one.
            BodyKind::LegacyClient(caller) => {
                Box::pin(legacy_sse::accept_post(app, caller, body)).await
            }
            BodyKind::Preference(principal) => {
                Box::pin(replica_requests::take_preference(app, &principal, headers, &body)).await
            }
        };
        count_refusal(app, response.status());
        response
    }
}

/// Routes a request by its head.
pub(super) async fn enter(app: &Arc<AppState>, peer: RequestPeer, head: &Parts) -> Step {
    if let Some(health) = health(app, head.uri.path()) {
        return health.into();
    }
    let step = authenticate_and_route(app, peer, head).await;
    if let Step::Answer(response) = &step {
        count_refusal(app, response.status());
    }
    step
}

/// Answers `/healthz` and `/readyz`. Any `Host` and `Origin` is allowed, because the answer reveals nothing.
fn health(app: &AppState, path: &str) -> Option<Response<Reply>> {
    let problem = match path {
        "/healthz" => None,
        "/readyz" => app.health.problem(),
        _ => return None,
    };
    Some(match problem {
        None => reply::text(StatusCode::OK, "ok"),
        Some(problem) => reply::text(StatusCode::SERVICE_UNAVAILABLE, problem),
    })
}

/// Authenticates a request and routes it to its target. A request without a body is answered here.
async fn authenticate_and_route(app: &Arc<AppState>, peer: RequestPeer, head: &Parts) -> Step {
    let path = head.uri.path();
    let mut signed = None;
    let principal = match peer {
        RequestPeer::Replica => {
            let Some(cluster) = &app.cluster else { return path_not_found(app).into() };
            match cluster.verify(head) {
                Ok(verified) => {
                    let principal = verified.principal.clone();
                    signed = Some(Box::new(verified));
                    principal
                }
                Err(error) => return refuse_signature(app, error).into(),
            }
        }
        RequestPeer::Address(from) => {
            if let Some(answer) = host_check::foreign(&app.rules, head)
                .or_else(|| well_known::metadata(app, path))
                .or_else(|| dashboard::file(&head.method, path))
            {
                return answer.into();
            }
            if path == "/metrics" && app.authenticator.metrics == MetricsAccess::Public {
                return reply::metrics(app.metrics_page()).into();
            }
            match authenticate(app, from, head).await {
                Ok(principal) if home_page::is_wanted(head) => {
                    let own = app.seen_by(&principal);
                    return home_page::answer(Some(own.as_ref().unwrap_or(app))).into();
                }
                Ok(principal) => principal,
                Err(error) if error.is_unauthorized() && home_page::is_wanted(head) => {
                    return home_page::answer(None).into();
                }
                Err(error) => return error.answer(well_known::url(app, path).as_deref()).into(),
            }
        }
        RequestPeer::LocalSocket => Principal::local(),
    };
    if [dashboard::LOGIN, dashboard::LOGOUT].contains(&path) {
        return page_login::answer(app, &principal, head).into();
    }
    match route_seen(app, &principal, head).await {
        Step::Body(handler) => Step::Body(BodyHandler { signed, ..handler }),
        Step::Answer(mut answer) => {
            signed.map(|_| answer.extensions_mut().insert(Signed));
            Step::Answer(answer)
        }
    }
}

/// Routes an authenticated request in the configuration as its client sees it; one for the admin API in the whole one.
async fn route_seen(app: &Arc<AppState>, principal: &Principal, head: &Parts) -> Step {
    if admin::has(head.uri.path()) {
        let answer = Box::pin(admin::answer(app, principal, head)).await;
        let mut answer = access::guard_admin(app, principal, answer);
        forward::note_client(&mut answer, principal);
        return answer.into();
    }
    let own = app.seen_by(principal);
    let seen = own.as_ref().unwrap_or(app);
    match route_authenticated(seen, principal, head).await {
        Step::Body(handler) => Step::Body(BodyHandler { own, ..handler }),
        Step::Answer(answer) => {
            let mut answer = access::guard(seen, principal, *answer);
            forward::note_client(&mut answer, principal);
            answer.into()
        }
    }
}

/// Answers a request of an authenticated client once more, after nothing of it was run.
pub(super) async fn route_again(
    app: &Arc<AppState>,
    principal: &Principal,
    (head, body): (&Parts, Bytes),
) -> Response<Reply> {
    let app = app.now();
    match route_seen(&app, principal, head).await {
        Step::Answer(answer) => *answer,
        Step::Body(handler) => handler.answer(&app, &head.headers, body, None).await,
    }
}

/// Refuses a request to the internal listener. Nothing was run.
fn refuse_signature(app: &AppState, error: SignatureError) -> Response<Reply> {
    // A replica that was started anew is asked again, with another signature.
    if matches!(error, SignatureError::OtherReplica | SignatureError::BeforeStart) {
        return forward::not_held();
    }
    tracing::warn!("a request to the internal listener was refused: {error}");
    app.count_refused("unauthorized");
    forward::refuse_replica("signature", &error.to_string())
}

/// Authenticates a request, and counts it against the rate limit of its owner.
async fn authenticate(
    app: &Arc<AppState>,
    from: IpAddr,
    head: &Parts,
) -> Result<Principal, AuthError> {
    if let Some(principal) = page_login::principal(app, head) {
        return Ok(principal);
    }
    let principal = app.authenticator.authenticate(from, &head.headers).await?;
    let admitted = app.rate_limiter.admit_now(&principal.owner);
    admitted.map_err(|RateLimited(wait)| AuthError::RateLimited(wait))?;
    Ok(principal)
}

/// Routes an authenticated request.
async fn route_authenticated(app: &Arc<AppState>, principal: &Principal, head: &Parts) -> Step {
    let Parts { method, uri, headers, .. } = head;
    let path = uri.path();
    if path == "/metrics" {
        return match app.authenticator.shows_metrics_to(principal) {
            true => reply::metrics(app.metrics_page()).into(),
            false => no_metrics().into(),
        };
    }
    if principal.is_forwarded()
        && path.starts_with(cluster::INTERNAL)
        && let Some(step) = Box::pin(replica_requests::route(app, principal, head)).await
    {
        return step;
    }
    let is_legacy_path = legacy_sse::LegacyPath::parse(path).is_some();
    // Whether a POST is accepted is decided by its body.
    if app.health.is_stopping()
        && principal.is_forwarded()
        && (*method != Method::POST || is_legacy_path)
    {
        return forward::not_held().into();
    }
    if app.health.is_stopping() && !principal.is_forwarded() {
        return forward::stopping_response(app).into();
    }
    if let Some(at) = legacy_sse::LegacyPath::parse(path) {
        return legacy_sse::enter(app, (at, principal.clone()), head);
    }
    let path = &*server_first(path);
    let SplitPath { path, key, .. } = match split(app, path) {
        Ok(split) => split,
        Err(error) => {
            let (status, sentence) = (StatusCode::BAD_REQUEST, error.to_string());
            return reply::refusal(status, None, Code::INVALID_REQUEST, &sentence).into();
        }
    };
    let (target, was) = match (target(app, path), removed_target(app, path)) {
        (Some(target), _) => (target, false),
        (None, Some(target)) => (target, true),
        (None, None) => return path_not_found(app).into(),
    };
    let at = RequestTarget { target, key, principal: principal.clone() };
    // A client that was never connected to a removed server gets the same answer as for a server that never existed.
    if was && Box::pin(find_connection(app, &at, headers)).await.is_err() {
        return path_not_found(app).into();
    }
    match *method {
        Method::POST => BodyKind::Post(at).into(),
        // Modern clients only use POST.
        _ if era::is_modern(headers) => method_not_allowed("POST").into(),
        Method::GET => Box::pin(get(app, &at, headers)).await.into(),
        Method::DELETE => Box::pin(delete(app, &at, headers)).await.into(),
        _ => method_not_allowed("GET, POST, DELETE").into(),
    }
}

/// Target of a request, with its client.
pub(super) struct RequestTarget {
    pub(super) target: Target,
    /// Key of the session that the path names.
    pub(super) key: Option<String>,
    /// Client that sent the request.
    pub(super) principal: Principal,
}

/// Splits a path from the session key in it, if the configuration allows keys in paths.
fn split<'a>(app: &AppState, path: &'a str) -> Result<SplitPath<'a>, InvalidPathKey> {
    match app.identify.configured.name_sources.path {
        true => SplitPath::parse(path),
        false => Ok(SplitPath::without_key(path)),
    }
}

/// Converts a path that ends in `/mcp`, such as `/notes/mcp` or `/notes/~chat/mcp`, to the usual form, which begins with
/// it. Some clients only take a URL with that end.
fn server_first(path: &str) -> Cow<'_, str> {
    let is_usual = path.strip_prefix("/mcp").is_some_and(|it| it.is_empty() || it.starts_with('/'));
    match path.strip_suffix("/mcp").filter(|rest| !is_usual && !rest.is_empty()) {
        Some(rest) => format!("/mcp{rest}").into(),
        None => path.into(),
    }
}

/// Target of a path; `None` if there is no such server.
fn target(app: &AppState, path: &str) -> Option<Target> {
    if path == "/mcp" {
        return Some(Target::All);
    }
    server(app, path.strip_prefix("/mcp/")?)
}

/// Target of one server; `None` if no server has this name.
pub(super) fn server(app: &AppState, name: &str) -> Option<Target> {
    app.servers.get(name).map(|server| Target::Server(server.shared_name()))
}

/// Returns a server that the last reload removed. Clients that are still connected to it get an explanation.
fn removed_target(app: &AppState, path: &str) -> Option<Target> {
    let name = app.removed.get(path.strip_prefix("/mcp/")?)?;
    Some(Target::Server(name.as_str().into()))
}

/// Reason why a request has no connection.
pub(super) enum ConnectionError {
    /// The request names no connection.
    Missing,
    /// No connection of its client has this name.
    Unknown,
    /// The store cannot be asked.
    Store(SessionOpenError),
}

impl ConnectionError {
    /// Builds the answer. `id` is that of the JSON-RPC request, if it is known.
    pub(super) fn answer(&self, id: Option<&str>) -> Response<Reply> {
        let (status, sentence) = match self {
            Self::Missing => (
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing: begin with `initialize`, and send the id that its answer carries",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "Session not found: it was ended, or never existed; begin with `initialize`",
            ),
            Self::Store(error) => return reply::unavailable(&error.to_string()),
        };
        reply::refusal(status, id, Code::INVALID_REQUEST, sentence)
    }
}

/// Returns the connection that a request names by `Mcp-Session-Id` or cookie.
pub(super) async fn find_connection(
    app: &Arc<AppState>,
    at: &RequestTarget,
    headers: &HeaderMap,
) -> Result<ConnectionGuard, ConnectionError> {
    let by_cookie = cookie::is_on(app) && cookie::read(headers).is_some();
    if !by_cookie && !headers.contains_key(&header_names::MCP_SESSION_ID) {
        return Err(ConnectionError::Missing);
    }
    let name = read_connection_name(app, headers).ok_or(ConnectionError::Unknown)?;
    let found = app.connection(&at.principal.owner, &name).await.map_err(ConnectionError::Store)?;
    // On another path the connection counts as unknown.
    found.filter(|it| it.target == at.target).ok_or(ConnectionError::Unknown)
}

/// Serves a GET: a new stream of the connection, or the rest of an earlier one behind `Last-Event-ID`.
async fn get(app: &Arc<AppState>, at: &RequestTarget, headers: &HeaderMap) -> Response<Reply> {
    if !accepts(headers, mcp::EVENT_STREAM) {
        return reply::status(StatusCode::NOT_ACCEPTABLE);
    }
    let connection = match find_connection(app, at, headers).await {
        Ok(connection) => connection,
        Err(error) => return error.answer(None),
    };
    if let Some(held) = home_elsewhere(app, &connection).await {
        return held;
    }
    let mut response = stream(app, at, headers, &connection).await;
    renew_cookie(app, headers, &mut response);
    response
}

/// Returns the refusal of a request without a message if another replica holds the default session of its connection.
async fn home_elsewhere(
    app: &Arc<AppState>,
    connection: &ConnectionGuard,
) -> Option<Response<Reply>> {
    let held_by = app.home_elsewhere(connection).await?;
    let mut response = reply::unavailable("another gateway holds the session");
    reply::held_elsewhere(&mut response, Some(held_by));
    Some(response)
}

/// Opens the stream of a connection, or continues one.
async fn stream(
    app: &Arc<AppState>,
    at: &RequestTarget,
    headers: &HeaderMap,
    connection: &ConnectionGuard,
) -> Response<Reply> {
    let last = headers.get(mcp::LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let place = last.and_then(|id| app.ids.open(&connection.owner, connection.session, id).ok());
    if let Some((topic, number)) = place
        && let Some(stream) = listen_stream::find(app, connection, (&topic, &at.principal)).await
        // A stream of a server that the client may no longer use cannot be resumed.
        && stream.server().is_none_or(|server| app.leads_to(server, &at.principal))
    {
        let listening = connection
            .listen_stream()
            .is_some_and(|listen_stream| Arc::ptr_eq(&listen_stream, &stream));
        // The client reads the rest of a stream that has ended, and opens a new one after it.
        if !listening || (stream.has_ended() && stream.has_after(number)) {
            return reply::stream(stream.read_after(number, &app.ids));
        }
        if !stream.has_ended() {
            let session =
                app.sessions.find_by_id(&connection.owner, connection.default_session()).await.ok();
            connection.set_listening_principal(&at.principal);
            app.recheck_listener(connection);
            listen_stream::resume(app, connection).await;
            return reply::stream(stream.read_after(number, &app.ids).keeping(session));
        }
    }
    let session =
        app.sessions.find_by_id(&connection.owner, connection.default_session()).await.ok();
    let stream = listen_stream::open(app, connection, &at.principal).await;
    reply::stream(stream.read_after(0, &app.ids).keeping(session))
}

async fn delete(app: &Arc<AppState>, at: &RequestTarget, headers: &HeaderMap) -> Response<Reply> {
    match find_connection(app, at, headers).await {
        Ok(connection) => {
            if let Some(held) = home_elsewhere(app, &connection).await {
                return held;
            }
        }
        Err(error) => return error.answer(None),
    }
    let Some(name) = read_connection_name(app, headers) else {
        return reply::status(StatusCode::NOT_FOUND);
    };
    // Runs in its own task, so that the connection also ends when the client does not wait for the answer.
    let (leaving, owner) = (app.clone(), at.principal.owner.clone());
    let left = tokio::runtime::Handle::current()
        .spawn(async move { leaving.end_connection(&owner, &name).await });
    match left.await.unwrap_or(Ok(true)) {
        Ok(true) => reply::status(StatusCode::OK),
        Ok(false) => reply::status(StatusCode::NOT_FOUND),
        Err(error) => reply::unavailable(&error.to_string()),
    }
}
