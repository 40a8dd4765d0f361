//! The door: how many sockets are open at once, and when the last one has left.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::{Semaphore, watch},
    time::Instant,
};

use super::plain;
use crate::house::House;

/// How many are told at once that there is no room. Whoever comes then is not told.
const TURNED_AWAY: usize = 128;

/// How long that may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where sockets come in.
#[derive(Debug)]
pub(crate) struct Door {
    places: u32,
    free: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
}

impl Door {
    /// A door with room for so many.
    pub(crate) fn new(places: usize) -> Self {
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        let free = usize::try_from(places).unwrap_or_default().min(Semaphore::MAX_PERMITS);
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
        Self { places, free: Arc::new(Semaphore::new(free)), turned_away }
    }

    /// Serves whoever is behind a socket on a lane, until it leaves or everybody has to.
    pub(crate) fn enter(
        &self,
        house: &Arc<House>,
        (socket, lane): (TcpStream, &Handle),
        mut stopped: watch::Receiver<bool>,
    ) {
        let Ok(place) = self.free.clone().try_acquire_owned() else {
            return self.turn_away(socket);
        };
        let house = house.clone();
        // The lane watches it from now on.
        let Ok(socket) = socket.into_std() else { return };
        lane.spawn(async move {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            plain::serve(house, socket, stop).await;
            drop(place);
        });
    }

    fn turn_away(&self, socket: TcpStream) {
        let Ok(turn) = self.turned_away.clone().try_acquire_owned() else { return };
        let sentence = format!(
            "there are {} connections already, which is `limits.sockets`; try again later, and keep \
             connections for several requests",
            self.places
        );
        Handle::current().spawn(async move {
            let _ = tokio::time::timeout(FAREWELL, refuse(socket, &sentence)).await;
            drop(turn);
        });
    }

    /// Waits until the last one has left, but not for longer than `until`.
    pub(crate) async fn empty(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until, self.free.acquire_many(self.places)).await;
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
