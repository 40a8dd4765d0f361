//! HTTP+SSE transport of 2024-11-05: the client opens an event stream, posts its messages to another address, and
//! gets every answer on the stream. The stream is the session. When the stream ends, the session ends.

use std::{
    pin::Pin,
    sync::{Arc, MutexGuard, atomic::Ordering},
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, request::Parts};
use stayput_core::{Handle, Holder, Owner};
use stayput_sync::Mutex;
use stayput_wire::{Batch, Code, Era, Message, MessageKind, header as mcp};

use crate::{
    auth::Principal,
    call::CallOutcome,
    config::target::Target,
    connections::{
        connection::{Connection, ConnectionGuard},
        event_stream::EventStream,
        legacy_clients::{LegacyClient, Progress},
    },
    identify::RequestContext,
    listen::{
        batch,
        message_forward::{self, Outcome, Sender},
        refusal::{method_not_allowed, path_not_found},
        router::{BodyKind, Step, server},
    },
    messages::notifications::handle_message,
    observe::session_stats::ConnectedSession,
    reply::{self, HeldBy, Reply, accepts},
    route::admission::admit,
    state::AppState,
};

/// End of the path that messages are posted to.
const MESSAGES: &str = "/messages";

/// Query parameter that names the client in that address.
const SESSION: &str = "session";

/// Query parameter that names the replica with the stream.
const REPLICA: &str = "replica";

/// Path of this transport, with the name of the server.
pub(super) enum LegacyPath {
    Stream(String),
    Messages(String),
}

impl LegacyPath {
    /// Parses a path, `/sse/NAME` or `/NAME/sse`; `None` if it does not belong to this transport.
    pub(super) fn parse(path: &str) -> Option<Self> {
        if let Some(rest) = path.strip_prefix("/sse/") {
            return Some(match rest.strip_suffix(MESSAGES) {
                Some(name) => Self::Messages(name.to_owned()),
                None => Self::Stream(rest.to_owned()),
            });
        }
        let (stream, posts) = match path.strip_suffix(MESSAGES) {
            Some(stream) => (stream, true),
            None => (path, false),
        };
        let name = stream.strip_suffix("/sse")?.strip_prefix('/')?;
        let name = (!name.contains('/')).then(|| name.to_owned())?;
        Some(if posts { Self::Messages(name) } else { Self::Stream(name) })
    }
}

/// Routes a request of this transport.
pub(super) fn enter(
    app: &Arc<AppState>,
    (at, principal): (LegacyPath, Principal),
    head: &Parts,
) -> Step {
    let (LegacyPath::Stream(name) | LegacyPath::Messages(name)) = &at;
    let removed = || app.removed.get(name).map(|name| Target::Server(name.as_str().into()));
    // A client of a removed server may still post, to learn that the server is gone. New streams are refused.
    let posts = matches!(at, LegacyPath::Messages(_));
    let target = server(app, name).or_else(|| removed().filter(|_| posts));
    let Some(target) = target else { return path_not_found(app).into() };
    match (&at, &head.method) {
        (LegacyPath::Stream(_), &Method::GET) => open(app, (target, principal), head).into(),
        (LegacyPath::Stream(_), _) => method_not_allowed("GET").into(),
        (LegacyPath::Messages(_), &Method::POST) => {
            match caller(app, (&target, &principal.owner), head) {
                Some(caller) => BodyKind::LegacyClient(caller).into(),
                None if replica(app, head).is_some() => {
                    let mut response = reply::unavailable("another gateway has the stream");
                    reply::held_elsewhere(&mut response, replica(app, head).map(HeldBy::unnamed));
                    response.into()
                }
                None => {
                    let sentence = "Session not found: its stream has ended, or never existed; open a new one by GET";
                    let code = Code::INVALID_REQUEST;
                    reply::refusal(StatusCode::NOT_FOUND, None, code, sentence).into()
                }
            }
        }
        (LegacyPath::Messages(_), _) => method_not_allowed("POST").into(),
    }
}

