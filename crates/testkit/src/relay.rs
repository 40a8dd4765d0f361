//! TCP relay that can be observed, cut and held, and that can alter what it passes on.

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
    sync::watch,
    task::AbortHandle,
};

/// Largest number of recorded bytes.
const MAX_RECORDED: usize = 1 << 20;

/// Relay between clients and a server on this machine. Dropping it closes all connections.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

/// Fate of the bytes in a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Pass,
    /// Bytes wait, as in a network that loses all packets for a while.
    Hold,
    /// Every new connection is closed.
    Refuse,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    flow: watch::Sender<Flow>,
    /// Number of accepted connections.
    made: AtomicUsize,
    /// Number of open connections.
    open: AtomicUsize,
    /// Number of response bytes that pass before all connections are cut.
    allowed: AtomicUsize,
    /// First bytes from clients.
    said: Mutex<Vec<u8>>,
    /// Text that is replaced in what clients send, and its replacement.
    altered: Mutex<Option<(&'static str, &'static str)>>,
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
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: port,
            flow: watch::Sender::new(Flow::Pass),
            made: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            allowed: AtomicUsize::new(usize::MAX),
            said: Mutex::default(),
            altered: Mutex::default(),
            live: Mutex::default(),
        });
        let accepting = Handle::current().spawn(accept(listener, shared.clone())).abort_handle();
        Self { port: own, shared, accepting }
    }

    /// Starts a server that closes every connection.
    pub async fn to_nowhere() -> Self {
        Self::to(0).await
    }

    /// Returns the port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the endpoint behind it.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn made(&self) -> usize {
        self.shared.made.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns the first MiB that clients have sent since the last call of this function.
    #[must_use]
    pub fn said(&self) -> String {
        let said = std::mem::take(&mut *self.shared.said.lock().unwrap());
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Cuts all connections now.
    pub fn cut(&self) {
        for one in self.shared.live.lock().unwrap().drain(..) {
            one.abort();
        }
    }

    /// Cuts a connection after this many response bytes.
    pub fn cut_after(&self, bytes: usize) {
        self.shared.allowed.store(bytes, Ordering::SeqCst);
    }

    /// Replaces a text in what clients send by another one of the same length, until it is called again.
    pub fn alter(&self, change: Option<(&'static str, &'static str)>) {
        *self.shared.altered.lock().unwrap() = change;
    }

    /// Holds all bytes back until [`Relay::pass`]. Connections stay open, and new ones are accepted.
    pub fn hold(&self) {
        self.shared.flow.send_replace(Flow::Hold);
    }

    /// Cuts all connections and refuses new ones until [`Relay::pass`].
    pub fn refuse(&self) {
        self.shared.flow.send_replace(Flow::Refuse);
        self.cut();
    }

    /// Passes everything on again, first the bytes that were held back.
    pub fn pass(&self) {
        self.shared.flow.send_replace(Flow::Pass);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    /// Waits while bytes are held back. Returns `None` if the connection is to be closed.
    async fn flows(&self) -> Option<()> {
        let mut flow = self.flow.subscribe();
        let flow = *flow.wait_for(|flow| *flow != Flow::Hold).await.ok()?;
        (flow == Flow::Pass).then_some(())
    }

    fn record(&self, bytes: &[u8]) {
        let mut said = self.said.lock().unwrap();
        let left = MAX_RECORDED - said.len();
        said.extend_from_slice(&bytes[..bytes.len().min(left)]);
    }

    fn alter(&self, bytes: &mut [u8]) {
        let Some((from, to)) = *self.altered.lock().unwrap() else { return };
        let from = from.as_bytes();
        if let Some(at) = bytes.windows(from.len()).position(|part| part == from) {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.made.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(shared.clone());
        let pass = Handle::current().spawn(async move { pass(client, open).await });
        let mut live = shared.live.lock().unwrap();
        live.retain(|one| !one.is_finished());
        live.push(pass.abort_handle());
    }
}

/// Ends both directions when one of them ends. Half-closed connections do not occur here.
async fn pass(client: TcpStream, open: Open) -> Option<()> {
    open.0.flows().await?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, open.0.to)).await.ok()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true).ok()?;
    }
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
        shared.flows().await?;
        shared.record(&buffer[..read]);
        shared.alter(&mut buffer[..read]);
        to.write_all(&buffer[..read]).await.ok()?;
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) -> Option<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        shared.flows().await?;
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
