//! Request to another replica, and the certainty whether it ran.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use stayput_core::{Handle, Holder, Owner, SessionId};
use stayput_http::{Delivery, Request};
use stayput_upstream::Profile;
use stayput_wire::{Message, header as mcp};

use super::{
    Cluster,
    peers::Peer,
    proxied::ProxiedStream,
    receipts::{RECEIPT, Receipt},
    signature::NOT_HELD,
};
use crate::{
    auth::{Claims, Principal},
    reply::{self, AfterWrite, Reply},
};

/// Longest time for a new connection to a replica.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Silence after which TCP probes whether a replica is still there.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Path at which a replica is told what has become of a connection.
pub(crate) const CONNECTION: &str = "/cluster/connection";

/// Start of the path at which the holder of a session is asked to end it with a connection. The id follows.
pub(crate) const SESSION: &str = "/cluster/sessions/";

/// Status of the answer if another client knows the session, so that it stays.
pub(crate) const SESSION_STAYS: StatusCode = StatusCode::NO_CONTENT;

/// Change of a connection that other replicas have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// Another default session, which is to be read from the store.
    Changed,
    /// End of the connection.
    Ended,
    /// Use of a process that another replica holds: the default session is not idle.
    Used,
}

impl ConnectionEvent {
    fn method(self) -> Method {
        match self {
            Self::Changed => Method::POST,
            Self::Ended => Method::DELETE,
            Self::Used => Method::PUT,
        }
    }

    /// Reads the event from the method of a request.
    pub(crate) fn from_method(method: &Method) -> Option<Self> {
        let all = [Self::Changed, Self::Ended, Self::Used];
        all.into_iter().find(|event| event.method() == *method)
    }
}

/// Returns the headers that name a connection.
fn connection_headers(name: &Handle) -> HeaderMap {
    let value = HeaderValue::from_str(name.expose());
    let named = value.map(|value| (HeaderName::from_static(mcp::MCP_SESSION_ID), value));
    named.into_iter().collect()
}

/// Path at which a replica is told of a log level or a subscription that a client has set through another one.
pub(crate) const PREFERENCE: &str = "/cluster/preference";

/// Longest time to tell a replica of it.
const PREFERENCE_TIMEOUT: Duration = Duration::from_secs(2);

/// Start of the path at which a replica tells the profile of a server whose process it holds. The name follows.
pub(crate) const PROFILE: &str = "/cluster/profile/";

/// Longest time for such an answer. The server may have to start.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(30);

/// Header of a stream for another replica with the one server that writes to it. That replica ends the stream when its
/// client may no longer use the server.
const SERVER: HeaderName = HeaderName::from_static("stayput-server");

/// Pause before a replica that has not read a connection anew is told again.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(200);

/// Largest answer that is not a stream: that of a call, and some bytes for its envelope.
const MAX_ANSWER: usize = 2 * Message::MAX_BYTES;

/// Headers of an answer that this gateway sets by itself.
static SET_HERE: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::TRANSFER_ENCODING,
    RECEIPT,
    SERVER,
];

/// Request of a client, as it arrived.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) method: &'a Method,
    /// Path and query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) principal: &'a Principal,
}

/// Outcome of a forwarded request.
pub(crate) enum ForwardOutcome {
    /// The replica has answered.
    Answered(Box<Response<Reply>>),
    /// The replica does not hold the session, and has run nothing.
    NotHeld,
    /// The replica was not reached: nothing was sent.
    NotSent(String),
    /// The replica does not accept requests of this one. It has run nothing, and would refuse this one again.
    Rejected(String),
    /// The request was sent, and the answer did not come: it may have run.
    Unknown(String),
}