/// Opens the stream of a new client. Its state is removed when the client disconnects.
fn open(
    app: &Arc<AppState>,
    (target, principal): (Target, Principal),
    head: &Parts,
) -> Response<Reply> {
    if !accepts(&head.headers, mcp::EVENT_STREAM) {
        return reply::status(StatusCode::NOT_ACCEPTABLE);
    }
    let secret = Handle::generate();
    let hash = secret.hash(&principal.owner);
    let current = app.current.clone();
    let runtime = tokio::runtime::Handle::current();
    let server = target.server().cloned();
    let hang_up = Box::new(move || {
        if let Some(app) = current.get()
            && let Some(caller) = app.legacy_clients.remove(&hash)
        {
            runtime.spawn(async move { caller.hang_up(&app).await });
        }
    });
    let line = EventStream::once(server, hang_up);
    let mut endpoint = format!("{}{MESSAGES}?{SESSION}={}", head.uri.path(), secret.expose());
    if let Some(sealed) = sealed_replica(app) {
        endpoint.push_str(&format!("&{REPLICA}={sealed}"));
    }
    let progress = Mutex::new(Progress::Called);
    let caller = LegacyClient { principal, target, line: line.clone(), progress };
    app.legacy_clients.insert(hash, Arc::new(caller));
    reply::stream(line.read_all(endpoint))
}

/// Returns the sealed name of this replica, for the address that a client posts to.
fn sealed_replica(app: &AppState) -> Option<String> {
    let id = app.cluster.as_ref()?.own().id.to_string();
    app.engine.seal().seal(REPLICA, id.as_bytes()).ok()
}

/// Returns the other replica that has the stream of a client, as the address says which it posts to.
fn replica(app: &AppState, head: &Parts) -> Option<Holder> {
    let cluster = app.cluster.as_ref()?;
    let id = app.engine.seal().open(REPLICA, parameter(head, REPLICA)?).ok()?;
    cluster.live_peer(std::str::from_utf8(&id).ok()?)
}

/// Returns a parameter of the query.
fn parameter<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    let mut pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Finds the client that a POST belongs to.
fn caller(
    app: &Arc<AppState>,
    (target, owner): (&Target, &Owner),
    head: &Parts,
) -> Option<Arc<LegacyClient>> {
    let secret = parameter(head, SESSION)?;
    let caller = app.legacy_clients.get(&secret.parse::<Handle>().ok()?.hash(owner));
    // On another path the client counts as unknown.
    caller.filter(|it| it.target == *target)
}

/// Handles the body of a POST. The answers come on the stream.
pub(super) async fn accept_post(
    app: &Arc<AppState>,
    caller: Arc<LegacyClient>,
    body: Bytes,
) -> Response<Reply> {
    match messages(app, &caller, &body) {
        Ok(messages) => {
            for message in messages {
                begin(caller.clone().handle(app.clone(), message)).await;
            }
            reply::status(StatusCode::ACCEPTED)
        }
        Err(answer) => {
            let mut response = reply::message(answer);
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

/// Splits a body into messages, or returns the error.
fn messages(
    app: &Arc<AppState>,
    caller: &LegacyClient,
    body: &Bytes,
) -> Result<Vec<Bytes>, String> {
    if !Batch::is_batch(body) {
        let message = Message::parse(body).map_err(|error| error.answer())?;
        // A request is answered on the stream, also if it is refused.
        if message.id().is_none() {
            let headers = HeaderMap::new();
            admit(&caller.context(app, &headers, &message)).map_err(|refusal| refusal.text)?;
        }
        return Ok(vec![body.clone()]);
    }
    let connection = caller.connection();
    let batch = batch::split(connection.as_ref().map(|it| &it.version), body)?;
    let texts = batch.messages().map(|text| Bytes::copy_from_slice(text.as_bytes()));
    Ok(texts.collect())
}

/// Polls a task once before the next message is handled, so that later messages find it started, and spawns it if it
/// is not finished.
async fn begin(task: impl Future<Output = ()> + Send + 'static) {
    let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
    let begun = std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))).await;
    if begun.is_pending() {
        tokio::runtime::Handle::current().spawn(task);
    }
}

