//! POST requests of clients: one message or a batch.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use stayput_wire::{Batch, Code, Era, Message, MessageKind, Version, header as mcp};

use tokio::time::Instant;

use crate::{
    auth::rate_limit::RateLimited,
    call::{self, CallOutcome, era},
    identify::{RequestContext, cookie, header_names, renew_cookie},
    listen::{
        batch, forward,
        message_forward::{self, Outcome, Sender},
        router::{RequestTarget, find_connection},
    },
    messages::notifications::handle_message,
    reply::{self, Reply, ReplyText, SocketTimer, accepts},
    route::{
        self,
        admission::admit,
        initialize::{self, InitializeOutcome},
    },
    state::AppState,
};

/// Answers the body of a POST. `timer` is that of the client's socket, if this is its task.
pub(super) async fn answer(
    app: &Arc<AppState>,
    at: &RequestTarget,
    headers: &HeaderMap,
    body: &[u8],
    timer: Option<&dyn SocketTimer>,
) -> Response<Reply> {
    if forward::is_too_late(app, &at.principal, body) {
        return forward::not_held();
    }
    if Batch::is_batch(body) {
        return Box::pin(answer_batch(app, at, headers, body)).await;
    }
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(error) => return bad(error.answer()),
    };
    let context = RequestContext { timer, ..context(app, at, headers, &message) };
    if let Err(refusal) = admit(&context) {
        return refusal.response();
    }
    let is_request = matches!(message.kind(), MessageKind::Request { .. });
    if context.era == Era::Modern {
        return match is_request {
            true => call::respond(app, route::answer(&context).await),
            false => take_unrequested(&message),
        };
    }
    if message.method() == Some("initialize") && is_request {
        return initialize_response(app, Box::pin(initialize::initialize(&context)).await);
    }
    let id = message.id().map(|id| id.as_str()).filter(|_| is_request);
    if let Some(refused) = unknown_version(headers, id) {
        return refused;
    }
    let connection = match find_connection(app, at, headers).await {
        Ok(connection) => connection,
        Err(error) => return error.answer(id),
    };
    if !is_request {
        let concerned = handle_message(app, &connection, &message);
        let mut response = reply::status(StatusCode::ACCEPTED);
        if let Some(concerned) = concerned {
            forward::mark_to_pass_on(&mut response, &at.principal, concerned);
        }
        renew_cookie(app, headers, &mut response);
        return response;
    }
    let context = RequestContext { connection: Some(&connection), ..context };
    let mut response = call::respond(app, route::answer(&context).await);
    renew_cookie(app, headers, &mut response);
    response
}

/// Answers a notification or a response of a modern client. No notification of this era is for a server; clients cancel
/// by closing the stream.
fn take_unrequested(message: &Message<'_>) -> Response<Reply> {
    if matches!(message.kind(), MessageKind::Notification { .. }) {
        return reply::status(StatusCode::ACCEPTED);
    }
    let sentence = "clients of this version send requests, not answers";
    bad(reply::error("null", Code::INVALID_REQUEST, sentence))
}

/// Builds the context of a message.
fn context<'a>(
    app: &'a Arc<AppState>,
    at: &'a RequestTarget,
    headers: &'a HeaderMap,
    message: &'a Message<'a>,
) -> RequestContext<'a> {
    let era = era::detect(headers, message);
    RequestContext {
        path_key: at.key.as_deref(),
        streams: accepts(headers, mcp::EVENT_STREAM),
        ..RequestContext::new(app, (&at.principal, &at.target), headers, (message, era))
    }
}

fn initialize_response(
    app: &AppState,
    InitializeOutcome { answer, name, later, held_by }: InitializeOutcome,
) -> Response<Reply> {
    let mut response = reply::message(answer);
    reply::held_elsewhere(&mut response, held_by);
    if let Some(status) = later {
        *response.status_mut() = status;
        return reply::later(response, reply::AWHILE);
    }
    let Some(name) = name else { return response };
    if let Ok(id) = HeaderValue::from_str(name.expose()) {
        response.headers_mut().insert(mcp::MCP_SESSION_ID, id);
    }
    if cookie::is_on(app)
        && let Some(line) = cookie::line(app, Some(&name))
    {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
    response
}

fn bad(answer: String) -> Response<Reply> {
    let mut response = reply::message(answer);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn unknown_version(headers: &HeaderMap, id: Option<&str>) -> Option<Response<Reply>> {
    let version = headers.get(&header_names::PROTOCOL_VERSION)?.to_str().unwrap_or("?");
    if Version::from(version).is_known() {
        return None;
    }
    let sentence = "MCP-Protocol-Version names a version that is not known here";
    Some(reply::refusal(StatusCode::BAD_REQUEST, id, Code::INVALID_REQUEST, sentence))
}

/// Answer to a request of a batch that is over the rate limit. Each request of a batch counts, and the refused one is
/// not run.
fn too_fast(context: &RequestContext<'_>, wait: Duration) -> ReplyText {
    let sentence = format!(
        "Nothing was run: these are more requests than `limits.per_owner.requests_per_second` allows. Try \
         again in {} s.",
        reply::whole_seconds(wait)
    );
    context.failure(&sentence)
}

/// Answers a batch (2025-03-26): all answers come in one response.
async fn answer_batch(
    app: &Arc<AppState>,
    at: &RequestTarget,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    if era::is_modern(headers) {
        return bad(batch::refusal());
    }
    let connection = match find_connection(app, at, headers).await {
        Ok(connection) => connection,
        Err(error) => return error.answer(None),
    };
    let batch = match batch::split(Some(&connection.version), body) {
        Ok(batch) => batch,
        Err(answer) => return bad(answer),
    };
    let (principal, name) = (&at.principal, connection.name());
    let sender = Sender { principal, connection: Some(name), streams: false };
    let mut answers: Vec<ReplyText> = Vec::new();
    for text in batch.messages() {
        let message = match Message::parse(text.as_bytes()) {
            Ok(message) => message,
            Err(error) => {
                answers.push(ReplyText::new(error.answer()));
                continue;
            }
        };
        let context = RequestContext {
            connection: Some(&connection),
            era: Era::Legacy,
            streams: false,
            ..context(app, at, headers, &message)
        };
        if let Err(refusal) = admit(&context) {
            answers.push(ReplyText::new(refusal.text));
        } else if !matches!(message.kind(), MessageKind::Request { .. }) {
            if let Some(concerned) = handle_message(app, &connection, &message) {
                message_forward::pass_on(&context, sender, concerned);
            }
        } else if let Err(RateLimited(wait)) =
            app.rate_limiter.admit(&connection.owner, Instant::now())
        {
            answers.push(too_fast(&context, wait));
        } else {
            match message_forward::answer(&context, sender).await {
                Outcome::Here(CallOutcome::Done(done)) => answers.push(done),
                Outcome::Here(_) => {}
                Outcome::Elsewhere(response) => {
                    answers.push(message_forward::whole_answer(&context, response).await);
                }
            }
        }
    }
    batch::join(answers)
}
