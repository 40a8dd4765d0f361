//! hyper's connection, polled by the task that waits for the response. No task is spawned, and no other one is woken.
//!
//! It has less to do than our client: it does not ask the kernel whether a kept connection is still open, has no time
//! limits, and does not know whether a failed request can have been executed.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Mutex,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Uri, header};
use http_body_util::Full;
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1::{Connection, SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::headers;

/// Client with idle connections.
pub(super) struct Control {
    authority: String,
    path: Uri,
    headers: HeaderMap,
    idle: Mutex<Vec<Conn>>,
}

struct Conn {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<TcpStream>, Full<Bytes>>,
}

impl Conn {
    /// Lets hyper read and write.
    fn drive(connection: &mut Connection<TokioIo<TcpStream>, Full<Bytes>>, cx: &mut Context<'_>) {
        if let Poll::Ready(ended) = Pin::new(connection).poll(cx) {
            panic!("the connection ended: {ended:?}");
        }
    }
}

impl Control {
    pub(super) fn new(url: &str) -> Self {
        let uri: Uri = url.parse().unwrap();
        let authority = uri.authority().unwrap().as_str().to_owned();
        let mut headers = headers();
        headers.insert(header::HOST, authority.parse().unwrap());
        let path = uri.path().parse().unwrap();
        Self { authority, path, headers, idle: Mutex::default() }
    }

    pub(super) async fn post(&self, body: Bytes) -> Bytes {
        let kept = self.idle.lock().unwrap().pop();
        let mut conn = match kept {
            Some(conn) => conn,
            None => self.connect().await,
        };
        let mut request = Request::post(self.path.clone()).body(Full::from(body)).unwrap();
        *request.headers_mut() = self.headers.clone();
        let Conn { sender, connection } = &mut conn;
        let mut response = pin!(sender.send_request(request));
        let response = poll_fn(|cx| {
            Conn::drive(connection, cx);
            response.as_mut().poll(cx)
        })
        .await
        .unwrap();
        let body = collect(connection, response.into_body()).await;
        // hyper notices the end of the exchange, so that the connection takes the next request.
        poll_fn(|cx| {
            Conn::drive(connection, cx);
            sender.poll_ready(cx)
        })
        .await
        .unwrap();
        self.idle.lock().unwrap().push(conn);
        body
    }

    async fn connect(&self) -> Conn {
        let socket = TcpStream::connect(&self.authority).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(socket)).await.unwrap();
        Conn { sender, connection }
    }
}

/// Reads the body. One that came in one piece is not copied.
async fn collect(
    connection: &mut Connection<TokioIo<TcpStream>, Full<Bytes>>,
    mut body: Incoming,
) -> Bytes {
    let mut frame = async |body: &mut Incoming| {
        poll_fn(|cx| {
            if body.is_end_stream() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            Conn::drive(connection, cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
        .await
        .map(|frame| frame.unwrap().into_data().unwrap())
    };
    let first = frame(&mut body).await.unwrap_or_default();
    let Some(second) = frame(&mut body).await else { return first };
    let mut all = BytesMut::from(&first[..]);
    all.extend_from_slice(&second);
    while let Some(more) = frame(&mut body).await {
        all.extend_from_slice(&more);
    }
    all.freeze()
}
