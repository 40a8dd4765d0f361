//! Call pipeline: one request on its link, for clients of both eras.
//!
//! The steps in their order: identify the session, check the limits, find or open the link, report a pending loss,
//! send, follow the call, finish its answer. [`era`] has the hooks in which the eras differ.

mod call_stream;
mod detached;
pub(crate) mod era;
mod follow;
mod loss;
pub(crate) mod modern;
pub(crate) mod open_link;
mod owner;
pub(crate) mod sessionless;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use stayput_core::Generation;
use stayput_upstream::{Answer, Call, CallError, LossReason, PooledLink, Profile, Server};
use stayput_wire::{Code, Message};
use tracing::Instrument as _;

use self::{call_stream::CallStream, era::CallEra, follow::CallFuture, owner::CallOwner};
use crate::{
    connections::{connection::InFlight, event_stream::EventStream},
    identify::{self, RequestContext, RequestEdit, SessionChoice, cookie},
    observe::{
        CallEnd,
        call_record::{CallRecord, CallStart},
    },
    reply::{self, Reply, ReplyText, RequestRef, loss::depends_on_state},
    state::AppState,
};

/// Call of a client, with everything that is needed until the call ends.
pub(crate) struct ClientCall {
    owner: CallOwner,
    link: PooledLink,
    era: CallEra,
    /// Registration of the request id, by which the client can cancel the call. `None` without a connection.
    in_flight: Option<InFlight>,
    /// Request id, as the client wrote it.
    id: Arc<str>,
    method: Cow<'static, str>,
    record: CallRecord,
    /// Request text for a second attempt, if the server is configured to restart and the first attempt was lost
    /// before it ran.
    again: Option<Bytes>,
    /// Generation of a loss that the answer has to report.
    lost: Option<Generation>,
}

/// Outcome of a request.
pub(crate) enum CallOutcome {
    /// Complete answer.
    Done(ReplyText),
    /// Event stream that will carry the answer. The call goes on without its client.
    Stream(Arc<EventStream>),
    /// Messages of the call. Dropping them cancels the call.
    Call(Box<CallStream>),
    /// The client cancelled the request, so there is no answer.
    Cancelled,
    /// Outcome for a client that gets a cookie.
    WithCookie(Box<(Self, HeaderValue)>),
}

impl From<ReplyText> for CallOutcome {
    fn from(done: ReplyText) -> Self {
        Self::Done(done)
    }
}

/// Result of the first step: the owner of the call, or an answer without a call.
enum IdentifyOutcome {
    Owner(CallOwner, Option<RequestEdit>),
    Answered(ReplyText),
}

/// Runs a request on the session that it identifies. `profile` of the server is known for modern clients.
pub(crate) async fn run(
    context: &RequestContext<'_>,
    server: &Server,
    profile: Option<&Arc<Profile>>,
) -> CallOutcome {
    let id: Arc<str> = context.request_ref().id.into();
    // Reserves the id. From here on the client can cancel the request.
    let in_flight = match context.connection.map(|connection| connection.begin(&id)) {
        Some(None) => {
            context.app.count_refused("duplicate_id");
            let sentence = "a request with this id is in flight; each needs an id of its own";
            return context.error(Code::INVALID_REQUEST, sentence).into();
        }
        in_flight => in_flight.flatten(),
    };
    let era = match (profile, context.connection) {
        (Some(profile), _) => CallEra::modern(context, profile),
        (None, Some(connection)) => CallEra::Legacy(connection.clone()),
        (None, None) => return CallOutcome::Cancelled,
    };
    let (identified, cookie) = identify(context, server, profile).await;
    let outcome = match identified {
        IdentifyOutcome::Owner(owner, edit) => {
            let span = owner.span();
            start(context, owner, (id, in_flight, era), edit).instrument(span).await
        }
        IdentifyOutcome::Answered(text) => {
            CallRecord::begin(context.app.observers.as_ref(), context.call_start())
                .end_with(CallEnd::NoSession);
            text.into()
        }
    };
    match cookie {
        Some(cookie) => CallOutcome::WithCookie(Box::new((outcome, *cookie))),
        None => outcome,
    }
}