impl ForwardOutcome {
    /// Label in the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::NotHeld => "not_held",
            Self::NotSent(_) => "not_sent",
            Self::Rejected(_) => "rejected",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl Cluster {
    /// Forwards a request to the replica that holds its session. Dropping the future, or the body of the answer, tells
    /// that replica that the client is gone.
    pub(crate) async fn forward(
        self: &Arc<Self>,
        to: &Holder,
        request: ForwardedRequest<'_>,
    ) -> ForwardOutcome {
        let peer = self.peers.get(to);
        let ForwardedRequest { method, path, headers, body, principal } = request;
        let signed = self.signer.sign(to, (method, path), (headers, &body), principal);
        let (Some(headers), Some(url)) = (signed, peer.target(path)) else {
            return ForwardOutcome::NotSent("the request cannot be sent to a replica".to_owned());
        };
        let outgoing = Request {
            method: method.clone(),
            url,
            headers,
            body: body.clone(),
            // A call may take as long as its server needs. A replica that is gone is noticed by its lease.
            first_byte: Duration::MAX,
            idle: Duration::MAX,
        };
        let answer = tokio::select! {
            biased;
            answer = self.client.send(outgoing) => answer,
            () = peer.died() => {
                return ForwardOutcome::Unknown("its lease ended before it answered".to_owned());
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.delivery() == Delivery::NotSent => {
                return ForwardOutcome::NotSent(error.to_string());
            }
            Err(error) => {
                peer.suspect();
                return ForwardOutcome::Unknown(error.to_string());
            }
        };
        if let Some(why) = answer.headers.get(NOT_HELD).cloned() {
            // Read to its end, so that the connection can be used again.
            let text = answer.body.collect(MAX_ANSWER).await.unwrap_or_default();
            if why == "moved" {
                return ForwardOutcome::NotHeld;
            }
            if why == "busy" {
                return ForwardOutcome::NotSent("it has too many new connections".to_owned());
            }
            let text = String::from_utf8_lossy(&text).into_owned();
            return ForwardOutcome::Rejected(text);
        }
        let receipt = Receipt::owed(self, to, principal, &answer.headers);
        relay(answer, (&peer, &body), receipt).await
    }
}

impl Cluster {
    /// Tells all live replicas what has become of a connection. Waits for each until it knows or its lease is found dead,
    /// at most as long as `limit`.
    pub(crate) async fn announce_connection(
        self: &Arc<Self>,
        (name, event): (&Handle, ConnectionEvent),
        principal: &Principal,
        limit: Duration,
    ) {
        let peers = self.live_peers();
        let told = peers.iter().map(|peer| async {
            let told = self.tell_of_connection(peer, (name, event), principal);
            let told = tokio::time::timeout(limit, told);
            if told.await.is_err() {
                tracing::warn!(
                    "the replica at {} does not know of a changed connection",
                    peer.address
                );
            }
        });
        join_all(told).await;
    }

    /// Reads the profile of a server for an owner from the replica that holds its process.
    pub(crate) async fn profile(
        self: &Arc<Self>,
        from: &Holder,
        server: &str,
        owner: &Owner,
    ) -> Option<Profile> {
        let principal = Principal::forwarded(owner.clone(), Claims::default(), false);
        let request = ForwardedRequest {
            method: &Method::GET,
            path: &format!("{PROFILE}{server}"),
            headers: &HeaderMap::new(),
            body: Bytes::new(),
            principal: &principal,
        };
        let asked = tokio::time::timeout(PROFILE_TIMEOUT, self.forward(from, request));
        let Ok(ForwardOutcome::Answered(answer)) = asked.await else { return None };
        let Reply::Whole(text, _) = answer.body() else { return None };
        Profile::from_text(str::from_utf8(text).ok()?)
    }

    /// Tells replicas of a log level or a subscription of a client: the message that sets it. Returns whether one of them has
    /// stored it.
    pub(crate) async fn announce_preference(
        self: &Arc<Self>,
        to: &[Holder],
        (name, message): (&Handle, &Message<'_>),
        principal: &Principal,
    ) -> bool {
        let body = Bytes::copy_from_slice(message.text().as_bytes());
        let told = to.iter().map(|peer| async {
            let content = (name, body.clone());
            let told = self.send_about(peer, (&Method::POST, PREFERENCE), content, principal);
            match tokio::time::timeout(PREFERENCE_TIMEOUT, told).await {
                Ok(ForwardOutcome::Answered(answer)) => answer.status() == StatusCode::OK,
                _ => false,
            }
        });
        join_all(told).await.contains(&true)
    }

    /// Sends a request about the connection with this name.
    pub(super) async fn send_about(
        self: &Arc<Self>,
        to: &Holder,
        (method, path): (&Method, &str),
        (name, body): (&Handle, Bytes),
        principal: &Principal,
    ) -> ForwardOutcome {
        let headers = connection_headers(name);
        self.forward(to, ForwardedRequest { method, path, headers: &headers, body, principal })
            .await
    }

    /// Tells a replica what has become of a connection, until it knows or is gone.
    pub(crate) async fn tell_of_connection(
        self: &Arc<Self>,
        peer: &Holder,
        (name, event): (&Handle, ConnectionEvent),
        principal: &Principal,
    ) {
        while self.live_peers().contains(peer) {
            let (request, content) = ((&event.method(), CONNECTION), (name, Bytes::new()));
            match self.send_about(peer, request, content, principal).await {
                ForwardOutcome::Answered(answer) if answer.status().is_success() => return,
                _ => tokio::time::sleep(ANNOUNCE_INTERVAL).await,
            }
        }
    }

    /// Lets the replica that holds a session of a connection end it, unless another client knows it. Returns whether the
    /// session is over, and `None` if that replica does not hold it or gives no answer.
    pub(crate) async fn end_session(
        self: &Arc<Self>,
        holder: &Holder,
        name: &Handle,
        (session, owner): (SessionId, &Owner),
    ) -> Option<bool> {
        let principal = Principal::forwarded(owner.clone(), Claims::default(), false);
        let path = format!("{SESSION}{session}");
        let asked =
            self.send_about(holder, (&Method::DELETE, &path), (name, Bytes::new()), &principal);
        match asked.await {
            ForwardOutcome::Answered(answer) if answer.status().is_success() => {
                Some(answer.status() != SESSION_STAYS)
            }
            _ => None,
        }
    }
}

/// Names the one server that writes to a stream, for the replica that passes it on.
pub(crate) fn name_server(mut stream: Response<Reply>, server: Option<&str>) -> Response<Reply> {
    if let Some(Ok(name)) = server.map(HeaderValue::from_str) {
        stream.headers_mut().insert(SERVER, name);
    }
    stream
}

/// Passes the answer of a replica to `request` on: a stream as it comes, anything else as a whole.
async fn relay(
    answer: stayput_http::Response,
    (peer, request): (&Arc<Peer>, &[u8]),
    receipt: Option<Receipt>,
) -> ForwardOutcome {
    let (status, mut headers) = (answer.status, answer.headers);
    let body = if is_stream(&headers) {
        let server = headers.get(SERVER).and_then(|name| name.to_str().ok()).map(Arc::from);
        let stream = ProxiedStream::new(answer.body, peer.died(), request, (receipt, server));
        Reply::Stream(Box::new(stream))
    } else {
        let whole = tokio::select! {
            biased;
            whole = answer.body.collect(MAX_ANSWER) => whole.map_err(|error| error.to_string()),
            () = peer.died() => Err("its lease ended during its answer".to_owned()),
        };
        match whole {
            Ok(whole) => {
                let then = receipt
                    .map(|receipt| AfterWrite::new(None, move || receipt.answer_was_written()));
                Reply::Whole(whole, then)
            }
            Err(reason) => return ForwardOutcome::Unknown(reason),
        }
    };
    for name in &SET_HERE {
        headers.remove(name);
    }
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    ForwardOutcome::Answered(Box::new(response))
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(mcp::EVENT_STREAM.as_bytes()))
}

/// Answer to a request that another replica got, and whose answer did not come.
pub(crate) fn unknown(request: &[u8], reason: &str) -> Response<Reply> {
    tracing::warn!("a request that was forwarded got no answer: {reason}");
    reply::message(unknown_text(request))
}

/// Text of that answer.
pub(super) fn unknown_text(request: &[u8]) -> String {
    let sentence = "The gateway that holds this session was lost before its answer came. This call may or may not have \
                    been carried out; check before you repeat it.";
    let message = Message::parse(request).ok();
    let id = message.as_ref().and_then(|it| it.id()).map_or("null", |id| id.as_str());
    let method = message.as_ref().and_then(|it| it.method()).unwrap_or_default();
    let era = match message.as_ref().and_then(|it| it.params()) {
        Some(params) if params.find(&["_meta", stayput_wire::meta::PROTOCOL_VERSION]).is_some() => {
            stayput_wire::Era::Modern
        }
        _ => stayput_wire::Era::Legacy,
    };
    reply::failure(reply::RequestRef { id, method }, era, sentence)
}
