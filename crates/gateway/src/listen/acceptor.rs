//! Accepts TCP connections: hands them to workers within the limits of sockets, and waits until the last one is closed.

use std::{
    future::poll_fn,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::{Semaphore, watch},
    time::Instant,
};

use super::sockets::{SocketLimits, SocketPlace, Sockets, SocketsFull};
use crate::{listen::http, state::AppState};

/// Number of connections that are refused with an answer at the same time. Any further connection is closed without
/// an answer.
const TURNED_AWAY: usize = 128;

/// Default limit of the sockets of one address, as a share of all; and the smallest such limit.
const USUAL_SHARE: usize = 10;
const SMALLEST_SHARE: usize = 64;

/// The same for the internal listener. A replica whose request gets no answer has to tell its client that it may have run.
const REPLICAS_TURNED_AWAY: usize = 1024;

/// Limit of the sockets of the internal listener on which no replica has signed a request yet, and of those of one address.
const UNVERIFIED: usize = 1024;
const UNVERIFIED_OF_ADDRESS: usize = 512;

/// Answer to a replica that finds no place. It sends its request again.
const BUSY: &str = "HTTP/1.1 421 Misdirected Request\r\nstayput-not-held: busy\r\nconnection: close\r\n\
                    content-length: 0\r\n\r\n";

/// Time limit for such a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Hands accepted sockets of one listener to the workers, up to its limits.
#[derive(Debug)]
pub(crate) struct Acceptor {
    kind: ListenerKind,
    sockets: Arc<Sockets>,
    turned_away: Arc<Semaphore>,
}

/// Listener whose sockets are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerKind {
    Public,
    Internal,
}

impl Acceptor {
    /// Acceptor of the public listener.
    pub(crate) fn for_clients() -> Self {
        Self::new(ListenerKind::Public, TURNED_AWAY)
    }

    /// Acceptor of the internal listener. Only sockets on which no replica has signed a request yet are limited: the number
    /// of the others follows from the limits of the listeners that their requests came from.
    pub(crate) fn for_replicas() -> Self {
        Self::new(ListenerKind::Internal, REPLICAS_TURNED_AWAY)
    }

    fn new(kind: ListenerKind, turned_away: usize) -> Self {
        Self { kind, sockets: Arc::default(), turned_away: Arc::new(Semaphore::new(turned_away)) }
    }

    /// Serves a socket on a worker thread, until the peer disconnects or the gateway stops. The limits are those of
    /// the current configuration.
    pub(crate) fn enter(
        &self,
        app: &Arc<AppState>,
        (socket, from, worker): (TcpStream, IpAddr, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let kind = self.kind;
        let place = match self.sockets.enter(from, kind.limits(app, from)) {
            Ok(place) => place,
            Err(full) => {
                // Before a TLS handshake there are no words that the client would understand.
                if kind == ListenerKind::Internal || app.rules.tls.is_none() {
                    self.turn_away(socket, full);
                }
                return;
            }
        };
        let app = app.clone();
        // Moves the socket to the worker's runtime.
        let Ok(socket) = socket.into_std() else { return };
        worker.spawn(async move {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            let activity = place.activity.clone();
            let served = pin!(async move {
                match kind {
                    ListenerKind::Public => http::serve_tcp(app, (socket, activity), stop).await,
                    ListenerKind::Internal => {
                        http::serve_replica(app, (socket, activity), stop).await;
                    }
                }
            });
            serve_until_evicted(place, served).await;
        });
    }

    fn turn_away(&self, socket: TcpStream, full: SocketsFull) {
        let Ok(turn) = self.turned_away.clone().try_acquire_owned() else { return };
        let answer = match (self.kind, full) {
            (ListenerKind::Internal, _) => BUSY.to_owned(),
            (ListenerKind::Public, SocketsFull::All(limit)) => refusal(&format!(
                "there are {limit} connections already, each with a request in progress, which is `limits.sockets` \
                 or the limit of open files; try again later, and keep connections for several requests"
            )),
            (ListenerKind::Public, SocketsFull::OfAddress(limit)) => refusal(&format!(
                "there are {limit} connections from your address already, each with a request in progress, which \
                 is `limits.sockets_per_address`; try again later, and keep connections for several requests"
            )),
        };
        Handle::current().spawn(async move {
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(socket, &answer)).await;
            drop(turn);
        });
    }

    /// Waits until the last socket is closed, at most until `until`.
    pub(crate) async fn empty(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until, self.sockets.empty()).await;
    }
}

/// Serves a socket until its connection ends or it is evicted. A socket on which a replica has signed a request gives its
/// place up: it is not counted any more.
async fn serve_until_evicted(place: SocketPlace, mut served: Pin<&mut impl Future<Output = ()>>) {
    let (activity, mut place, mut is_known) = (place.activity.clone(), Some(place), false);
    poll_fn(|cx| {
        let is_first = !is_known;
        if place.is_some() && activity.poll_evicted(cx, &mut is_known).is_ready() {
            return Poll::Ready(());
        }
        let polled = served.as_mut().poll(cx);
        if is_first {
            activity.begin_reading();
        }
        if place.is_some() && activity.is_verified() {
            place = None;
        }
        polled
    })
    .await;
}

impl ListenerKind {
    /// Returns the limits for a peer with this address. A trusted proxy has the connections of many clients, so its address
    /// has no limit. The clients on this machine have one only if it is configured.
    fn limits(self, app: &AppState, from: IpAddr) -> SocketLimits {
        let rules = &app.rules;
        if self == Self::Internal {
            let all = rules.limits.sockets.min(UNVERIFIED);
            let of_address = Some(UNVERIFIED_OF_ADDRESS);
            return SocketLimits { all, of_address, evicts_new: false };
        }
        let all = rules.limits.sockets;
        let usual = (!from.to_canonical().is_loopback())
            .then(|| all.div_ceil(USUAL_SHARE).max(SMALLEST_SHARE));
        let of_address = rules.limits.sockets_per_address.or(usual);
        let of_address = of_address.filter(|_| !app.authenticator.is_proxy(from));
        SocketLimits { all, of_address, evicts_new: true }
    }
}

/// Builds the refusal of a client.
fn refusal(sentence: &str) -> String {
    let body = crate::reply::error("null", stayput_wire::Code::INTERNAL_ERROR, sentence);
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Writes the refusal without reading the request, then reads to the end. Without this read, closing the socket with
/// unread bytes would discard the answer.
async fn refuse(mut socket: TcpStream, answer: &str) -> std::io::Result<()> {
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await?;
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}
