//! Requests of replicas to each other that no client has sent.

use std::sync::Arc;

use http::{HeaderMap, Method, Response, StatusCode, request::Parts};
use stayput_wire::Message;

use crate::{
    auth::Principal,
    cluster,
    identify::read_connection_name,
    listen::{
        forward::{self, not_held},
        router::{BodyKind, Step},
    },
    messages::relay,
    reply::{self, Reply},
    route::preferences,
    state::AppState,
};

/// Routes a request of another replica; `None` if a client has sent it there.
pub(super) async fn route(
    app: &Arc<AppState>,
    principal: &Principal,
    head: &Parts,
) -> Option<Step> {
    let Parts { method, uri, headers, .. } = head;
    let path = uri.path();
    Some(if path == cluster::CONNECTION {
        forward::note_connection_event(app, principal, (method, headers)).await.into()
    } else if let Some(id) = path.strip_prefix(cluster::SESSION) {
        forward::end_session(app, principal, (headers, id)).await.into()
    } else if path == cluster::PREFERENCE {
        BodyKind::Preference(principal.clone()).into()
    } else if let Some(id) = path.strip_prefix(cluster::RECEIPTS) {
        forward::take_receipt(app, method, id).into()
    } else if let Some(from) = path.strip_prefix(cluster::MESSAGES) {
        messages(app, principal, head, from).await.into()
    } else if let Some(from) = path.strip_prefix(cluster::HELLO) {
        forward::hello(app, from).into()
    } else if let Some(server) = path.strip_prefix(cluster::PROFILE) {
        forward::profile(app, principal, server).await.into()
    } else {
        return None;
    })
}

/// Answers a replica at which a client listens with the messages of the links here, or takes its notice that it has links of
/// a client that may listen here.
async fn messages(
    app: &Arc<AppState>,
    principal: &Principal,
    head: &Parts,
    from: &str,
) -> Response<Reply> {
    let Some(cluster) = &app.cluster else { return reply::status(StatusCode::NOT_FOUND) };
    let name = read_connection_name(app, &head.headers);
    // A connection that is not in memory has no streams here, and no links but those of processes that all clients share.
    let mut known =
        name.as_ref().and_then(|name| app.connections.get(&name.hash(&principal.owner)));
    if head.method == Method::GET {
        if app.health.is_stopping() {
            return not_held();
        }
        if let (None, Some(name), false) = (&known, &name, app.server_claims.is_empty()) {
            known = app.connection(&principal.owner, name).await.ok().flatten();
        }
        let stream = match known {
            Some(connection) => relay::open_for_replica(app, &connection, principal).await,
            None => None,
        };
        return match stream {
            Some(stream) => reply::stream(stream),
            None => reply::status(StatusCode::NO_CONTENT),
        };
    }
    // A replica that has started a moment ago is known from here on, also if the client listens later.
    let replica = cluster.find_peer(from).await;
    let Some((connection, replica)) = known.zip(replica) else {
        return reply::status(StatusCode::NO_CONTENT);
    };
    match relay::read_announced(app, &connection, replica).await {
        true => reply::status(StatusCode::OK),
        false => reply::status(StatusCode::NO_CONTENT),
    }
}

/// Takes a log level or a subscription that a client has set through another replica: 200 if it is stored.
pub(super) async fn take_preference(
    app: &Arc<AppState>,
    principal: &Principal,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    let (name, message) = (read_connection_name(app, headers), Message::parse(body));
    let (Some(name), Ok(message)) = (name, message) else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    match app.connection(&principal.owner, &name).await {
        Ok(Some(connection)) if preferences::take(app, &connection, &message).await => {
            reply::status(StatusCode::OK)
        }
        Ok(_) => reply::status(StatusCode::NO_CONTENT),
        Err(error) => reply::unavailable(&error.to_string()),
    }
}