/// Identifies the owner of a call, and the cookie that names its session, if the client gets one.
async fn identify(
    context: &RequestContext<'_>,
    server: &Server,
    profile: Option<&Arc<Profile>>,
) -> (IdentifyOutcome, Option<Box<HeaderValue>>) {
    if let Some(claim) = context.claim {
        return match identify::without_names(context).await {
            Ok(edit) => {
                let owner = CallOwner::for_claimed_server(context, server, claim).await;
                (IdentifyOutcome::Owner(owner, edit), None)
            }
            Err(refusal) => {
                let answer = refusal.answer(context.request_ref(), context.era);
                (IdentifyOutcome::Answered(answer), None)
            }
        };
    }
    if let Some(owner) = profile.and_then(|it| CallOwner::sessionless(context, server, it)) {
        let edit = RequestEdit::without_meta_name(context.message);
        return (IdentifyOutcome::Owner(owner, edit), None);
    }
    let gets_cookie = context.connection.is_none() && cookie::is_on(context.app);
    let (identified, cookie) = match identify::identify_session(context).await {
        SessionChoice::Session(chosen, edit) => {
            let cookie = match gets_cookie {
                true => {
                    Box::pin(cookie::set_cookie(context.app, context.headers, &chosen.session))
                        .await
                }
                false => None,
            };
            let owner = CallOwner::for_session(context, server, chosen);
            (IdentifyOutcome::Owner(owner, edit), cookie)
        }
        SessionChoice::Answer(answer) => {
            let deletion = gets_cookie.then(|| cookie::line(context.app, None)).flatten();
            (IdentifyOutcome::Answered(answer), deletion)
        }
    };
    (identified, cookie.map(Box::new))
}

/// Checks the limits, finds the link, and sends the call unless a loss has to be reported first.
async fn start(
    context: &RequestContext<'_>,
    owner: CallOwner,
    (id, in_flight, era): (Arc<str>, Option<InFlight>, CallEra),
    edit: Option<RequestEdit>,
) -> CallOutcome {
    let (app, request) = (context.app, context.request_ref());
    let call_start =
        CallStart { name_source: owner.name_source(), ..context.call_start_in(owner.session()) };
    let record = CallRecord::begin(app.observers.as_ref(), call_start);
    let refused = |end, text: ReplyText| {
        record.end_with(end);
        CallOutcome::Done(text)
    };
    if let Some(sentence) = owner.limit_error() {
        app.count_refused("busy");
        return refused(CallEnd::Denied, context.failure(&sentence));
    }
    let link = match open_link::find_or_open(
        &owner,
        era.connection(),
        || era.client_info(context.message),
        request,
    )
    .await
    {
        Ok(link) => link,
        Err(sentence) => {
            app.count_refused("no_link");
            return refused(CallEnd::NoLink, context.failure(&sentence));
        }
    };
    if let Some(sentence) = era.refusal(&link, request.method) {
        return refused(CallEnd::Denied, context.error(Code::METHOD_NOT_FOUND, &sentence));
    }
    owner.settle_reports(&link).await;
    let lost = match owner.pending_loss(&link, request) {
        Some(_) if owner.restarts() => owner.unacknowledged_loss(),
        Some(report) => return refused(CallEnd::Lost, report),
        None => None,
    };
    if in_flight.as_ref().is_some_and(InFlight::is_cancelled) {
        return CallOutcome::Cancelled;
    }
    let method = method_name(request.method);
    let outgoing = edit.as_ref().map_or(context.message.text(), RequestEdit::text);
    let again = (owner.restarts() && depends_on_state(&method))
        .then(|| Bytes::copy_from_slice(outgoing.as_bytes()));
    let span = link.call_span(&method, || context.call_start().tool());
    let call = ClientCall { owner, link, era, in_flight, id, method, record, again, lost };
    call.log_translation();
    match edit.as_ref().map(|edit| edit.message(context.message)) {
        None => call.send(context, context.message).instrument(span).await,
        Some(Ok(edited)) => call.send(context, &edited).instrument(span).await,
        // The text parsed before the session name was removed, so this does not happen.
        Some(Err(error)) => ReplyText::new(error.answer()).into(),
    }
}

