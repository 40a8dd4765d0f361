//! HTTP over the Unix socket in the data folder, for the user who runs the gateway.

use std::{io, sync::Arc};

use rustix::net::{RecvFlags, recv};
use tokio::{io::Interest, net::UnixStream, sync::watch};

use crate::{
    listen::{http, router::RequestPeer},
    state::AppState,
};

/// Whether the client speaks HTTP: the lines of `stayput stdio` begin with a brace. Peeks at the first byte and
/// consumes nothing.
pub(super) async fn is_spoken(stream: &UnixStream) -> io::Result<bool> {
    let mut first = [0; 1];
    let look = || Ok(recv(stream, &mut first, RecvFlags::PEEK)?);
    let (seen, _) = stream.async_io(Interest::READABLE, look).await?;
    Ok(seen > 0 && first != *b"{")
}

/// Serves the connection until the client disconnects, or until `stopped`.
pub(super) async fn serve(
    app: Arc<AppState>,
    stream: UnixStream,
    mut stopped: watch::Receiver<bool>,
) {
    let stop = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    http::serve((app, None), (stream, RequestPeer::LocalSocket), stop).await;
}
