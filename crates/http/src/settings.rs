//! Settings of a client.

use std::time::Duration;

use tokio::runtime::Handle;

use super::{Proxy, Trust};

/// Settings of a [`Client`](super::Client), read once, when the client is built.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Trusted certificate authorities.
    pub trust: Trust,
    /// Proxy for requests to servers.
    pub proxy: Proxy,
    /// Time limit of a new connection: name lookup, TCP, proxy and TLS together.
    pub connect: Duration,
    /// Time for which an idle connection is kept. Idle connections are checked at this interval, so one can
    /// live for up to twice as long.
    pub idle: Duration,
    /// Number of idle connections that are kept per origin. Others are closed after their response.
    pub max_idle: usize,
    /// Silence on a connection after which TCP probes the other side. The probes find servers that vanished
    /// under a stream that is silent for hours, and keep routers from forgetting the connection.
    pub keep_alive: Option<Duration>,
    /// Runtime of the connections, whichever task asks for them. `None` is the runtime on which the client is
    /// built.
    pub runtime: Option<Handle>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            trust: Trust::default(),
            proxy: Proxy::FromEnvironment,
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            max_idle: 128,
            keep_alive: Some(Duration::from_secs(60)),
            runtime: None,
        }
    }
}