impl LegacyClient {
    /// Builds the context of a message. This transport has no headers for it.
    fn context<'a>(
        &'a self,
        app: &'a Arc<AppState>,
        headers: &'a HeaderMap,
        message: &'a Message<'a>,
    ) -> RequestContext<'a> {
        let whom = (&self.principal, &self.target);
        RequestContext::new(app, whom, headers, (message, Era::Legacy))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Returns the connection, once `initialize` has made one.
    fn connection(&self) -> Option<ConnectionGuard> {
        match &*self.progress() {
            Progress::Connected { connection, .. } => Some(connection.clone()),
            _ => None,
        }
    }

    /// Handles one message of the client and counts it while it is in progress.
    async fn handle(self: Arc<Self>, app: Arc<AppState>, text: Bytes) {
        app.legacy_clients.in_progress.fetch_add(1, Ordering::AcqRel);
        self.handle_message(&app, text).await;
        app.legacy_clients.in_progress.fetch_sub(1, Ordering::AcqRel);
    }

    async fn handle_message(&self, app: &Arc<AppState>, text: Bytes) {
        let message = match Message::parse(&text) {
            Ok(message) => message,
            // A single malformed message was refused already. In a batch, the other messages still count.
            Err(error) => return self.say(error.answer()).await,
        };
        let headers = HeaderMap::new();
        let context = self.context(app, &headers, &message);
        if let Err(refusal) = admit(&context) {
            return self.say(refusal.text).await;
        }
        let is_request = matches!(message.kind(), MessageKind::Request { .. });
        if is_request && message.method() == Some("initialize") {
            return self.initialize(&context).await;
        }
        let Some(connection) = self.connection() else {
            if is_request {
                self.say(early(&message)).await;
            }
            return;
        };
        if !is_request {
            if let Some(concerned) = handle_message(app, &connection, &message) {
                message_forward::pass_on(&context, self.sender(&connection), concerned);
            }
            return;
        }
        // A streamed answer is already written to the client's stream.
        let context = RequestContext { connection: Some(&connection), ..context };
        match message_forward::answer(&context, self.sender(&connection)).await {
            Outcome::Here(CallOutcome::Done(done)) => {
                self.line.room().await;
                self.line.push_then(done.text, done.then);
            }
            Outcome::Here(_) => {}
            Outcome::Elsewhere(response) => {
                message_forward::write_answer(&context, response, &self.line).await;
            }
        }
    }

    fn sender<'a>(&'a self, connection: &'a Connection) -> Sender<'a> {
        Sender { principal: &self.principal, connection: Some(connection.name()), streams: true }
    }

    async fn say(&self, text: impl Into<Bytes>) {
        self.line.room().await;
        self.line.push(text.into());
    }

    /// Answers `initialize` with a connection and a session that live as long as the stream.
    async fn initialize(&self, context: &RequestContext<'_>) {
        if !self.may_initialize() {
            let sentence = "`initialize` was sent before; open a new stream to begin anew";
            return self.say(context.error(Code::INVALID_REQUEST, sentence).text).await;
        }
        let app = context.app;
        let initialized = message_forward::initialize(context, &self.principal).await;
        let made = match initialized.name {
            Some(name) => match app.connection(&self.principal.owner, &name).await {
                Ok(Some(connection)) => Some((name, connection)),
                _ => None,
            },
            None => None,
        };
        match made {
            Some((name, connection)) => self.connected(app, name, connection).await,
            // The client may send `initialize` again.
            None => self.back(),
        }
        self.say(initialized.answer).await;
    }

    fn may_initialize(&self) -> bool {
        let mut progress = self.progress();
        let may = matches!(*progress, Progress::Called);
        if may {
            *progress = Progress::Initializing;
        }
        may
    }

    fn back(&self) {
        let mut progress = self.progress();
        if matches!(*progress, Progress::Initializing) {
            *progress = Progress::Called;
        }
    }

    async fn connected(&self, app: &Arc<AppState>, name: Handle, connection: ConnectionGuard) {
        connection.set_only_stream(self.line.clone(), &self.principal);
        let kept = app.sessions.find_by_id(&self.principal.owner, connection.session).await.ok();
        let left = {
            let mut progress = self.progress();
            if matches!(*progress, Progress::HungUp) {
                Some(name)
            } else {
                let kept = kept.map(ConnectedSession::from);
                *progress = Progress::Connected { name, connection, kept };
                None
            }
        };
        // The client disconnected before the answer.
        if let Some(name) = left {
            let _ = app.end_connection(&self.principal.owner, &name).await;
        }
    }

    /// Ends the session after the stream ended, and cancels the calls in flight.
    async fn hang_up(&self, app: &Arc<AppState>) {
        let before = std::mem::replace(&mut *self.progress(), Progress::HungUp);
        let Progress::Connected { name, connection, kept } = before else { return };
        drop(kept);
        if let Err(error) = app.end_connection(&self.principal.owner, &name).await {
            // The record in the store expires by itself; what runs in this process ends now.
            let session = connection.session;
            tracing::warn!(%session, "the end of session {session} was not kept: {error}");
            app.connections.remove_session(connection.session);
            let _ = app.links.end(connection.session).await;
        }
    }
}

/// Answer to a request that comes before `initialize`.
fn early(message: &Message<'_>) -> String {
    let id = message.id().map_or("null", |id| id.as_str());
    if message.method() == Some("ping") {
        return reply::result(id, "{}");
    }
    let sentence = "begin with `initialize`, and wait for its answer";
    reply::error(id, Code::INVALID_REQUEST, sentence)
}
