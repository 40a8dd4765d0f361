//! Requests that have no HTTP request of their own, because their client sends batches, uses the 2024-11-05 transport, or
//! writes lines. One that another replica has to answer is forwarded as a POST of the client's connection, and its messages
//! come back in the form of the client.

use std::{future::poll_fn, pin::Pin};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header, request::Parts};
use hyper::body::Body as _;
use stayput_core::Handle;
use stayput_wire::{Era, Message, MessageKind, header as mcp, meta, percent, sse::Decoder};

use super::forward::{self, Attempts};
use crate::{
    auth::Principal,
    call::CallOutcome,
    config::target::Target,
    connections::event_stream::EventStream,
    identify::RequestContext,
    messages::notifications::ConcernedReplicas,
    reply::{AfterWrite, HeldBy, Reply, ReplyText},
    route::{
        self,
        initialize::{self, InitializeOutcome},
    },
};

/// Largest event of another replica: the largest message, and some bytes for its field names.
const MAX_EVENT: usize = Message::MAX_BYTES + 1024;

/// Client of the requests, as the holder of a session has to know it.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) principal: &'a Principal,
    /// Connection of the client, if it has one.
    pub(super) connection: Option<&'a Handle>,
    /// Whether the messages before the answer can be passed on.
    pub(super) streams: bool,
}

/// Outcome of a request, wherever it was answered.
pub(super) enum Outcome {
    Here(CallOutcome),
    /// Answer of another replica.
    Elsewhere(Response<Reply>),
}

/// Answers a request, here or at the replica that holds its session.
pub(super) async fn answer(context: &RequestContext<'_>, sender: Sender<'_>) -> Outcome {
    let mut attempts = None;
    loop {
        let mut outcome = route::answer(context).await;
        let held_by = match &mut outcome {
            CallOutcome::Done(done) => done.held_by.take(),
            _ => None,
        };
        let Some(held_by) = held_by else { return Outcome::Here(outcome) };
        // Boxed because it is rare.
        if let Some(answer) = Box::pin(send(context, sender, held_by, &mut attempts)).await {
            return Outcome::Elsewhere(answer);
        }
    }
}

/// Opens a connection of a client, here or at the replica that holds the session which it names.
pub(super) async fn initialize(
    context: &RequestContext<'_>,
    principal: &Principal,
) -> InitializeOutcome {
    let sender = Sender { principal, connection: None, streams: false };
    let mut attempts = None;
    loop {
        let mut outcome = initialize::initialize(context).await;
        let Some(held_by) = outcome.held_by.take() else { return outcome };
        let Some(answer) = Box::pin(send(context, sender, held_by, &mut attempts)).await else {
            continue;
        };
        let name = answer.headers().get(mcp::MCP_SESSION_ID);
        let name = name.and_then(|name| name.to_str().ok()?.parse().ok());
        let answer = whole_answer(context, answer).await.text;
        return InitializeOutcome { answer, name, later: None, held_by: None };
    }
}

/// Sends a request to a replica. Returns `None` if nothing was run, after a pause: the session has to be looked up again.
async fn send(
    context: &RequestContext<'_>,
    sender: Sender<'_>,
    held_by: Box<HeldBy>,
    attempts: &mut Option<Attempts>,
) -> Option<Response<Reply>> {
    let head = head(context, sender);
    let body = Bytes::copy_from_slice(context.message.text().as_bytes());
    let attempts = attempts.get_or_insert_with(|| Attempts::new(context.app));
    attempts.send(context.app, *held_by, sender.principal, (&head, &body)).await
}

/// Passes a notification or an answer of a client on to the replicas that it concerns, in the background.
pub(super) fn pass_on(
    context: &RequestContext<'_>,
    sender: Sender<'_>,
    concerned: ConcernedReplicas,
) {
    let Some(cluster) = context.app.cluster.clone() else { return };
    let (head, principal) = (head(context, sender), sender.principal.clone());
    let body = Bytes::copy_from_slice(context.message.text().as_bytes());
    tokio::runtime::Handle::current().spawn(async move {
        forward::pass_on(&cluster, concerned, (&head, &body), &principal).await;
    });
}

