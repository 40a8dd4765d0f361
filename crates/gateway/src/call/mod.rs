//! A request on its way to a server, and what comes back.

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
use stayput_upstream::{Call, CallError, CallOptions, Held, Incoming, LossReason, Server};
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

/// How long a server may take for what a client asked for before there was a link.
const GREETING: Duration = Duration::from_secs(5);

/// Who asks, and for what: everything that is needed to the end of the call.
pub(crate) struct ClientCall {
    visit: SessionLink,
    connection: Arc<Connection>,
    /// The client's id as it was written.
    id: Arc<str>,
    method: Cow<'static, str>,
    account: CallRecord,
    /// The request, if it is to be sent once more should it be lost before it ran.
    again: Option<Bytes>,
    /// The loss that its answer has to tell of.
    lost: Option<Generation>,
    /// A handle that the answer gives out.
    given: Option<Handle>,
    /// Ends a session that was for this call alone. Behind the visit, which uses it.
    _fleeting: Option<EphemeralSession>,
}

/// What a request has come to.
pub(crate) enum CallOutcome {
    /// An answer.
    Done(ReplyText),
    /// A stream on which it will come.
    Stream(Arc<EventStream>),
    /// The client took it back: there is no answer.
    Cancelled,
}

impl ClientCall {
    /// Sends a request of a connection to a server, on the session that it means.
    pub(crate) async fn run(
        app: &Arc<AppState>,
        connection: &Arc<Connection>,
        server: &Server,
        message: &Message<'_>,
        along: RequestParts<'_>,
    ) -> CallOutcome {
        let id: Arc<str> = message.id().map(|id| id.as_str()).unwrap_or_default().into();
        let method = known(message.method().unwrap_or_default());
        let asked = RequestRef { id: &id, method: &method };
        // From here on the id is taken, and the request can be taken back.
        let Some(in_flight) = connection.begin(&id) else {
            app.metrics.refused("duplicate_id");
            let sentence = "a request with this id is in flight; each needs an id of its own";
            return CallOutcome::Done(ReplyText::new(reply::error(
                &id,
                Code::INVALID_REQUEST,
                sentence,
            )));
        };
        let claim = along.claim(connection, Some(server), message);
        let (session, text, given, fleeting) = match identify::which(app, claim).await {
            SessionChoice::Answer(text) => {
                CallRecord::begin(app.watch.as_ref(), claim.begun()).came_to(CallEnd::NoSession);
                return CallOutcome::Done(ReplyText::new(text));
            }
            SessionChoice::Session { session, text, given, fleeting, .. } => {
                let fleeting = fleeting.then(|| EphemeralSession::of(app, session.session()));
                (session, text, given, fleeting)
            }
        };
        let account = CallRecord::begin(app.watch.as_ref(), along.begun(&session, server, message));
        let visit = visit(app, server, session);
        let failed = |sentence: &str| {
            CallOutcome::Done(ReplyText::new(reply::failure(asked, Era::Legacy, sentence)))
        };
        if let Some(sentence) = visit.busy() {
            account.came_to(CallEnd::Denied);
            return failed(&sentence);
        }
        let link = match reach(&visit, connection, asked).await {
            Ok(link) => link,
            Err(sentence) => {
                app.metrics.refused("no_link");
                account.came_to(CallEnd::NoLink);
                return failed(&sentence);
            }
        };
        let mut lost = None;
        if let Some(told) = visit.pending_loss(&link, asked) {
            if !visit.restarts() {
                account.came_to(CallEnd::Lost);
                return CallOutcome::Done(told);
            }
            lost = visit.session.unacknowledged_loss_on(server.name());
        }
        if in_flight.is_cancelled() {
            return CallOutcome::Cancelled;
        }
        let sent = text.as_ref().map_or(message.text(), RequestEdit::text);
        let again = (visit.restarts() && loss::depends_on_state(&method))
            .then(|| Bytes::copy_from_slice(sent.as_bytes()));
        let (connection, _fleeting) = (connection.clone(), fleeting);
        let errand = Self { visit, connection, id, method, account, again, lost, given, _fleeting };
        match text.as_ref().map(|rest| rest.message(message)) {
            None => errand.send(link, message, in_flight, along.streams).await,
            Some(Ok(rest)) => errand.send(link, &rest, in_flight, along.streams).await,
            // It was a message before something was taken out of it, so it still is.
            Some(Err(error)) => CallOutcome::Done(ReplyText::new(error.answer())),
        }
    }

