//! Call pipeline for legacy clients: identifies the session, opens its link, sends the request and returns the
//! answer.

pub(crate) mod attachment_sink;
pub(crate) mod context;
pub(crate) mod modern;
pub(crate) mod session_link;
pub(crate) mod sessionless;
pub(crate) mod stream_after;

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use stayput_core::{ActiveSession, Generation, Handle};
use stayput_upstream::{Call, CallError, CallOptions, Incoming, LossReason, PooledLink, Server};
use stayput_wire::{Code, Era, Message};

use crate::{
    call::{context::RequestParts, session_link::SessionLink, stream_after::StreamDeadline},
    connections::{
        connection::{ClientPreferences, Connection, InFlight},
        deliver::{Over, new_stream, say},
        event_stream::EventStream,
    },
    identify::{self, EphemeralSession, RequestEdit, SessionChoice},
    observe::{CallEnd, call_record::CallRecord},
    reply::{self, Reply, ReplyText, RequestRef, loss},
    state::AppState,
};

/// Timeout for the log level and subscriptions that a new link takes over from its client.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Call of a legacy client, with everything that is needed until the call ends.
pub(crate) struct ClientCall {
    session_link: SessionLink,
    connection: Arc<Connection>,
    /// Request id, as the client wrote it.
    id: Arc<str>,
    method: Cow<'static, str>,
    record: CallRecord,
    /// Request text for a second attempt, if the server is configured to restart and the first attempt was lost
    /// before it ran.
    again: Option<Bytes>,
    /// Generation of a loss that the answer has to report.
    lost: Option<Generation>,
    /// New handle that the answer returns to the client.
    given: Option<Handle>,
    /// Ends a session that exists for this call only. Declared after `session_link`, which uses the session, so that it is
    /// dropped later.
    _fleeting: Option<EphemeralSession>,
}

/// Outcome of a request.
pub(crate) enum CallOutcome {
    /// Complete answer.
    Done(ReplyText),
    /// Event stream that will carry the answer.
    Stream(Arc<EventStream>),
    /// The client cancelled the request, so there is no answer.
    Cancelled,
}

impl ClientCall {
    /// Sends a request of a connection to a server, on the session that the request identifies.
    pub(crate) async fn run(
        app: &Arc<AppState>,
        connection: &Arc<Connection>,
        server: &Server,
        message: &Message<'_>,
        parts: RequestParts<'_>,
    ) -> CallOutcome {
        let id: Arc<str> = message.id().map(|id| id.as_str()).unwrap_or_default().into();
        let method = known(message.method().unwrap_or_default());
        let request = RequestRef { id: &id, method: &method };
        // Reserves the id. From here on the client can cancel the request.
        let Some(in_flight) = connection.begin(&id) else {
            app.metrics.refused("duplicate_id");
            let sentence = "a request with this id is in flight; each needs an id of its own";
            let text = reply::error(&id, Code::INVALID_REQUEST, sentence);
            return CallOutcome::Done(ReplyText::new(text));
        };
        let context = parts.context(connection, Some(server), message);
        let (session, text, given, fleeting) = match identify::which(app, context).await {
            SessionChoice::Answer(text) => {
                CallRecord::begin(app.watch.as_ref(), context.begun()).came_to(CallEnd::NoSession);
                return CallOutcome::Done(ReplyText::new(text));
            }
            SessionChoice::Session { session, text, given, fleeting, .. } => {
                let fleeting = fleeting.then(|| EphemeralSession::of(app, session.session()));
                (session, text, given, fleeting)
            }
        };
        let record = CallRecord::begin(app.watch.as_ref(), parts.begun(&session, server, message));
        let session_link = session_link(app, server, session);
        let failed = |sentence: &str| failure(request, sentence);
        if let Some(sentence) = session_link.busy() {
            record.came_to(CallEnd::Denied);
            return failed(&sentence);
        }
        let link = match reach(&session_link, connection, request).await {
            Ok(link) => link,
            Err(sentence) => {
                app.metrics.refused("no_link");
                record.came_to(CallEnd::NoLink);
                return failed(&sentence);
            }
        };
        let mut lost = None;
        if let Some(report) = session_link.pending_loss(&link, request) {
            if !session_link.restarts() {
                record.came_to(CallEnd::Lost);
                return CallOutcome::Done(report);
            }
            lost = session_link.session.unacknowledged_loss_on(server.name());
        }
        if in_flight.is_cancelled() {
            return CallOutcome::Cancelled;
        }
        let outgoing = text.as_ref().map_or(message.text(), RequestEdit::text);
        let again = (session_link.restarts() && loss::depends_on_state(&method))
            .then(|| Bytes::copy_from_slice(outgoing.as_bytes()));
        let (connection, _fleeting) = (connection.clone(), fleeting);
        let call =
            Self { session_link, connection, id, method, record, again, lost, given, _fleeting };
        match text.as_ref().map(|rest| rest.message(message)) {
            None => call.send(link, message, in_flight, parts.streams).await,
            Some(Ok(rest)) => call.send(link, &rest, in_flight, parts.streams).await,
            // The text parsed before the session name was removed, so this does not happen.
            Some(Err(error)) => CallOutcome::Done(ReplyText::new(error.answer())),
        }
    }

