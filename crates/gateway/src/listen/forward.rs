//! Requests whose session another replica holds: forwarded to it in one hop.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request::Parts};
use stayput_core::{Holder, Owner};
use stayput_wire::{Code, Message, MessageKind};
use tokio::time::Instant;

use crate::{
    auth::Principal,
    cluster::{self, Cluster, ConnectionEvent, ForwardOutcome, ForwardedRequest},
    identify::read_connection_name,
    listen::{
        access,
        router::{self, RequestPeer},
    },
    messages::notifications::ConcernedReplicas,
    reply::{self, HeldBy, Reply},
    state::{AppState, shared_servers::ServerHolder},
};

/// Time beyond the lease after which a session must have been taken over from a replica that is gone.
const TAKEOVER: Duration = Duration::from_secs(2);

/// First and longest pause before the store is asked again for the holder. Each is twice as long as the one before.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Client of a request that is to be forwarded, in the extensions of the response.
#[derive(Clone)]
struct ForwardedFor(Principal);

/// Message that concerns other replicas, in the extensions of the response.
#[derive(Clone)]
struct MessageForReplicas(Principal, ConcernedReplicas);

/// Longest time to pass such a message on.
const PASS_ON_TIMEOUT: Duration = Duration::from_secs(2);

/// Marks a message that is passed on: a cancellation or another notification to all replicas, an answer to the one that has
/// asked.
pub(super) fn mark_to_pass_on(
    response: &mut Response<Reply>,
    principal: &Principal,
    concerned: ConcernedReplicas,
) {
    response.extensions_mut().insert(MessageForReplicas(principal.clone(), concerned));
}

/// Notes the client of a request, if its session is held elsewhere.
pub(super) fn note_client(response: &mut Response<Reply>, principal: &Principal) {
    if is_held_elsewhere(response) {
        response.extensions_mut().insert(ForwardedFor(principal.clone()));
    }
}

/// Whether nothing was run, because another replica holds the session.
fn is_held_elsewhere(response: &Response<Reply>) -> bool {
    response.extensions().get::<HeldBy>().is_some()
}

/// Returns the owner of a request that is to be forwarded.
pub(super) fn owner(response: &Response<Reply>) -> Option<&Owner> {
    response.extensions().get::<ForwardedFor>().map(|ForwardedFor(principal)| &principal.owner)
}

/// Whether a request concerns other replicas.
pub(super) fn is_due(response: &Response<Reply>) -> bool {
    is_held_elsewhere(response) || response.extensions().get::<MessageForReplicas>().is_some()
}

/// Builds the refusal of a request that came while this gateway stops. Another gateway gets the request, if there is one.
pub(super) fn stopping_response(app: &AppState) -> Response<Reply> {
    let mut response = reply::unavailable("the gateway is stopping; try again in a moment");
    let successor = app.cluster.as_ref().and_then(|cluster| cluster.successor());
    reply::held_elsewhere(&mut response, successor.map(HeldBy::unnamed));
    response
}

/// Takes note of what has become of a connection at another replica.
pub(super) async fn note_connection_event(
    app: &AppState,
    principal: &Principal,
    (method, headers): (&Method, &HeaderMap),
) -> Response<Reply> {
    let (Some(event), Some(name)) =
        (ConnectionEvent::from_method(method), read_connection_name(app, headers))
    else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    let hash = name.hash(&principal.owner);
    let known = app.connections.get(&hash);
    let noted = match (event, known) {
        (ConnectionEvent::Changed, Some(copy)) => {
            app.refresh_default_session(&copy).await.map(drop)
        }
        (ConnectionEvent::Ended, Some(copy)) => {
            app.connections.remove(&hash);
            copy.close();
            Ok(())
        }
        (ConnectionEvent::Used, _) => app.note_remote_use(&principal.owner, &name).await,
        (ConnectionEvent::Changed | ConnectionEvent::Ended, None) => Ok(()),
    };
    match noted {
        Ok(()) => reply::status(StatusCode::ACCEPTED),
        Err(error) => reply::unavailable(&error.to_string()),
    }
}