    fn asked(&self) -> RequestRef<'_> {
        RequestRef { id: &self.id, method: &self.method }
    }

    async fn send(
        mut self,
        link: Held,
        message: &Message<'_>,
        in_flight: InFlight,
        streams: bool,
    ) -> CallOutcome {
        let options = CallOptions { declares: self.connection.declares, ..CallOptions::default() };
        self.account.sent(&self.visit.app.metrics, self.visit.server.name());
        let traced = self.account.traced(message);
        let traced = traced.as_deref().and_then(|text| Message::parse(text.as_bytes()).ok());
        let message = traced.as_ref().unwrap_or(message);
        // Before the server can tell of it.
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
            errand: Some(self),
            call: Some(call),
            link: Some(link),
            in_flight: Some(in_flight),
        }
        .wait(streams)
        .await
    }

    /// Sends the request once more after a loss, if it surely did not run and its server is configured so.
    async fn once_more(&mut self, error: &CallError, in_flight: &InFlight) -> Option<(Held, Call)> {
        let loss = error.loss()?;
        if error.delivery().may_have_run() || loss.reason() == LossReason::Released {
            return None;
        }
        let text = self.again.take().filter(|_| !in_flight.is_cancelled())?;
        let link = reach(&self.visit, &self.connection, self.asked()).await.ok()?;
        let message = Message::parse(&text).ok()?;
        let options = CallOptions { declares: self.connection.declares, ..CallOptions::default() };
        let call = link.send(&message, options).await.ok()?;
        self.lost = self.visit.session.unacknowledged_loss_on(self.visit.server.name());
        in_flight.sent(&call.canceller());
        Some((link, call))
    }

    /// The answer, with the handle that it gives out.
    fn giving(&self, answer: Bytes) -> ReplyText {
        let given = self.given.as_ref().and_then(|handle| {
            let answer = str::from_utf8(&answer).ok()?;
            identify::give(answer, handle)
        });
        ReplyText::new(given.map_or(answer, Bytes::from))
    }

    fn ended(
        &self,
        link: &Held,
        end: Result<stayput_upstream::Answer, CallError>,
    ) -> Option<ReplyText> {
        self.account.ended(Some(&self.visit.session), link, &end);
        match end {
            Ok(answer) => Some(match self.lost {
                Some(generation) => self.visit.marked(answer.into_bytes(), generation),
                None => self.giving(answer.into_bytes()),
            }),
            Err(CallError::Cancelled) => None,
            Err(error) => Some(self.visit.failed(link, self.asked(), &error)),
        }
    }
}

/// A method, without a copy of what nearly every request is.
fn known(method: &str) -> Cow<'static, str> {
    match method {
        "tools/call" => Cow::Borrowed("tools/call"),
        other => Cow::Owned(other.to_owned()),
    }
}

fn visit(app: &Arc<AppState>, server: &Server, session: ActiveSession) -> SessionLink {
    SessionLink { app: app.clone(), server: server.clone(), session, era: Era::Legacy }
}

/// The link of a connection to a server, opened if need be, for something that is no call of the client.
pub(crate) async fn link_of(
    app: &Arc<AppState>,
    connection: &Arc<Connection>,
    server: &Server,
) -> Option<Held> {
    let session = app.session(&connection.owner, connection.default_session()).await.ok()?;
    let asked = RequestRef { id: "null", method: "" };
    reach(&visit(app, server, session), connection, asked).await.ok()
}

/// The link, found or opened. Whoever meets it for the first time is introduced.
async fn reach(
    visit: &SessionLink,
    connection: &Arc<Connection>,
    asked: RequestRef<'_>,
) -> Result<Held, String> {
    let (link, opened) = match visit.found() {
        Some(link) => (link, false),
        // In a box, as all that is rare: every call would have to be as large.
        None => (Box::pin(visit.open(&connection.hello)).await?, true),
    };
    let deaf = connection.is_deaf_to(link.key());
    if !(connection.meets(link.slot(), link.generation()) || opened || deaf) {
        visit.depend(&link, asked).await?;
        return Ok(link);
    }
    // In a box, too.
    let link = match connection.has_wishes() {
        true => {
            let app = visit.app.clone();
            Box::pin(introduced(app, connection.clone(), link, opened)).await?
        }
        false => {
            Box::pin(crate::messages::listen_stream::start(&visit.app, connection, &link)).await;
            link
        }
    };
    visit.depend(&link, asked).await?;
    Ok(link)
}

/// Introduces a client to a link, whether the client waits for that or not: it is done once.
async fn introduced(
    app: Arc<AppState>,
    connection: Arc<Connection>,
    link: Held,
    opened: bool,
) -> Result<Held, String> {
    let introducing = tokio::runtime::Handle::current().spawn(async move {
        introduce(&connection, &link, opened).await;
        crate::messages::listen_stream::start(&app, &connection, &link).await;
        link
    });
    introducing.await.map_err(|_| "the gateway is stopping; try again in a moment".to_owned())
}

/// What a client asked for before it met this link holds here, too. How much is logged is for whoever opened it
/// to say.
async fn introduce(connection: &Arc<Connection>, link: &Held, opened: bool) {
    let ClientPreferences { log_level, subscriptions } = connection.wishes();
    let level = log_level
        .filter(|_| opened && link.greeting().has("logging"))
        .map(|level| ("logging/setLevel", level));
    for uri in subscriptions.keys() {
        connection.subscribe(link.slot(), uri.clone());
    }
    let subscriptions = subscriptions.into_values().map(|it| ("resources/subscribe", it));
    let asking = async {
        for (method, params) in level.into_iter().chain(subscriptions) {
            if let Ok(call) = link.call(method, Some(&params), CallOptions::default()).await {
                let _ = call.answer().await;
            }
        }
    };
    let _ = tokio::time::timeout(GREETING, asking).await;
}