    fn asked(&self) -> RequestRef<'_> {
        RequestRef { id: &self.id, method: &self.method }
    }

    async fn send(
        mut self,
        link: PooledLink,
        message: &Message<'_>,
        in_flight: InFlight,
        streams: bool,
    ) -> CallOutcome {
        let options = CallOptions { declares: self.connection.declares, ..CallOptions::default() };
        self.record.sent(&self.session_link.app.metrics, self.session_link.server.name());
        let traced = self.record.traced(message);
        let traced = traced.as_deref().and_then(|text| Message::parse(text.as_bytes()).ok());
        let message = traced.as_ref().unwrap_or(message);
        // Registers the subscription before the server can send a notification for it.
        self.connection.note_subscription(link.slot(), message);
        let (link, call) = match link.send(message, options).await {
            Ok(call) => (link, call),
            Err(error) => match Box::pin(self.once_more(&error, &in_flight)).await {
                Some(again) => again,
                None => {
                    let done = self.ended(&link, Err(error));
                    return done.map_or(CallOutcome::Cancelled, CallOutcome::Done);
                }
            },
        };
        in_flight.sent(&call.canceller());
        CallFuture {
            client_call: Some(self),
            call: Some(call),
            link: Some(link),
            in_flight: Some(in_flight),
        }
        .wait(streams)
        .await
    }

    /// Sends the request a second time after a loss, if it certainly did not run and its server is configured to
    /// restart.
    async fn once_more(
        &mut self,
        error: &CallError,
        in_flight: &InFlight,
    ) -> Option<(PooledLink, Call)> {
        let loss = error.loss()?;
        if error.delivery().may_have_run() || loss.reason() == LossReason::Released {
            return None;
        }
        let text = self.again.take().filter(|_| !in_flight.is_cancelled())?;
        let link = reach(&self.session_link, &self.connection, self.asked()).await.ok()?;
        let message = Message::parse(&text).ok()?;
        let options = CallOptions { declares: self.connection.declares, ..CallOptions::default() };
        let call = link.send(&message, options).await.ok()?;
        self.lost =
            self.session_link.session.unacknowledged_loss_on(self.session_link.server.name());
        in_flight.sent(&call.canceller());
        Some((link, call))
    }

    /// Returns the answer, with the new handle added if there is one.
    fn giving(&self, answer: Bytes) -> ReplyText {
        let edited = self.given.as_ref().and_then(|handle| {
            let answer = str::from_utf8(&answer).ok()?;
            identify::give(answer, handle)
        });
        ReplyText::new(edited.map_or(answer, Bytes::from))
    }

    fn ended(
        &self,
        link: &PooledLink,
        end: Result<stayput_upstream::Answer, CallError>,
    ) -> Option<ReplyText> {
        self.record.ended(Some(&self.session_link.session), link, &end);
        match end {
            Ok(answer) => Some(match self.lost {
                Some(generation) => self.session_link.marked(answer.into_bytes(), generation),
                None => self.giving(answer.into_bytes()),
            }),
            Err(CallError::Cancelled) => None,
            Err(error) => Some(self.session_link.failed(link, self.asked(), &error)),
        }
    }
}

/// Returns the method name. `tools/call`, by far the most frequent one, is not copied.
fn known(method: &str) -> Cow<'static, str> {
    match method {
        "tools/call" => Cow::Borrowed("tools/call"),
        other => Cow::Owned(other.to_owned()),
    }
}

/// Answers a request that was not sent with a sentence.
fn failure(request: RequestRef<'_>, sentence: &str) -> CallOutcome {
    CallOutcome::Done(ReplyText::new(reply::failure(request, Era::Legacy, sentence)))
}

