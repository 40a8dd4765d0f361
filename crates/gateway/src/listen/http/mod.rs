//! HTTP/1.1 server for clients, over TCP, TLS or the Unix socket in the data folder.
//!
//! Each connection is one task, in which hyper reads requests and writes responses. Around hyper are the promises
//! that it does not make: time limits for each action of the client, a limit of the body, authentication before the
//! body is read, a sentence in each refusal, and the end of a stream whose client loses access.
//!
//! | file | content |
//! |---|---|
//! | `socket.rs` | bytes between hyper and the socket: time limits, refusals of malformed heads, lingering close |
//! | `line_breaks.rs` | refusal of line feeds without a carriage return |
//! | `state.rs`, `timer.rs` | state that hyper's parts of a connection share, and its timer |
//! | `request.rs`, `body.rs` | one request and its body |
//! | `answer.rs` | body of a response |

mod answer;
mod body;
mod line_breaks;
mod request;
mod socket;
mod state;
mod timer;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::StatusCode;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

pub(super) use self::body::{BodyError, SLOWEST};
use self::{socket::Socket, state::ConnState};
use crate::{
    listen::{refusal::count_refusal, router::RequestPeer, sockets::SocketActivity, workers},
    state::AppState,
};

/// Time that an idle connection is kept open for the next request.
const IDLE: Duration = Duration::from_secs(120);

/// Longest time for the TLS handshake, unless the limit for a stalled request is shorter.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Room in a head for the headers that a replica adds: client, signature.
const REPLICA_HEADERS: usize = 16 << 10;

/// Smallest buffer that hyper can work with.
const SMALLEST_BUFFER: usize = 8 << 10;

/// Serves one TCP connection until it ends, or until `stop`.
pub(super) async fn serve_tcp(
    app: Arc<AppState>,
    (socket, activity): (TcpStream, Arc<SocketActivity>),
    stop: impl Future<Output = ()>,
) {
    let Ok(from) = socket.peer_addr() else { return };
    // Send small responses at once.
    let _ = socket.set_nodelay(true);
    let peer = RequestPeer::Address(from.ip());
    let Some(tls) = app.rules.tls.clone() else {
        return serve((app, Some(activity)), (socket, peer), stop).await;
    };
    // Boxed so that connections without encryption do not need space for it.
    Box::pin(async move {
        let mut stop = pin!(stop);
        let handshake = TlsAcceptor::from(tls.server).accept(socket);
        let handshake = tokio::time::timeout(HANDSHAKE.min(app.rules.limits.stall), handshake);
        let socket = tokio::select! {
            socket = handshake => socket,
            () = &mut stop => return,
        };
        // A client that does not finish the handshake is disconnected without a word: it would not understand any.
        if let Ok(Ok(socket)) = socket {
            serve((app, Some(activity)), (socket, peer), stop).await;
        }
    })
    .await;
}

/// Serves one connection of the internal listener until it ends, or until `stop`.
pub(super) async fn serve_replica(
    app: Arc<AppState>,
    (socket, activity): (TcpStream, Arc<SocketActivity>),
    stop: impl Future<Output = ()>,
) {
    let _ = socket.set_nodelay(true);
    serve((app, Some(activity)), (socket, RequestPeer::Replica), stop).await;
}

/// Serves one connection until the client disconnects or until `stop`. A TCP connection reports its activity.
pub(super) async fn serve(
    (app, activity): (Arc<AppState>, Option<Arc<SocketActivity>>),
    (socket, peer): (impl AsyncRead + AsyncWrite + Unpin, RequestPeer),
    stop: impl Future<Output = ()>,
) {
    let app = workers::worker_copy(&app);
    let added = if peer.is_replica() { REPLICA_HEADERS } else { 0 };
    let header_limit = app.rules.limits.headers + added;
    let state = Arc::new(ConnState::new(app.clone(), activity));
    let io = TokioIo::new(Socket::new(socket, state.clone(), header_limit));
    let service = {
        let state = state.clone();
        service_fn(move |request| {
            let runs = state.begin_request();
            request::respond(state.clone(), peer, (request, runs))
        })
    };
    let mut server = http1::Builder::new();
    // The socket has one timer for all time limits. hyper would set a new one for each head.
    server.header_read_timeout(None).max_header_size(header_limit);
    server.max_buf_size(header_limit.max(SMALLEST_BUFFER));
    let mut http = pin!(server.serve_connection(io, service));
    let mut stop = Stop { app: &app, stop: pin!(stop), known: false };
    let mut stopping = false;
    let served = poll_fn(|cx| {
        if !stopping && stop.is_due(cx) {
            stopping = true;
            http.as_mut().graceful_shutdown();
        }
        loop {
            let is_lost = state.poll_lost(cx).is_ready();
            let served = http.as_mut().poll(cx);
            if served.is_ready() {
                return served;
            }
            // A client that has lost access gets no time to read the rest of its stream.
            if is_lost && state.is_writing() {
                return Poll::Ready(Ok(()));
            }
            if is_lost || state.poll_lost(cx).is_pending() {
                return Poll::Pending;
            }
        }
    });
    match served.await {
        Err(error) if error.is_parse_too_large() => {
            count_refusal(&app, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        Err(error) if error.is_parse() => count_refusal(&app, StatusCode::BAD_REQUEST),
        Ok(()) | Err(_) => {}
    }
}

/// Shutdown signal, after which no further request is served.
struct Stop<'a, S> {
    app: &'a AppState,
    stop: Pin<&'a mut S>,
    /// Whether the waker is registered. After that, the future is not polled again until the gateway stops, because
    /// all connections share it.
    known: bool,
}

impl<S: Future<Output = ()>> Stop<'_, S> {
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let polls = !std::mem::replace(&mut self.known, true) || self.app.health.is_stopping();
        polls && self.stop.as_mut().poll(cx).is_ready()
    }
}
