//! The built-in demo server: a notebook that shows what state is.
//!
//! Whoever tries Stayput needs a server that remembers something, and nothing to install. Over stdio
//! there is one notebook in each process; over HTTP there is one in each session.

mod answer;
mod error;
mod http;
mod notebook;
mod sessions;
mod stdio;
#[cfg(test)]
mod tests;
mod tools;

use std::{net::SocketAddr, path::Path};

pub(crate) use self::error::DemoError;

/// The most bytes of a message: a note is short.
const MESSAGE_LIMIT: usize = 1 << 20;

/// Serves over standard input and output until the input ends, or over HTTP for as long as the
/// process lives; then the sessions are kept in `state`, if it is there.
///
/// # Errors
/// [`DemoError`] says why it cannot be reached or its sessions cannot be kept.
pub(crate) async fn run(http: Option<SocketAddr>, state: Option<&Path>) -> Result<(), DemoError> {
    match http {
        None => stdio::serve(tokio::io::stdin(), tokio::io::stdout()).await,
        Some(address) => {
            let server = http::Server::bind(address, state).await?;
            announce(&format!("{}\n", server.url()))?;
            server.serve().await
        }
    }
}

/// Listens at `address` for as long as what is returned beside its URL is polled. It keeps its sessions in
/// memory.
///
/// # Errors
/// [`DemoError`] says why it cannot be reached.
pub(crate) async fn listen(
    address: SocketAddr,
) -> Result<(String, impl Future<Output = Result<(), DemoError>>), DemoError> {
    let server = http::Server::bind(address, None).await?;
    Ok((server.url(), server.serve()))
}

/// Tells where it is, to whoever started it.
fn announce(line: &str) -> Result<(), DemoError> {
    use std::io::Write;
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
}
