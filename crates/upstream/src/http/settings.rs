//! What a client is made of.

use std::{path::PathBuf, time::Duration};

use tokio::runtime::Handle;

use super::{Proxy, Trust};

/// What a [`Client`](super::Client) is made of. It is read once, when the client is made.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Whose certificates are believed.
    pub trust: Trust,
    /// By what way servers are reached.
    pub proxy: Proxy,
    /// How long a new connection may take: finding the host, TCP, proxy and TLS together.
    pub connect: Duration,
    /// How long a connection that nobody uses is kept. They are looked through at this interval, so
    /// one can live for up to twice as long.
    pub idle: Duration,
    /// How many connections that nobody uses are kept per origin. Others are closed after their answer.
    pub max_idle: usize,
    /// How long a connection is silent before TCP asks whether the other side is still there. It finds
    /// servers that vanished under a stream that is silent for hours, and keeps routers from
    /// forgetting it.
    pub keep_alive: Option<Duration>,
    /// Where connections live, whoever asks for them. Without one, where the client is made.
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

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A file of authorities cannot be used.
    #[error("the file of authorities {} cannot be used: {problem}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A proxy is named in a way that cannot be read.
    #[error("{variable} does not name a proxy; write it like http://proxy.example.com:3128")]
    Proxy {
        /// The variable of the environment that names it.
        variable: String,
    },
    /// The cryptography refuses these settings.
    #[error("secure connections cannot be set up: {0}")]
    Tls(String),
    /// There is no runtime to live on.
    #[error(
        "an HTTP client needs a Tokio runtime; name one in its settings or make it inside of one"
    )]
    NoRuntime,
}