/// Builds the head of a POST for one message.
fn head(context: &RequestContext<'_>, sender: Sender<'_>) -> Parts {
    let mut path = match context.target {
        Target::All => "/mcp".to_owned(),
        Target::Server(name) => format!("/mcp/{name}"),
    };
    if let Some(key) = context.path_key {
        path.push_str("/~");
        path.push_str(&percent::encode(key));
    }
    let mut parts = Request::new(()).into_parts().0;
    parts.method = Method::POST;
    // Names of servers have no character that a path cannot hold.
    parts.uri = path.parse().unwrap_or_default();
    parts.headers = headers(context.headers, sender);
    if context.era == Era::Modern {
        repeat_in_headers(context.message, &mut parts.headers);
    }
    parts
}

/// Repeats in headers what a modern HTTP client repeats there.
fn repeat_in_headers(message: &Message<'_>, headers: &mut HeaderMap) {
    let version = message.meta().and_then(|it| it.find(&[meta::PROTOCOL_VERSION])?.text());
    let method = message.method();
    let name = method.and_then(mcp::name_member);
    let name = name.and_then(|member| message.params()?.find(&[member])?.text());
    for (header, value) in [
        (mcp::PROTOCOL_VERSION, version.as_deref()),
        (mcp::METHOD, method),
        (mcp::NAME, name.as_deref()),
    ] {
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&mcp::encode(value))) {
            headers.insert(header, value);
        }
    }
}

fn headers(of_client: &HeaderMap, sender: Sender<'_>) -> HeaderMap {
    const REPLACED: [HeaderName; 4] =
        [header::ACCEPT, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING];
    let mut headers = of_client.clone();
    for name in REPLACED {
        headers.remove(name);
    }
    let accepted =
        if sender.streams { "application/json, text/event-stream" } else { "application/json" };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(mcp::JSON));
    headers.insert(header::ACCEPT, HeaderValue::from_static(accepted));
    if let Some(Ok(name)) = sender.connection.map(|name| HeaderValue::from_str(name.expose())) {
        headers.insert(mcp::MCP_SESSION_ID, name);
    }
    headers
}

/// Reads the answer of another replica as a whole.
pub(super) async fn whole_answer(
    context: &RequestContext<'_>,
    response: Response<Reply>,
) -> ReplyText {
    match response.into_body() {
        Reply::Whole(text, then) => ReplyText::new(fitting(context, text)).then(then),
        _ => context.failure("another gateway answered with a stream that nobody asked for"),
    }
}

/// Writes the messages of another replica to the client's stream, up to the answer.
pub(super) async fn write_answer(
    context: &RequestContext<'_>,
    response: Response<Reply>,
    line: &EventStream,
) {
    if matches!(response.body(), Reply::Whole(..)) {
        // A cancelled request has no answer.
        if response.status() != http::StatusCode::ACCEPTED {
            let done = whole_answer(context, response).await;
            line.room().await;
            line.push_then(done.text, done.then);
        }
        return;
    }
    let (mut body, mut decoder) = (response.into_body(), Decoder::new(MAX_EVENT));
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(chunk) = frame.into_data() else { continue };
        let mut chunk = &*chunk;
        while let Some(event) = decoder.next_event(&mut chunk) {
            let Ok(event) = event else { continue };
            let text = Bytes::copy_from_slice(event.data());
            let Ok(message) = Message::parse(&text) else { continue };
            line.room().await;
            if matches!(message.kind(), MessageKind::Response { .. } | MessageKind::Error { .. }) {
                // The other replica learns that the answer was written when the rest of its stream is read.
                line.push_then(text.clone(), Some(AfterWrite::new(None, || read_rest(body))));
                return;
            }
            line.push(text.clone());
        }
    }
}

/// Reads a stream to its end, in the background.
fn read_rest(mut body: Reply) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        while poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
    });
}

/// Returns an answer as the client of this request gets it: a refusal of the HTTP request names none.
fn fitting(context: &RequestContext<'_>, text: Bytes) -> Bytes {
    let message = Message::parse(&text).ok();
    let own = context.message.id().map(|id| id.as_str());
    let answered = message.as_ref().and_then(|it| it.id()).map(|id| id.as_str());
    if answered.is_some() && answered == own {
        return text;
    }
    let sentence = message.as_ref().and_then(|it| it.error()?.find(&["message"])?.text());
    let sentence = sentence.unwrap_or("another gateway gave no answer that can be read".into());
    context.failure(&sentence).text
}
