//! Errors of the demo server.

use std::{io, net::SocketAddr, path::PathBuf};

/// Reason why the demo server cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The address can be reached from other machines, and every client could read all notes.
    #[error(
        "the demo server asks nobody who they are, so it listens on this machine only; \
         use 127.0.0.1 or [::1], not {0}"
    )]
    NotLocal(SocketAddr),
    /// The address is in use, or not of this machine.
    #[error("the demo server cannot listen on {address}: {error}; choose another port, or port 0")]
    Bind {
        /// Address that was tried.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// The file of the sessions cannot be read.
    #[error(
        "the sessions in {file:?} cannot be read: {problem}; name another file or remove this one"
    )]
    State {
        /// File of the sessions.
        file: PathBuf,
        /// Problem with it.
        problem: String,
    },
    /// The standard input cannot be read.
    #[error("the demo server cannot read its standard input: {0}")]
    Input(io::Error),
    /// The URL cannot be written to the standard output.
    #[error("the demo server cannot write to its standard output: {0}")]
    Output(io::Error),
}
