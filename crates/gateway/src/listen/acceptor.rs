//! Accepts TCP connections: limits the open sockets, and waits until the last one is closed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use crate::{listen::http, state::AppState};

/// Number of connections that are refused with an answer at the same time. Any further connection is closed without
/// an answer.
const TURNED_AWAY: usize = 128;

/// Time limit for such a refusal.
const FAREWELL: Duration = Duration::from_secs(2);

/// Hands accepted sockets to the workers, up to the limit.
#[derive(Debug)]
pub(crate) struct Acceptor {
    inside: Arc<SocketCount>,
    turned_away: Arc<Semaphore>,
}

/// Counter of the open sockets.
#[derive(Debug, Default)]
struct SocketCount {
    count: AtomicUsize,
    /// Signalled when a socket is closed.
    left: Notify,
}

/// Counts one open socket until it is dropped.
struct SocketGuard(Arc<SocketCount>);

impl SocketCount {
    /// Counts a socket, if fewer than `places` are open.
    fn take(self: &Arc<Self>, places: usize) -> Option<SocketGuard> {
        let place = SocketGuard(self.clone());
        (self.count.fetch_add(1, Ordering::AcqRel) < places).then_some(place)
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_one();
    }
}

impl Default for Acceptor {
    fn default() -> Self {
        Self { inside: Arc::default(), turned_away: Arc::new(Semaphore::new(TURNED_AWAY)) }
    }
}

impl Acceptor {
    /// Serves a socket on a worker thread, until the client disconnects or the gateway stops. The limit is the one of
    /// the current configuration.
    pub(crate) fn enter(
        &self,
        app: &Arc<AppState>,
        (socket, worker): (TcpStream, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let places = app.rules.sockets;
        let Some(place) = self.inside.take(places) else {
            // Before a TLS handshake there are no words that the client would understand.
            if app.rules.tls.is_none() {
                self.turn_away(socket, places);
            }
            return;
        };
        let app = app.clone();
        // Moves the socket to the worker's runtime.
        let Ok(socket) = socket.into_std() else { return };
        worker.spawn(async move {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            http::serve_tcp(app, socket, stop).await;
            drop(place);
        });
    }

    fn turn_away(&self, socket: TcpStream, places: usize) {
        let Ok(turn) = self.turned_away.clone().try_acquire_owned() else { return };
        let sentence = format!(
            "there are {places} connections already, which is `limits.sockets`; try again later, and \
             keep connections for several requests"
        );
        Handle::current().spawn(async move {
            let _ = tokio::time::timeout(FAREWELL, refuse(socket, &sentence)).await;
            drop(turn);
        });
    }

    /// Waits until the last socket is closed, at most until `until`.
    pub(crate) async fn empty(&self, until: Instant) {
        let empty = async {
            while self.inside.count.load(Ordering::Acquire) > 0 {
                self.inside.left.notified().await;
            }
        };
        let _ = tokio::time::timeout_at(until, empty).await;
    }
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
