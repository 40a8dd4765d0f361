//! The door: how many sockets are open at once, and when the last one has left.

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

use crate::{listen::http1, state::AppState};

/// How many are told at once that there is no room. Whoever comes then is not told.
const TURNED_AWAY: usize = 128;

/// How long that may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where sockets come in.
#[derive(Debug)]
pub(crate) struct Acceptor {
    inside: Arc<Inside>,
    turned_away: Arc<Semaphore>,
}

/// Who is inside.
#[derive(Debug, Default)]
struct Inside {
    count: AtomicUsize,
    /// Somebody left.
    left: Notify,
}

/// One who is inside, until it is dropped.
struct Place(Arc<Inside>);

impl Inside {
    /// A place among so many.
    fn take(self: &Arc<Self>, places: usize) -> Option<Place> {
        let place = Place(self.clone());
        (self.count.fetch_add(1, Ordering::AcqRel) < places).then_some(place)
    }
}

impl Drop for Place {
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
    /// Serves whoever is behind a socket on a lane, until it leaves or everybody has to. There is room for as
    /// many as the house says now.
    pub(crate) fn enter(
        &self,
        app: &Arc<AppState>,
        (socket, lane): (TcpStream, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let places = app.rules.sockets;
        let Some(place) = self.inside.take(places) else {
            return self.turn_away(socket, places);
        };
        let app = app.clone();
        // The lane watches it from now on.
        let Ok(socket) = socket.into_std() else { return };
        lane.spawn(async move {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            http1::serve(app, socket, stop).await;
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

    /// Waits until the last one has left, but not for longer than `until`.
    pub(crate) async fn empty(&self, until: Instant) {
        let empty = async {
            while self.inside.count.load(Ordering::Acquire) > 0 {
                self.inside.left.notified().await;
            }
        };
        let _ = tokio::time::timeout_at(until, empty).await;
    }
}

/// Answers without having read, and then reads a little: else the answer would be thrown away with what
/// was not read.
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
