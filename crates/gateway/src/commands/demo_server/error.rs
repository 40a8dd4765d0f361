//! Why the demo server cannot run.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why the demo server cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Whoever can reach it can read everybody's notes.
    #[error(
        "the demo server asks nobody who they are, so it listens on this machine only; \
         use 127.0.0.1 or [::1], not {0}"
    )]
    NotLocal(SocketAddr),
    /// The address is not free, or not ours.
    #[error("the demo server cannot listen on {address}: {error}; choose another port, or port 0")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// What was kept cannot be read.
    #[error(
        "the sessions in {file:?} cannot be read: {problem}; name another file or remove this one"
    )]
    State {
        /// Where.
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// Standard input is gone in an unusual way.
    #[error("the demo server cannot read its standard input: {0}")]
    Input(io::Error),
    /// Nobody would know where it is.
    #[error("the demo server cannot write to its standard output: {0}")]
    Output(io::Error),
}
