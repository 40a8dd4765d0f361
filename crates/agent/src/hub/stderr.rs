//! Live stderr of server processes.

use std::{fmt, sync::Arc};

use stayput_upstream::Server;

/// Line that a process of a server wrote to stderr, see [`Builder::on_stderr`](crate::Builder::on_stderr).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StderrLine {
    /// Name of the server.
    pub server: String,
    /// The line, without its line break and without the configured secrets.
    pub text: String,
}

/// Callback for lines on stderr.
#[derive(Clone)]
pub(crate) struct StderrCallback(Arc<dyn Fn(StderrLine) + Send + Sync>);

impl StderrCallback {
    pub(super) fn new(callback: impl Fn(StderrLine) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    /// Returns the server with this callback for its processes.
    pub(super) fn apply(&self, server: &Server, local_name: &str) -> Server {
        let (callback, name) = (self.0.clone(), local_name.to_owned());
        server.with_stderr_lines(Arc::new(move |line| {
            callback(StderrLine { server: name.clone(), text: line.to_owned() });
        }))
    }
}

impl fmt::Debug for StderrCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StderrCallback(…)")
    }
}