/// Ends a session that is held here, with its connection, whose end another replica was asked for.
pub(super) async fn end_session(
    app: &AppState,
    principal: &Principal,
    (headers, id): (&HeaderMap, &str),
) -> Response<Reply> {
    let (Some(name), Ok(session)) = (read_connection_name(app, headers), id.parse()) else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    match app.end_held_session(&principal.owner, &name, session).await {
        Ok(Some(true)) => reply::status(StatusCode::OK),
        Ok(Some(false)) => reply::status(cluster::SESSION_STAYS),
        Ok(None) => not_held(),
        Err(error) => reply::unavailable(&error.to_string()),
    }
}

/// Answers a replica that asks for the time.
pub(super) fn hello(app: &AppState, from: &str) -> Response<Reply> {
    let Some(cluster) = &app.cluster else { return reply::status(StatusCode::NOT_FOUND) };
    // Numbers and text alone, so serialization does not fail.
    reply::message(serde_json::to_string(&cluster.hello(from)).unwrap_or_default())
}

/// Answers a replica with the profile of a server whose process is here.
pub(super) async fn profile(
    app: &Arc<AppState>,
    principal: &Principal,
    server: &str,
) -> Response<Reply> {
    let Some(server) = app.servers.get(server) else { return reply::status(StatusCode::NOT_FOUND) };
    match app.server_holder(server, &principal.owner).await {
        Ok(ServerHolder::Here(_)) => {}
        _ => return not_held(),
    }
    match app.profile(server, &principal.owner).await {
        Ok(profile) => reply::text(StatusCode::OK, &profile.to_text()),
        Err(error) => reply::unavailable(&app.describe_open_error(&error)),
    }
}

/// Whether a forwarded message cannot be accepted now, because this replica stops or has lost its lease. Notifications and
/// answers are accepted until the end: calls in flight may wait for them.
pub(super) fn is_too_late(app: &AppState, principal: &Principal, body: &[u8]) -> bool {
    let is_unrequested =
        |message: Message<'_>| !matches!(message.kind(), MessageKind::Request { .. });
    principal.is_forwarded()
        && (app.health.is_stopping() || !app.sessions.has_lease())
        && !Message::parse(body).is_ok_and(is_unrequested)
}

/// Builds the answer to a replica whose request was not run, because this one does not hold the session.
pub(super) fn not_held() -> Response<Reply> {
    refuse_replica("moved", "the session is not held here; nothing was run")
}

/// Builds the answer to a replica whose request was not accepted.
pub(super) fn refuse_replica(why: &'static str, sentence: &str) -> Response<Reply> {
    let status = StatusCode::MISDIRECTED_REQUEST;
    let mut response = reply::refusal(status, None, Code::INVALID_REQUEST, sentence);
    response.headers_mut().insert(cluster::NOT_HELD, HeaderValue::from_static(why));
    response
}

/// Forwards a request to the replica that holds its session. If that one does not hold it any more, or is not reached, the
/// store is asked again, until this replica can claim the session. A request that may have run is never sent again.
pub(super) async fn settle(
    app: &Arc<AppState>,
    peer: RequestPeer,
    (head, body): (&Parts, Bytes),
    mut response: Response<Reply>,
) -> Response<Reply> {
    let for_replicas = response.extensions_mut().remove::<MessageForReplicas>();
    if peer.is_replica() {
        return if for_replicas.is_some() { response } else { not_held() };
    }
    let Some(cluster) = app.cluster.clone() else { return response };
    if let Some(MessageForReplicas(principal, concerned)) = for_replicas {
        pass_on(&cluster, concerned, (head, &body), &principal).await;
        return response;
    }
    let mut attempts = Attempts::new(app);
    loop {
        let extensions = response.extensions_mut();
        let (Some(held_by), Some(ForwardedFor(principal))) =
            (extensions.remove::<HeldBy>(), extensions.remove::<ForwardedFor>())
        else {
            return response;
        };
        if let Some(answer) = attempts.send(app, held_by, &principal, (head, &body)).await {
            return answer;
        }
        // Boxed, because the future of every forwarded request would otherwise be as large as this rare one.
        response = Box::pin(router::route_again(app, &principal, (head, body.clone()))).await;
    }
}

