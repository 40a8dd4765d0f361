//! Timeouts of one server.

use std::time::Duration;

/// Timeouts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Start and handshake together. Defaults to 60 seconds: a first `npx` or `uvx` downloads packages.
    pub open: Duration,
    /// `server/discover` probe, if another era can be tried after it; a legacy server may not answer at all.
    /// Defaults to 5 seconds.
    pub probe: Duration,
    /// Connection, including DNS lookup and TLS. Defaults to 10 seconds.
    pub connect: Duration,
    /// Time from a request to the head of its response. Defaults to 1 hour, like a call: a server that
    /// answers in plain JSON sends nothing before it is done.
    pub first_byte: Duration,
    /// Silence on a stream that a call waits for. Defaults to 1 hour: a server need not send anything while it works.
    pub idle: Duration,
    /// Call, restarted by each progress notification. Defaults to 1 hour.
    pub call: Duration,
    /// Deletion of a server-side session; the local session ends in any case. Defaults to 5 seconds.
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

/// Spare processes, started ahead of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareOptions {
    /// Number of spares. Defaults to none: each is a process that may never be used.
    pub count: usize,
    /// Age at which an unused spare is replaced, because a server may become stale. Defaults to 10 minutes.
    pub max_age: Duration,
}

impl Default for SpareOptions {
    fn default() -> Self {
        Self { count: 0, max_age: Duration::from_secs(10 * 60) }
    }
}
