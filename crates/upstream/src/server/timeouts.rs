//! How long everything may take with one server.

use std::time::Duration;

/// How long the server may take for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Start and handshake together. Defaults to 60 seconds: a first `npx` or `uvx` downloads.
    pub open: Duration,
    /// The question whether it is a modern server, where it can be another one; a legacy one may not
    /// answer it at all. Defaults to 5 seconds.
    pub probe: Duration,
    /// A connection, name lookup and encryption included. Defaults to 10 seconds.
    pub connect: Duration,
    /// From a request to the head of its answer. Defaults to 1 hour, as a call: a server that answers
    /// in plain JSON has nothing to say before it is done.
    pub first_byte: Duration,
    /// Silence on a stream that a call waits for. Defaults to 1 hour: servers need not send anything
    /// while they work.
    pub idle: Duration,
    /// A call, counted anew at each progress it reports. Defaults to 1 hour.
    pub call: Duration,
    /// The farewell to a remote session; it is forgotten here in any case. Defaults to 5 seconds.
    pub close: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let hour = Duration::from_secs(60 * 60);
        Self {
            open: Duration::from_secs(60),
            probe: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            first_byte: hour,
            idle: hour,
            call: hour,
            close: Duration::from_secs(5),
        }
    }
}

/// Links that are opened before anybody asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warm {
    /// How many stand ready. Defaults to none: each is a process that may never be used.
    pub count: usize,
    /// When one that nobody took is replaced, because servers go stale too. Defaults to 10 minutes.
    pub max_age: Duration,
}

impl Default for Warm {
    fn default() -> Self {
        Self { count: 0, max_age: Duration::from_secs(10 * 60) }
    }
}
