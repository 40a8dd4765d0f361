//! Scripted servers on separate threads. No part of them runs in the runtime of the client, so the tasks counted there
//! are the client's.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use http::{HeaderMap, Method};
use stayput_http::{Client, ClientSettings, HttpError, Proxy, Request, Response, Target};

/// Timeout far above the duration of any test here.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Request target.
    pub(crate) target: String,
    /// All headers as received.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub(crate) trait Bytes: Read + Write + Send {}
impl<T: Read + Write + Send> Bytes for T {}

/// Server side of a connection.
pub(crate) struct Peer {
    pub(crate) io: Box<dyn Bytes>,
    pub(crate) tcp: TcpStream,
}

impl Peer {
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.io.write_all(text.as_bytes())?;
        self.io.flush()
    }

    /// Writes a complete response.
    pub(crate) fn answer(&mut self, status: &str, headers: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        self.say(&format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
    }

    pub(crate) fn json(&mut self, body: &str) -> io::Result<()> {
        self.answer("200 OK", "Content-Type: application/json\r\n", body)
    }

    pub(crate) fn chunk(&mut self, text: &str) -> io::Result<()> {
        self.say(&format!("{:x}\r\n{text}\r\n", text.len()))
    }

    /// Waits until the client has closed the connection, and then closes it here, too.
    pub(crate) fn until_closed(&mut self) -> io::Result<()> {
        let mut more = [0; 64];
        while self.io.read(&mut more)? > 0 {}
        Self::end()
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(&self.tcp, Some(Duration::ZERO))?;
        Self::end()
    }

    /// Closes the connection in the regular way.
    pub(crate) fn end() -> io::Result<()> {
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    pub(crate) fn request(&mut self) -> io::Result<Option<Seen>> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if self.io.read(&mut byte)? == 0 {
                return Ok(None);
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let (line, headers) = head.split_once("\r\n").unwrap();
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let mut seen = Seen { method, target, head: headers.to_owned(), body: String::new() };
        let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.io.read_exact(&mut body)?;
        seen.body = String::from_utf8(body).unwrap();
        Ok(Some(seen))
    }
}

/// Handler of a request. An error ends the connection.
type Does = dyn Fn(&Seen, &mut Peer) -> io::Result<()> + Send + Sync;
type Wrap = dyn Fn(TcpStream) -> Box<dyn Bytes> + Send + Sync;

/// Server that stops on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    state: Arc<State>,
}

struct State {
    does: Box<Does>,
    wrap: Box<Wrap>,
    seen: Mutex<Vec<Seen>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    stopped: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        does: impl Fn(&Seen, &mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::wrapped("http", |tcp| Box::new(tcp), does)
    }

    pub(crate) fn wrapped(
        scheme: &'static str,
        wrap: impl Fn(TcpStream) -> Box<dyn Bytes> + Send + Sync + 'static,
        does: impl Fn(&Seen, &mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            does: Box::new(does),
            wrap: Box::new(wrap),
            seen: Mutex::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = state.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { address, scheme, state }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    pub(crate) fn target(&self, path: &str) -> Target {
        Target::parse(&self.url(path)).unwrap()
    }

    /// Returns the number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for tcp in listener.incoming() {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        let (tcp, state) = (tcp.unwrap(), state.clone());
        state.accepted.fetch_add(1, Ordering::SeqCst);
        state.open.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            // Only the client cares why a connection ended.
            let _ = serve(tcp, &state);
            state.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn serve(tcp: TcpStream, state: &State) -> io::Result<()> {
    // No read here waits for longer than a test may take.
    tcp.set_read_timeout(Some(LONG * 2))?;
    tcp.set_nodelay(true)?;
    let mut peer = Peer { io: (state.wrap)(tcp.try_clone()?), tcp };
    while let Some(seen) = peer.request()? {
        state.seen.lock().unwrap().push(seen.clone());
        (state.does)(&seen, &mut peer)?;
    }
    Ok(())
}

/// Settings that do not depend on the environment of the test.
pub(crate) fn settings() -> ClientSettings {
    ClientSettings { proxy: Proxy::None, ..ClientSettings::default() }
}

pub(crate) fn client() -> Client {
    Client::new(&settings()).unwrap()
}

pub(crate) fn get(url: Target) -> Request {
    let (method, headers, body) = (Method::GET, HeaderMap::new(), bytes::Bytes::new());
    Request { method, url, headers, body, first_byte: LONG, idle: LONG }
}

pub(crate) fn post(url: Target, body: &str) -> Request {
    Request { method: Method::POST, body: body.to_owned().into(), ..get(url) }
}

/// Returns the whole response as text.
pub(crate) async fn text(response: Response) -> String {
    let body = response.body.collect(1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Requests `url` and returns the response.
pub(crate) async fn fetch(client: &Client, url: Target) -> Result<String, HttpError> {
    Ok(text(client.send(get(url)).await?).await)
}

/// Waits until `holds` is true.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    stayput_testkit::until("the condition of the test", holds).await;
}
