//! HTTP over the socket in the data folder: for the user of this machine, who runs the gateway.

use std::{convert::Infallible, io, sync::Arc};

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{RecvFlags, recv};
use tokio::{io::Interest, net::UnixStream, sync::watch};

use super::http;
use crate::{house::House, owners::Principal};

/// Whether HTTP is spoken on a socket: the lines of `stayput stdio` begin with a brace. Nothing is taken out
/// of it.
pub(super) async fn is_spoken(stream: &UnixStream) -> io::Result<bool> {
    let mut first = [0; 1];
    let look = || Ok(recv(stream, &mut first, RecvFlags::PEEK)?);
    let (seen, _) = stream.async_io(Interest::READABLE, look).await?;
    Ok(seen > 0 && first != *b"{")
}

/// Answers until the other side leaves, or until `stopped`.
pub(super) async fn serve(
    house: Arc<House>,
    stream: UnixStream,
    mut stopped: watch::Receiver<bool>,
) {
    let (stall, size) = (house.rules.stall, house.rules.header_limit);
    let service = service_fn(move |request: hyper::Request<_>| {
        let house = house.clone();
        async move {
            Ok::<_, Infallible>(match http::health(&house, request.uri().path()) {
                Some(health) => health,
                // The system has asked who it is.
                None => http::inside(&house, Principal::local(), request).await,
            })
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(stall).max_buf_size(size);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
