//! One request: its head is checked and authenticated, then its body is read, then it is answered.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header, request::Parts};
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::{
    answer::Answer,
    body::{BodyError, RequestBody},
    state::ConnState,
};
use crate::{
    identify::header_names,
    listen::{
        forward,
        refusal::{body_refusal, refuse},
        router::{BodyHandler, RequestPeer, Step, enter},
        workers,
    },
    reply::Reply,
    state::AppState,
};

/// Longest path and query, in bytes.
const MAX_TARGET: usize = 16 << 10;

/// Time to send a body after which the head is authenticated again: access may have ended meanwhile.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Size of a body above which the request is not answered on the worker thread.
const LARGE: usize = 256 << 10;

/// Error of a request whose client disconnected. It ends the connection without a response.
#[derive(Debug)]
pub(super) struct Disconnected;

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client disconnected")
    }
}

impl std::error::Error for Disconnected {}

/// Answers a request, unless the connection is being closed (`runs` is false). hyper drops this future when the client disconnects.
pub(super) async fn respond(
    state: Arc<ConnState>,
    peer: RequestPeer,
    (request, runs): (Request<Incoming>, bool),
) -> Result<Response<Answer>, Disconnected> {
    if !runs {
        return Err(Disconnected);
    }
    let (head, incoming) = request.into_parts();
    let app = state.current_app();
    if let Err((status, sentence)) = check(&head) {
        let response = refuse(&app, status, sentence);
        return Ok(Answer::prepare(response, state, (head.headers, false)));
    }
    let mut body = RequestBody::new(&head, incoming);
    let response = read_and_answer(&app, peer, &state, (&head, &mut body)).await?;
    // Clients of a draining gateway open their next connection to another one.
    let keeps = body.skip(&state).await && (peer.is_replica() || !app.health.is_draining());
    if keeps {
        state.mark_read();
    }
    Ok(Answer::prepare(response, state, (head.headers, keeps)))
}

/// Refuses a head that a proxy in front of the gateway may read differently (request smuggling), where hyper does not.
fn check(head: &Parts) -> Result<(), (StatusCode, &'static str)> {
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target > MAX_TARGET {
        let sentence = "the path has more than 16384 bytes, which is the limit";
        return Err((StatusCode::URI_TOO_LONG, sentence));
    }
    if head.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err((StatusCode::BAD_REQUEST, "there is more than one Host"));
    }
    if head.headers.get_all(&header_names::MCP_SESSION_ID).iter().nth(1).is_some() {
        return Err((StatusCode::BAD_REQUEST, "there is more than one Mcp-Session-Id"));
    }
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|it| it.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err((StatusCode::BAD_REQUEST, "the only Transfer-Encoding is `chunked`, once"));
    }
    Ok(())
}

/// Answers a request, here or at the replica that holds its session.
async fn read_and_answer(
    app: &Arc<AppState>,
    peer: RequestPeer,
    state: &ConnState,
    (head, body): (&Parts, &mut RequestBody),
) -> Result<Response<Reply>, Disconnected> {
    // Kept only if it may have to be forwarded.
    let mut kept = app.cluster.as_ref().map(|_| Bytes::new());
    let mut response = take_here(app, peer, state, (head, body, &mut kept)).await?;
    if !forward::is_due(&response) {
        if let Some(cluster) = app.cluster.as_ref().filter(|_| peer.is_replica()) {
            cluster.receipts.expect(&mut response);
        }
        return Ok(response);
    }
    // Boxed because it is rare.
    Ok(Box::pin(forward::settle(app, peer, (head, kept.unwrap_or_default()), response)).await)
}

async fn take_here(
    app: &Arc<AppState>,
    peer: RequestPeer,
    state: &ConnState,
    (head, body, kept): (&Parts, &mut RequestBody, &mut Option<Bytes>),
) -> Result<Response<Reply>, Disconnected> {
    // Both futures are pinned here, because they are large and would be copied.
    let step = pin!(enter(app, peer, head)).await;
    if step.is_signed() {
        state.set_verified();
    }
    let handler = match step {
        Step::Answer(response) => {
            // A request that is forwarded takes its body along.
            if let (Some(kept), Some(owner)) = (kept, forward::owner(&response)) {
                let permit = app.body_budget.permit(owner);
                match body.collect(state, (&app.rules, permit)).await {
                    Ok(body) => *kept = body,
                    Err(BodyError::Gone) => return Err(Disconnected),
                    Err(why) => return Ok(body_refusal(app, &why)),
                }
            }
            return Ok(*response);
        }
        Step::Body(handler) => handler,
    };
    let owner = handler.owner();
    let permit = app.body_budget.permit(owner);
    let collected = body.collect(state, (&app.rules, permit)).await;
    app.rate_limiter.charge_now(owner, body.size());
    if let (Some(kept), Ok(body)) = (kept, &collected) {
        *kept = body.clone();
    }
    let is_late = app.newer().is_some() || body.waited() > RECHECK_AFTER;
    match collected {
        // The replica that forwarded a request watches over the access of its client.
        Ok(body) if is_late && !peer.is_replica() => {
            // Boxed because it is rare.
            Box::pin(answer_late(app, peer, (head, body))).await
        }
        Ok(body) if body.len() > LARGE => {
            Box::pin(answer_large((app, handler), &head.headers, body)).await
        }
        Ok(body) => Ok(pin!(handler.answer(app, &head.headers, body, Some(state))).await),
        Err(BodyError::Gone) => Err(Disconnected),
        Err(why) => Ok(body_refusal(app, &why)),
    }
}

/// Answers a request with a large body on the threads for such requests. If the client disconnects, the request is
/// dropped there, too.
async fn answer_large(
    (app, handler): (&Arc<AppState>, BodyHandler),
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response<Reply>, Disconnected> {
    let Some(runtime) = workers::large_requests() else {
        return Ok(handler.answer(app, headers, body, None).await);
    };
    let (app, headers) = (app.clone(), headers.clone());
    // Dropping the set aborts the task.
    let mut tasks = JoinSet::new();
    tasks.spawn_on(async move { handler.answer(&app, &headers, body, None).await }, &runtime);
    tasks.join_next().await.and_then(Result::ok).ok_or(Disconnected)
}

/// Answers a request whose body came slowly, or during a reload. Its head is authenticated and routed again, because the
/// client may have lost access since.
async fn answer_late(
    app: &Arc<AppState>,
    peer: RequestPeer,
    (head, body): (&Parts, Bytes),
) -> Result<Response<Reply>, Disconnected> {
    let app = app.now();
    match enter(&app, peer, head).await {
        Step::Answer(response) => Ok(*response),
        Step::Body(handler) if body.len() > LARGE => {
            answer_large((&app, handler), &head.headers, body).await
        }
        Step::Body(handler) => Ok(handler.answer(&app, &head.headers, body, None).await),
    }
}
