//! Accepts TCP connections: hands them to workers within the limits of sockets, and waits until the last one is closed.

use std::{future::poll_fn, net::IpAddr, pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::{Semaphore, watch},
    time::Instant,
};

use super::sockets::{SocketLimits, Sockets, SocketsFull};
use crate::{
    listen::{http, router::RequestPeer},
    state::AppState,
};

/// Number of connections that are refused with an answer at the same time. Any further connection is closed without
/// an answer.
const TURNED_AWAY: usize = 128;

/// Default limit of the sockets of one address, as a share of all; and the smallest such limit.
const USUAL_SHARE: usize = 10;
const SMALLEST_SHARE: usize = 64;

/// Time limit for such a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Hands accepted sockets to the workers, up to the limits.
#[derive(Debug)]
pub(crate) struct Acceptor {
    sockets: Arc<Sockets>,
    turned_away: Arc<Semaphore>,
}

impl Default for Acceptor {
    fn default() -> Self {
        Self { sockets: Arc::default(), turned_away: Arc::new(Semaphore::new(TURNED_AWAY)) }
    }
}

impl Acceptor {
    /// Serves a socket on a worker thread, until the client disconnects or the gateway stops. The limits are those of
    /// the current configuration.
    pub(crate) fn enter(
        &self,
        app: &Arc<AppState>,
        (socket, from, worker): (TcpStream, IpAddr, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let place = match self.sockets.enter(from, limits(app, from)) {
            Ok(place) => place,
            Err(full) => {
                // Before a TLS handshake there are no words that the client would understand.
                if app.rules.tls.is_none() {
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
            let mut served = pin!(http::serve_tcp(app, (socket, activity), stop));
            let mut is_known = false;
            poll_fn(|cx| match place.activity.poll_evicted(cx, &mut is_known) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => served.as_mut().poll(cx),
            })
            .await;
        });
    }

    /// Serves a socket of the internal listener on a worker thread. Other replicas keep few of them, so they have no limit.
    pub(crate) fn enter_replica(
        app: &Arc<AppState>,
        (socket, worker): (TcpStream, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let app = app.clone();
        let Ok(socket) = socket.into_std() else { return };
        worker.spawn(async move {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            let _ = socket.set_nodelay(true);
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            http::serve((app, None), (socket, RequestPeer::Replica), stop).await;
        });
    }

    fn turn_away(&self, socket: TcpStream, full: SocketsFull) {
        let Ok(turn) = self.turned_away.clone().try_acquire_owned() else { return };
        let sentence = match full {
            SocketsFull::All(limit) => format!(
                "there are {limit} connections already, each with a request in progress, which is `limits.sockets` \
                 or the limit of open files; try again later, and keep connections for several requests"
            ),
            SocketsFull::OfAddress(limit) => format!(
                "there are {limit} connections from your address already, each with a request in progress, which \
                 is `limits.sockets_per_address`; try again later, and keep connections for several requests"
            ),
        };
        Handle::current().spawn(async move {
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(socket, &sentence)).await;
            drop(turn);
        });
    }

    /// Waits until the last socket is closed, at most until `until`.
    pub(crate) async fn empty(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until, self.sockets.empty()).await;
    }
}

/// Returns the limits for a client with this address. A trusted proxy has the connections of many clients, so its address
/// has no limit. The clients on this machine have one only if it is configured.
fn limits(app: &AppState, from: IpAddr) -> SocketLimits {
    let rules = &app.rules;
    let all = rules.limits.sockets;
    let usual =
        (!from.to_canonical().is_loopback()).then(|| all.div_ceil(USUAL_SHARE).max(SMALLEST_SHARE));
    let of_address = rules.limits.sockets_per_address.or(usual);
    SocketLimits { all, of_address: of_address.filter(|_| !app.authenticator.is_proxy(from)) }
}

/// Writes the refusal without reading the request, then reads to the end. Without this read, closing the socket with
/// unread bytes would discard the answer.
async fn refuse(mut socket: TcpStream, sentence: &str) -> std::io::Result<()> {
    let body = crate::reply::error("null", stayput_wire::Code::INTERNAL_ERROR, sentence);
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    socket.shutdown().await?;
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}
