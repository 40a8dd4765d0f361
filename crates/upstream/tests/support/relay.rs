//! TCP relay that can be observed and cut.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Handle,
    task::AbortHandle,
};

/// Relay between a client and a server on this machine.
pub(crate) struct Relay {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    to: u16,
    /// Number of accepted connections.
    made: AtomicUsize,
    /// Number of open connections.
    open: AtomicUsize,
    /// Number of response bytes that pass before all connections are cut.
    allowed: AtomicUsize,
    /// All bytes from clients.
    said: Mutex<Vec<u8>>,
    live: Mutex<Vec<AbortHandle>>,
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Relay {
    /// Starts a relay to the server at this port.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: port,
            made: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            allowed: AtomicUsize::new(usize::MAX),
            said: Mutex::default(),
            live: Mutex::default(),
        });
        let accepting = Handle::current().spawn(accept(listener, shared.clone())).abort_handle();
        Self { port: own, shared, accepting }
    }

    /// Starts a server that closes every connection.
    pub(crate) async fn to_nowhere() -> Self {
        Self::to(0).await
    }

    /// Returns the URL of the endpoint behind it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn made(&self) -> usize {
        self.shared.made.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns all bytes from clients so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.shared.said.lock().unwrap()).into_owned()
    }

    /// Cuts all connections now.
    pub(crate) fn cut(&self) {
        for one in self.shared.live.lock().unwrap().drain(..) {
            one.abort();
        }
    }

    /// Cuts a connection after this many response bytes.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.shared.allowed.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.made.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(shared.clone());
        let pass = Handle::current().spawn(async move { pass(client, open).await });
        shared.live.lock().unwrap().push(pass.abort_handle());
    }
}

/// Ends both directions when one of them ends. Half-closed connections do not occur here.
async fn pass(client: TcpStream, open: Open) -> Option<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, open.0.to)).await.ok()?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = requests(from_client, to_server, &open.0) => {}
        _ = answers(from_server, to_client, &open.0) => {}
    }
    Some(())
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) -> Option<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        shared.said.lock().unwrap().extend_from_slice(&buffer[..read]);
        to.write_all(&buffer[..read]).await.ok()?;
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) -> Option<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        let allowed = shared.allowed.load(Ordering::SeqCst);
        let passed = read.min(allowed);
        to.write_all(&buffer[..passed]).await.ok()?;
        if passed < read {
            shared.allowed.store(usize::MAX, Ordering::SeqCst);
            return None;
        }
        if allowed != usize::MAX {
            shared.allowed.store(allowed - passed, Ordering::SeqCst);
        }
    }
}