/// Returns the method name. `tools/call`, by far the most frequent one, is not copied.
fn method_name(method: &str) -> Cow<'static, str> {
    match method {
        "tools/call" => Cow::Borrowed("tools/call"),
        other => Cow::Owned(other.to_owned()),
    }
}

impl ClientCall {
    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef { id: &self.id, method: &self.method }
    }

    /// Sends the request, and follows the call until it has an answer or becomes a stream.
    async fn send(mut self, context: &RequestContext<'_>, message: &Message<'_>) -> CallOutcome {
        // A `subscriptions/listen` request is not timed, because it may last for hours.
        if !era::listens(&self.method) {
            self.record.sent(&self.owner.app.metrics, self.owner.server.name());
        }
        let traced = self.record.traced(message);
        let traced = traced.as_deref().and_then(|text| Message::parse(text.as_bytes()).ok());
        let message = traced.as_ref().unwrap_or(message);
        if let Some(connection) = self.era.connection() {
            // Registers the subscription before the server can send a notification for it.
            connection.note_subscription(self.link.entry_id(), message);
        }
        let call = match self.transmit(&self.link, message).await {
            Ok(call) => call,
            Err(error) => match Box::pin(self.once_more(&error)).await {
                Some(call) => call,
                None => {
                    return self
                        .ended(Err(error))
                        .map_or(CallOutcome::Cancelled, CallOutcome::Done);
                }
            },
        };
        CallFuture::new(self, call).wait(context).await
    }

    /// Writes the request to a link, in the form that its server understands.
    async fn transmit(&self, link: &PooledLink, message: &Message<'_>) -> Result<Call, CallError> {
        let options = self.era.options(&self.method);
        let call = match self.era.edit(message, link) {
            None => link.send(message, options).await?,
            Some(text) => {
                let edited = Message::parse(text.as_bytes());
                let edited =
                    edited.map_err(|error| CallError::Invalid(error.to_string().into()))?;
                link.send(&edited, options).await?
            }
        };
        if let Some(in_flight) = &self.in_flight {
            in_flight.sent(&call.canceller());
        }
        Ok(call)
    }

    /// Sends the request a second time after a loss, if it certainly did not run and its server is configured to
    /// restart.
    async fn once_more(&mut self, error: &CallError) -> Option<Call> {
        let loss = error.loss()?;
        if error.delivery().may_have_run() || loss.reason() == LossReason::Released {
            return None;
        }
        let cancelled = self.in_flight.as_ref().is_some_and(InFlight::is_cancelled);
        let text = self.again.take().filter(|_| !cancelled)?;
        let connection = self.era.connection()?;
        let client_info = || connection.client_info.clone();
        let found =
            open_link::find_or_open(&self.owner, Some(connection), client_info, self.request_ref());
        let link = found.await.ok()?;
        let call = self.transmit(&link, &Message::parse(&text).ok()?).await.ok()?;
        self.lost = self.owner.unacknowledged_loss();
        self.link = link;
        Some(call)
    }

    /// Records the end of the call and returns its answer, or `None` if the client cancelled it.
    fn ended(&self, end: Result<Answer, CallError>) -> Option<ReplyText> {
        self.record.ended(self.owner.session(), &self.link, &end);
        match end {
            Ok(answer) => Some(self.finish(answer)),
            Err(CallError::Cancelled) => None,
            Err(error) => Some(self.owner.failed(&self.link, self.request_ref(), &error)),
        }
    }
}

/// Converts an outcome to an HTTP response.
pub(crate) fn respond(app: &AppState, outcome: CallOutcome) -> Response<Reply> {
    match outcome {
        CallOutcome::Done(done) => done.response(),
        CallOutcome::Stream(stream) => reply::stream(stream.read_after(0, &app.ids)),
        CallOutcome::Call(messages) => reply::events(Reply::Call(messages)),
        CallOutcome::Cancelled => reply::status(http::StatusCode::ACCEPTED),
        CallOutcome::WithCookie(with) => {
            let mut response = respond(app, with.0);
            response.headers_mut().insert(header::SET_COOKIE, with.1);
            response
        }
    }
}
