//! Property of every response, for the fuzzer and the tests.

use std::{cell::RefCell, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use stayput_http::{Client, ClientSettings, Proxy, Request, Target};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    runtime::{Builder, Runtime},
};

/// Largest body that is read.
const LIMIT: usize = 1 << 20;

/// Status and body, or `None` if the response was refused.
type Read = Option<(u16, Vec<u8>)>;

struct World {
    runtime: Runtime,
    listener: TcpListener,
    client: Client,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (listener, client) = runtime.block_on(async {
            let settings = ClientSettings { proxy: Proxy::None, ..ClientSettings::default() };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            (listener, Client::new(&settings).unwrap())
        });
        Self { runtime, listener, client }
    }

    /// Reads the response with our client.
    async fn ours(&self, method: Method, pieces: &[&[u8]]) -> Read {
        let url = format!("http://{}/", self.listener.local_addr().unwrap());
        let request = Request {
            method,
            url: Target::parse(&url).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            first_byte: Duration::MAX,
            idle: Duration::MAX,
        };
        let client = self.client.with_own_pool();
        let read = async {
            let response = client.send(request).await.ok()?;
            let status = response.status.as_u16();
            Some((status, response.body.collect(LIMIT).await.ok()?.to_vec()))
        };
        let serve = async {
            let (mut socket, _) = self.listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            for piece in pieces {
                // The client may have closed the connection.
                let _ = socket.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let _ = socket.shutdown().await;
        };
        tokio::join!(read, serve).0
    }
}

/// Reads the response with hyper.
async fn theirs(method: Method, pieces: &[&[u8]]) -> Read {
    let (near, mut far) = tokio::io::duplex(LIMIT);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
    let read = async {
        let request = http::Request::builder().method(method).uri("/").header("host", "x");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
    };
    let serve = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(far.read_u8().await.unwrap());
        }
        for piece in pieces {
            let _ = far.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = far.shutdown().await;
    };
    let driven = async {
        let _ = connection.await;
    };
    tokio::join!(async { tokio::join!(read, serve).0 }, driven).0
}

/// Checks that our client finds the end of a response where hyper finds it, or refuses the response. The first byte
/// chooses the method and the pieces in which the rest comes.
pub(crate) fn response(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let method = if choice & 1 == 0 { Method::GET } else { Method::HEAD };
    let cut = data.len().min(usize::from(choice >> 1));
    let (first, second) = data.split_at(cut);
    let pieces = [first, second];
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(World::new);
        let theirs = world.runtime.block_on(theirs(method.clone(), &pieces));
        // Our client would follow a redirect to a server that has gone.
        if theirs.as_ref().is_some_and(|(status, _)| (300..400).contains(status)) {
            return;
        }
        let ours = world.runtime.block_on(world.ours(method, &pieces));
        if ours.is_some() {
            assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(data));
        }
    });
}
