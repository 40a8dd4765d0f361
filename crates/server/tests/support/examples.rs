//! Examples of this crate as processes, and a proxy in front of them.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, response::IntoResponse as _};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use super::{TEST_TIMEOUT, listen};

/// Returns the path of an example of this crate.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    let program = folder.join("examples").join(name);
    assert!(program.is_file(), "there is no {}: build the examples", program.display());
    program
}

/// An example that serves HTTP as a process. Killed on drop.
pub(crate) struct Example {
    pub(crate) url: String,
    child: Child,
    name: String,
    store: String,
}

impl Example {
    pub(crate) async fn start(name: &str, store: &str) -> Self {
        Self::at(name, store, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn at(name: &str, store: &str, address: SocketAddr) -> Self {
        let mut command = Command::new(example(name));
        command.args(["http", &address.to_string(), store]).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url =
            timeout(TEST_TIMEOUT, lines.next_line()).await.unwrap().unwrap().expect("the URL");
        Self { url, child, name: name.to_owned(), store: store.to_owned() }
    }

    /// Kills the process and starts another one on the same port.
    pub(crate) async fn restart(&mut self) {
        self.child.kill().await.unwrap();
        let address = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let other = Self::at(&self.name, &self.store, address.parse().unwrap()).await;
        self.child = other.child;
    }
}

/// Starts a proxy that passes each request to the next of several servers. Returns its URL.
pub(crate) async fn round_robin(urls: &[&str]) -> String {
    let address =
        |url: &&str| url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let servers: Arc<[String]> = urls.iter().map(address).collect();
    let next = Arc::new(AtomicUsize::new(0));
    let pass = move |request: http::Request<axum::body::Body>| {
        let server = servers[next.fetch_add(1, Ordering::Relaxed) % servers.len()].clone();
        async move {
            // The server is being restarted.
            let Ok(socket) = TcpStream::connect(server).await else {
                return StatusCode::BAD_GATEWAY.into_response();
            };
            let (mut to, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
            tokio::runtime::Handle::current().spawn(connection);
            match to.send_request(request).await {
                Ok(answer) => answer.map(axum::body::Body::new),
                Err(_) => StatusCode::BAD_GATEWAY.into_response(),
            }
        }
    };
    listen(Router::new().fallback(pass)).await
}