/// Tells a server which log messages the client wants.
pub(crate) async fn tell_level(connection: &Connection, link: &Held) {
    let options = CallOptions { limit: Some(GREETING), ..CallOptions::default() };
    if let Some(level) = connection.wishes().log_level
        && link.greeting().has("logging")
        && let Ok(call) = link.call("logging/setLevel", Some(&level), options).await
    {
        let _ = call.answer().await;
    }
}

/// A call that is waited for. Dropped before its end, because the client went away, it goes on in the
/// background: to go away is not to cancel.
struct CallFuture {
    errand: Option<ClientCall>,
    call: Option<Call>,
    link: Option<Held>,
    in_flight: Option<InFlight>,
}

impl CallFuture {
    async fn wait(mut self, streams: bool) -> CallOutcome {
        let patience = self.errand.as_ref().map(|errand| errand.visit.app.rules.patience);
        let mut patience = StreamDeadline::new(patience.unwrap_or_default());
        loop {
            let Some(call) = &mut self.call else { return CallOutcome::Cancelled };
            let first = tokio::select! {
                biased;
                incoming = call.next() => incoming,
                () = &mut patience, if streams => return self.detach(None, true),
            };
            let end = match first {
                Some(Incoming::Answer(end)) => end,
                None => return CallOutcome::Cancelled,
                first if streams => return self.detach(first, true),
                // Who reads no streams hears nothing but answers; questions are refused.
                _ => continue,
            };
            if !self.goes_on(&end).await {
                return self.finish(end);
            }
        }
    }

    /// Whether there is another attempt to follow.
    async fn goes_on(&mut self, end: &Result<stayput_upstream::Answer, CallError>) -> bool {
        let (Err(error), Some(errand), Some(in_flight)) = (end, &mut self.errand, &self.in_flight)
        else {
            return false;
        };
        let Some((link, call)) = Box::pin(errand.once_more(error, in_flight)).await else {
            return false;
        };
        (self.link, self.call) = (Some(link), Some(call));
        true
    }

    fn finish(mut self, end: Result<stayput_upstream::Answer, CallError>) -> CallOutcome {
        self.call = None;
        let done = match (&self.errand, &self.link) {
            (Some(errand), Some(link)) => errand.ended(link, end),
            _ => None,
        };
        done.map_or(CallOutcome::Cancelled, CallOutcome::Done)
    }

    /// Goes on in a task of its own, on a stream that can be taken up again.
    fn detach(&mut self, first: Option<Incoming>, keep: bool) -> CallOutcome {
        let taken = (self.errand.take(), self.call.take(), self.link.take(), self.in_flight.take());
        let (Some(errand), Some(call), Some(link), Some(in_flight)) = taken else {
            return CallOutcome::Cancelled;
        };
        let line = errand.connection.line().cloned();
        let server = errand.visit.server.shared_name();
        let stream = line.unwrap_or_else(|| new_stream(&errand.connection, Some(server), keep));
        let pursuit = DetachedCall { errand, call, link, in_flight, stream: stream.clone() };
        tokio::runtime::Handle::current().spawn(pursuit.run(first));
        CallOutcome::Stream(stream)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        if self.call.is_some() && self.errand.is_some() {
            // Nobody knows of this stream, so nobody can take it up.
            self.detach(None, false);
        }
    }
}

/// A call whose answer goes to a stream, whoever reads it.
struct DetachedCall {
    errand: ClientCall,
    call: Call,
    link: Held,
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
                    questions.extend(say(&self.errand.connection, over, &self.stream, incoming));
                    continue;
                }
                None => break,
            };
            if let Err(error) = &end
                && let Some(again) = self.errand.once_more(error, &self.in_flight).await
            {
                (self.link, self.call) = again;
                continue;
            }
            if let Some(done) = self.errand.ended(&self.link, end) {
                self.stream.room().await;
                self.stream.push_then(done.text, done.then);
            }
            break;
        }
        // The one stream of a client goes on after a call.
        if self.errand.connection.line().is_none() {
            self.stream.end();
            self.errand.connection.streams.tidy();
            self.errand.visit.app.shelf.put(&self.stream);
        }
        // Nobody waits for answers to what was asked during the call.
        for number in questions {
            drop(self.errand.connection.asked(number));
        }
    }
}

/// An outcome as an answer of HTTP.
pub(crate) fn respond(app: &AppState, outcome: CallOutcome) -> Response<Reply> {
    match outcome {
        CallOutcome::Done(ReplyText { text, then }) => reply::message_then(text, then),
        CallOutcome::Stream(stream) => reply::stream(stream.read_after(0, &app.ids)),
        CallOutcome::Cancelled => reply::status(http::StatusCode::ACCEPTED),
    }
}
