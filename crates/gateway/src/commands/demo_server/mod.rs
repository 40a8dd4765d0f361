//! Built-in demo server: a notebook with state.
//!
//! It lets users try Stayput without installing a server. Over stdio each process has a notebook, over HTTP each
//! session.

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

/// Maximum number of bytes of a message. Notes are short.
const MESSAGE_LIMIT: usize = 1 << 20;

/// Serves over the standard input and output until the input ends, or over HTTP as long as the process runs. Over HTTP
/// the sessions are kept in the file `state`, if it is given.
///
/// # Errors
/// [`DemoError`] says why it cannot listen or its sessions cannot be stored.
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

/// Listens at `address`. Returns its URL and the future that serves. Sessions are kept in memory.
///
/// # Errors
/// [`DemoError`] says why it cannot listen.
pub(crate) async fn listen(
    address: SocketAddr,
) -> Result<(String, impl Future<Output = Result<(), DemoError>>), DemoError> {
    let server = http::Server::bind(address, None).await?;
    Ok((server.url(), server.serve()))
}

/// Writes the URL for the process that started the server.
fn announce(line: &str) -> Result<(), DemoError> {
    use std::io::Write;
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
}