fn session_link(app: &Arc<AppState>, server: &Server, session: ActiveSession) -> SessionLink {
    SessionLink { app: app.clone(), server: server.clone(), session, era: Era::Legacy }
}

/// Returns the link of a connection to a server for a request of the gateway itself. Opens the link if there is none.
pub(crate) async fn link_of(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    server: &Server,
) -> Option<PooledLink> {
    let session = app.session(&connection.owner, connection.default_session()).await.ok()?;
    let request = RequestRef { id: "null", method: "" };
    reach(&session_link(app, server, session), connection, request).await.ok()
}

/// Finds or opens the link. A connection that uses the link for the first time applies its preferences and starts to
/// listen there.
async fn reach(
    session_link: &SessionLink,
    connection: &Arc<Connection>,
    asked: RequestRef<'_>,
) -> Result<PooledLink, String> {
    let (link, opened) = match session_link.found() {
        Some(link) => (link, false),
        // Boxed, like every rare path: otherwise the future of every call would have its size.
        None => (Box::pin(session_link.open(&connection.hello)).await?, true),
    };
    let not_listening = connection.lacks_listener_for(link.key());
    if !(connection.meets(link.slot(), link.generation()) || opened || not_listening) {
        session_link.depend(&link, asked).await?;
        return Ok(link);
    }
    // Boxed for the same reason.
    let link = match connection.has_wishes() {
        true => {
            let app = session_link.app.clone();
            Box::pin(introduced(app, connection.clone(), link, opened)).await?
        }
        false => {
            Box::pin(crate::messages::listen_stream::start(&session_link.app, connection, &link))
                .await;
            link
        }
    };
    session_link.depend(&link, asked).await?;
    Ok(link)
}

/// Applies the preferences of a client to a link in its own task, so that this completes exactly once even if the
/// client disconnects.
async fn introduced(
    app: Arc<AppState>,
    connection: Arc<Connection>,
    link: PooledLink,
    opened: bool,
) -> Result<PooledLink, String> {
    let task = tokio::runtime::Handle::current().spawn(async move {
        introduce(&connection, &link, opened).await;
        crate::messages::listen_stream::start(&app, &connection, &link).await;
        link
    });
    task.await.map_err(|_| "the gateway is stopping; try again in a moment".to_owned())
}

/// Applies to a new link the log level and subscriptions that the client requested before. Only the connection that
/// opened the link sets the log level.
async fn introduce(connection: &Arc<Connection>, link: &PooledLink, opened: bool) {
    let ClientPreferences { log_level, subscriptions } = connection.wishes();
    let level = log_level
        .filter(|_| opened && link.greeting().has("logging"))
        .map(|level| ("logging/setLevel", level));
    for uri in subscriptions.keys() {
        connection.subscribe(link.slot(), uri.clone());
    }
    let subscriptions = subscriptions.into_values().map(|it| ("resources/subscribe", it));
    let requests = async {
        for (method, params) in level.into_iter().chain(subscriptions) {
            if let Ok(call) = link.call(method, Some(&params), CallOptions::default()).await {
                let _ = call.answer().await;
            }
        }
    };
    let _ = tokio::time::timeout(INTRODUCTION_TIMEOUT, requests).await;
}

/// Sends the log level of the client to a server.
pub(crate) async fn tell_level(connection: &Connection, link: &PooledLink) {
    let options = CallOptions { limit: Some(INTRODUCTION_TIMEOUT), ..CallOptions::default() };
    if let Some(level) = connection.wishes().log_level
        && link.greeting().has("logging")
        && let Ok(call) = link.call("logging/setLevel", Some(&level), options).await
    {
        let _ = call.answer().await;
    }
}

/// Future that waits for a call. If it is dropped before the call ends, because the client disconnected, the call
/// continues in the background: a disconnect is not a cancellation.
struct CallFuture {
    client_call: Option<ClientCall>,
    call: Option<Call>,
    link: Option<PooledLink>,
    in_flight: Option<InFlight>,
}