/// Passes a message on to the replicas that it concerns.
pub(super) async fn pass_on(
    cluster: &Arc<Cluster>,
    concerned: ConcernedReplicas,
    (head, body): (&Parts, &Bytes),
    principal: &Principal,
) {
    let peers = match concerned {
        ConcernedReplicas::All => cluster.live_peers(),
        ConcernedReplicas::One(replica) => {
            cluster.find_peer(&replica.to_string()).await.into_iter().collect()
        }
    };
    let sent = peers.iter().map(|peer| send(cluster, peer, (head, body), principal));
    // A replica that does not answer gets the message late, or not at all; the client does not wait for it.
    let _ = tokio::time::timeout(PASS_ON_TIMEOUT, join_all(sent)).await;
}

/// Attempts to get one request answered by the replica that holds its session.
pub(super) struct Attempts {
    end: Option<Instant>,
    delay: Duration,
}

impl Attempts {
    pub(super) fn new(app: &AppState) -> Self {
        let limit = app.sessions.settings().lease.saturating_add(TAKEOVER);
        Self { end: Instant::now().checked_add(limit), delay: FIRST_RETRY_DELAY }
    }

    /// Sends the request once. Returns `None` if nothing was run, after a pause: the session has to be looked up again.
    pub(super) async fn send(
        &mut self,
        app: &AppState,
        HeldBy { holder, name }: HeldBy,
        principal: &Principal,
        (head, body): (&Parts, &Bytes),
    ) -> Option<Response<Reply>> {
        let cluster = app.cluster.as_ref()?;
        let reason = match send(cluster, &holder, (head, body), principal).await {
            ForwardOutcome::Answered(answer) => {
                return Some(access::guard(app, principal, *answer));
            }
            ForwardOutcome::Unknown(reason) if is_harmless(head, body) => {
                cluster.holders.forget_holder(&holder);
                reason
            }
            ForwardOutcome::Unknown(reason) => return Some(cluster::unknown(body, &reason)),
            ForwardOutcome::Rejected(text) => {
                tracing::warn!("the replica at {} refused a request: {text}", holder.address);
                return Some(unusable("it refuses requests of this gateway"));
            }
            ForwardOutcome::NotHeld => {
                match &name {
                    Some(name) => cluster.holders.forget(name, &holder),
                    None => cluster.holders.forget_holder(&holder),
                }
                "it does not hold the session".to_owned()
            }
            ForwardOutcome::NotSent(reason) => {
                cluster.holders.forget_holder(&holder);
                reason
            }
        };
        tracing::debug!(replica = %holder.id, "not forwarded to {}: {reason}", holder.address);
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return Some(unusable(&reason));
        }
        tokio::time::sleep(self.delay).await;
        self.delay = MAX_RETRY_DELAY.min(2 * self.delay);
        None
    }
}

/// Builds the answer to a request that no replica could run.
fn unusable(reason: &str) -> Response<Reply> {
    let sentence = format!(
        "nothing was run: the gateway that holds the session cannot be used ({reason}); try again in a moment"
    );
    reply::unavailable(&sentence)
}

/// Takes the receipt for an answer that another replica has passed on, or has not.
pub(super) fn take_receipt(app: &AppState, method: &Method, id: &str) -> Response<Reply> {
    if let Some(cluster) = &app.cluster {
        cluster.receipts.settle(id, *method == Method::POST);
    }
    reply::status(StatusCode::NO_CONTENT)
}

/// Whether a request reaches no server, so that a second one does no harm: opening a stream, ending a connection, or
/// opening one.
fn is_harmless(head: &Parts, body: &[u8]) -> bool {
    let opens = |message: Message<'_>| message.method() == Some("initialize");
    matches!(head.method, Method::GET | Method::DELETE) || Message::parse(body).is_ok_and(opens)
}

/// Sends the request as it arrived.
async fn send(
    cluster: &Arc<Cluster>,
    holder: &Holder,
    (head, body): (&Parts, &Bytes),
    principal: &Principal,
) -> ForwardOutcome {
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let (method, headers) = (&head.method, &head.headers);
    let request = ForwardedRequest { method, path, headers, body: body.clone(), principal };
    let outcome = cluster.forward(holder, request).await;
    cluster.forwarded.add(outcome.label());
    outcome
}
