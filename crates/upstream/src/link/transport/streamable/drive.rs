//! One call over Streamable HTTP, from its POST to its answer.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use stayput_http::Response;
use stayput_wire::{Code, Message, header};
use tokio::{task::unconstrained, time::sleep_until};

use super::{RequestParts, ServerSession, Streamable, follow, unauthorized};
use crate::{
    CallError, Delivery,
    link::{
        CallOptions, Core, LinkTransport, MessageSource, PendingCall, PreparedMessage,
        RequestOrigin, Routing, compose,
        list_pages::{MAX_LIST_PAGES, next_page},
        prepare,
    },
    loss::session_unknown::{self, ErrorMeaning},
};

pub(super) fn streamable(core: &Core) -> Option<&Streamable> {
    match &core.transport {
        LinkTransport::Streamable(http) => Some(http),
        _ => None,
    }
}

/// Fails the call if its task ends without a result, so that the caller does not wait for ever.
struct FailOnDrop {
    core: Arc<Core>,
    number: u64,
}

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        // Nearly always the call has its result already.
        if let Some(pending_call) = self.core.take_if_in_flight(self.number) {
            let error = CallError::failed("the runtime of the link ended", Delivery::Unknown);
            pending_call.inbox.end(Err(error));
        }
    }
}

/// Sends a request, reads its response, and enforces the call's deadline. The future is as small as possible:
/// every call has its own in memory.
pub(super) fn drive(
    core: Arc<Core>,
    pending_call: Arc<PendingCall>,
    mut prepared: PreparedMessage,
) -> impl Future<Output = ()> + Send {
    let guard = FailOnDrop { core, number: pending_call.number };
    async move {
        let core = &guard.core;
        let Some(http) = streamable(core) else { return };
        tokio::select! {
            // A response that can be read comes before the timeout.
            biased;
            done = exchange(http, core, &pending_call, &mut prepared) => {
                if let Err(error) = done {
                    core.fail(pending_call.number, error);
                }
            }
            // A server that never stops sending uses up the task's budget, which must not stop the timer.
            () = unconstrained(overdue(core, &pending_call)) => core.expire(),
        }
    }
}

/// Returns when the call has timed out. Progress moves the deadline, so it is checked again after each sleep.
async fn overdue(core: &Core, pending_call: &PendingCall) {
    loop {
        let expires = pending_call.expires();
        sleep_until(expires).await;
        if !core.pending.lock().is_in_flight(pending_call.number) {
            // The call has its answer; only the rest of the response is still being read.
            return std::future::pending().await;
        }
        if pending_call.expires() <= expires {
            return;
        }
    }
}

async fn exchange(
    http: &Streamable,
    core: &Arc<Core>,
    pending_call: &PendingCall,
    PreparedMessage { text, handshake, routing, .. }: &mut PreparedMessage,
) -> Result<(), CallError> {
    // The line break at the end is for pipes.
    text.truncate(text.len().saturating_sub(1));
    let mut ask = http.post(core, routing.as_deref(), std::mem::take(text));
    ask.watched = pending_call.limit;
    // Boxed separately, so that both futures fit the small sizes that an allocator has at hand.
    let mut response = Box::pin(http.wire.send(&ask)).await?;
    if !response.status.is_success() {
        // Only `tools/call` can lack headers; and `tools/list`, which learns them, must not call itself.
        let calls = routing.as_ref().is_some_and(|it| &*it.method == "tools/call");
        // Boxed, because the future of every call would otherwise be as large as this rare one.
        return Box::pin(refused(http, core, pending_call, (ask, calls), response)).await;
    }
    if *handshake {
        capture(http, &response.headers);
    }
    // The usual case.
    if is(&response.headers, header::JSON)
        && let Some(body) = response.body.whole(http.wire.limit)
    {
        return received(core, pending_call, body).inspect_err(|_| response.body.discard());
    }
    Box::pin(take_answer(http, core, pending_call, response)).await
}