impl CallFuture {
    async fn wait(mut self, streams: bool) -> CallOutcome {
        let stream_after = self
            .client_call
            .as_ref()
            .map(|client_call| client_call.session_link.app.rules.stream_after);
        let mut deadline = StreamDeadline::new(stream_after.unwrap_or_default());
        loop {
            let Some(call) = &mut self.call else { return CallOutcome::Cancelled };
            let first = tokio::select! {
                biased;
                incoming = call.next() => incoming,
                () = &mut deadline, if streams => return self.detach(None, true),
            };
            let end = match first {
                Some(Incoming::Answer(end)) => end,
                None => return CallOutcome::Cancelled,
                first if streams => return self.detach(first, true),
                // A client that reads no streams gets only the answer. Notifications are dropped, server requests are
                // refused.
                _ => continue,
            };
            if !self.goes_on(&end).await {
                return self.finish(end);
            }
        }
    }

    /// Sends the request again after a loss if that is allowed. Returns whether a second attempt is in flight.
    async fn goes_on(&mut self, end: &Result<stayput_upstream::Answer, CallError>) -> bool {
        let (Err(error), Some(client_call), Some(in_flight)) =
            (end, &mut self.client_call, &self.in_flight)
        else {
            return false;
        };
        let Some((link, call)) = Box::pin(client_call.once_more(error, in_flight)).await else {
            return false;
        };
        (self.link, self.call) = (Some(link), Some(call));
        true
    }

    fn finish(mut self, end: Result<stayput_upstream::Answer, CallError>) -> CallOutcome {
        self.call = None;
        let done = match (&self.client_call, &self.link) {
            (Some(client_call), Some(link)) => client_call.ended(link, end),
            _ => None,
        };
        done.map_or(CallOutcome::Cancelled, CallOutcome::Done)
    }

    /// Continues the call in its own task, which writes to a resumable stream.
    fn detach(&mut self, first: Option<Incoming>, keep: bool) -> CallOutcome {
        let parts =
            (self.client_call.take(), self.call.take(), self.link.take(), self.in_flight.take());
        let (Some(client_call), Some(call), Some(link), Some(in_flight)) = parts else {
            return CallOutcome::Cancelled;
        };
        let line = client_call.connection.line().cloned();
        let server = client_call.session_link.server.shared_name();
        let stream =
            line.unwrap_or_else(|| new_stream(&client_call.connection, Some(server), keep));
        let task = DetachedCall { client_call, call, link, in_flight, stream: stream.clone() };
        tokio::runtime::Handle::current().spawn(task.run(first));
        CallOutcome::Stream(stream)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        if self.call.is_some() && self.client_call.is_some() {
            // The client has no id of this stream and cannot resume it, so it is not kept.
            self.detach(None, false);
        }
    }
}

/// Call that writes its answer to a stream, whether or not a client reads it.
struct DetachedCall {
    client_call: ClientCall,
    call: Call,
    link: PooledLink,
    in_flight: InFlight,
    stream: Arc<EventStream>,
}

impl DetachedCall {
    async fn run(mut self, first: Option<Incoming>) {
        let mut next = first;
        let mut questions = Vec::new();
        loop {
            let incoming = match next.take() {
                Some(first) => Some(first),
                None => self.call.next().await,
            };
            let end = match incoming {
                Some(Incoming::Answer(end)) => end,
                Some(incoming) => {
                    self.stream.room().await;
                    let over = Over::link(&self.link);
                    questions.extend(say(
                        &self.client_call.connection,
                        over,
                        &self.stream,
                        incoming,
                    ));
                    continue;
                }
                None => break,
            };
            if let Err(error) = &end
                && let Some(again) = self.client_call.once_more(error, &self.in_flight).await
            {
                (self.link, self.call) = again;
                continue;
            }
            if let Some(done) = self.client_call.ended(&self.link, end) {
                self.stream.room().await;
                self.stream.push_then(done.text, done.then);
            }
            break;
        }
        // The only stream of a connection stays open after a call.
        if self.client_call.connection.line().is_none() {
            self.stream.end();
            self.client_call.connection.streams.tidy();
            self.client_call.session_link.app.stream_cache.put(&self.stream);
        }
        // Removes the server requests of this call. The server no longer waits for answers to them.
        for number in questions {
            drop(self.client_call.connection.asked(number));
        }
    }
}

/// Converts an outcome to an HTTP response.
pub(crate) fn respond(app: &AppState, outcome: CallOutcome) -> Response<Reply> {
    match outcome {
        CallOutcome::Done(ReplyText { text, then }) => reply::message_then(text, then),
        CallOutcome::Stream(stream) => reply::stream(stream.read_after(0, &app.ids)),
        CallOutcome::Cancelled => reply::status(http::StatusCode::ACCEPTED),
    }
}