/// Handles an error status: fails the call, or sends it once more.
async fn refused(
    http: &Streamable,
    core: &Arc<Core>,
    pending_call: &PendingCall,
    asked: (RequestParts<'_>, bool),
    response: Response,
) -> Result<(), CallError> {
    let ((mut ask, calls), number) = (asked, pending_call.number);
    let mut refused = ErrorResponse::read(response, number).await;
    if calls
        && refused.is_header_mismatch()
        && let Some(routing) = learn_headers(core, ask.body.clone()).await
    {
        // The server refused the request, so it was not executed and may be sent again.
        ask = http.post(core, Some(&routing), ask.body);
        let response = http.wire.send(&ask).await?;
        if response.status.is_success() {
            return take_answer(http, core, pending_call, response).await;
        }
        refused = ErrorResponse::read(response, number).await;
    }
    Err(refused.judge(http, core, number))
}

async fn take_answer(
    http: &Streamable,
    core: &Arc<Core>,
    pending_call: &PendingCall,
    mut response: Response,
) -> Result<(), CallError> {
    if is(&response.headers, header::EVENT_STREAM) {
        return follow::follow(http, core, pending_call, response).await;
    }
    if !is(&response.headers, header::JSON) {
        let status = response.status.as_u16();
        let what = if response.status == StatusCode::ACCEPTED {
            "the server took the request and gave no answer (HTTP 202)".to_owned()
        } else if is(&response.headers, "text/html") {
            format!("the server answered with a web page (HTTP {status}); {}", super::PATH_HINT)
        } else {
            format!(
                "the server answered with neither JSON nor events (HTTP {status}); {}",
                super::PATH_HINT
            )
        };
        return Err(CallError::failed(what, Delivery::Unknown));
    }
    let body = response.body.read_all(http.wire.limit).await.map_err(|error| {
        if matches!(error.kind(), stayput_http::HttpErrorKind::TooLarge { .. }) {
            return CallError::TooLarge { limit: http.wire.limit };
        }
        super::of_http(&error)
    })?;
    received(core, pending_call, body).inspect_err(|_| response.body.discard())
}

/// Handles the complete body of a response. After an error the connection must not be used again.
fn received(core: &Arc<Core>, pending_call: &PendingCall, body: Bytes) -> Result<(), CallError> {
    let received = core.receive(Vec::from(body), MessageSource::Call(pending_call.number));
    if received.answers > 0 && !received.foreign {
        return Ok(());
    }
    // If the call has ended in another way, this error finds no call to fail.
    Err(foreign())
}

/// Error of a response with the id of another request. Whether this request was executed is not known.
pub(super) fn foreign() -> CallError {
    CallError::failed("the server's answer belongs to another request", Delivery::Unknown)
}

/// Lists the tools again to learn which arguments are sent as headers: the tools may have changed since they
/// were listed. Boxed, because a call inside a call would have no finite size.
fn learn_headers(
    core: &Arc<Core>,
    text: Bytes,
) -> Pin<Box<dyn Future<Output = Option<Box<Routing>>> + Send + '_>> {
    Box::pin(async move {
        let protocol = core.protocol.get()?;
        let mut params = "{}".to_owned();
        for _ in 0..MAX_LIST_PAGES {
            let list = compose("tools/list", Some(&params));
            let list = Message::parse(list.as_bytes()).ok()?;
            let call = core.call(&list, CallOptions::default(), RequestOrigin::Here).await.ok()?;
            let answer = call.answer().await.ok()?;
            protocol.learn_tools(answer.result()?);
            let Some(cursor) = next_page(answer.result()?) else { break };
            params = cursor;
        }
        let message = Message::parse(&text).ok()?;
        prepare::request(&message, 0, Some(protocol)).ok()?.routing
    })
}

/// Stores the session id. Only the response to `initialize` names it.
fn capture(http: &Streamable, headers: &HeaderMap) {
    let named = headers.get(header::MCP_SESSION_ID);
    if let Some(id) = named.and_then(|id| ServerSession::new(id.as_bytes())) {
        let _ = http.session.set(id);
    }
}

/// Response with an error status.
pub(super) struct ErrorResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// Whether the body is an error with the id of another request.
    foreign: bool,
}

impl ErrorResponse {
    /// Reads the response to the call with this number, also so that the connection can be used again.
    pub(super) async fn read(mut response: Response, number: u64) -> Self {
        let body =
            response.body.read_all(session_unknown::MAX_ERROR_BODY).await.unwrap_or_default();
        // Servers that did not read the request use a text as the id, which does not name another request.
        let id = Message::parse(&body).ok().and_then(|message| message.id()?.number());
        let foreign = id.is_some_and(|id| id != number);
        if foreign {
            response.body.discard();
        }
        Self { status: response.status, headers: response.headers, body, foreign }
    }

    fn is_header_mismatch(&self) -> bool {
        let message = Message::parse(&self.body).ok();
        let code = message.and_then(|it| it.error()?.find(&["code"])?.integer());
        code.map(Code) == Some(Code::HEADER_MISMATCH)
    }

    /// Returns the error for the call. If the body is an answer, the call gets it, and the error finds no call
    /// to fail any more.
    pub(super) fn judge(&self, http: &Streamable, core: &Arc<Core>, number: u64) -> CallError {
        let Self { status, headers, body, foreign: is_foreign } = self;
        match session_unknown::of_status(status.as_u16(), body, http.session().is_some()) {
            ErrorMeaning::SessionGone => {
                let loss = core.end_unknown_session(&http.describe_error(*status, body));
                CallError::Lost { loss, delivery: Delivery::Refused }
            }
            ErrorMeaning::Answer if *is_foreign => foreign(),
            ErrorMeaning::Answer => {
                core.receive(&body[..], MessageSource::Call(number));
                // If the id was not ours, the call fails with this description.
                CallError::failed(http.describe_error(*status, body), Delivery::Refused)
            }
            ErrorMeaning::Unauthorized => unauthorized(*status, headers),
            ErrorMeaning::Refused => {
                CallError::failed(http.describe_error(*status, body), Delivery::Refused)
            }
            ErrorMeaning::Unknown => {
                CallError::failed(http.describe_error(*status, body), Delivery::Unknown)
            }
        }
    }
}

pub(super) fn is(headers: &HeaderMap, kind: &str) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let said = said.map(|value| value.split(';').next().unwrap_or_default().trim());
    said.is_some_and(|said| said.eq_ignore_ascii_case(kind))
}
