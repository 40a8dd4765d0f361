//! HTTP client for tests: one connection per request, no hidden behaviour.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use stayput_wire::sse::{Decoder, Event};
use tokio::{net::TcpStream, task::AbortHandle};

/// Head of an answer, with the body still to come. Dropping it closes the connection.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
    connection: Connection,
}

#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request over a new connection and returns when the head of the answer has arrived.
///
/// # Errors
/// If the server cannot be reached, or closes the connection before.
pub async fn send(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> std::io::Result<Answer> {
    let url: Uri = url.parse().unwrap();
    let authority = url.authority().unwrap().as_str();
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    let connection = Connection(tokio::spawn(connection).abort_handle());
    let mut request = Request::builder().method(method).uri(url.path_and_query().unwrap().as_str());
    request = request.header("host", authority);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let answer = sender.send_request(request).await.map_err(std::io::Error::other)?;
    let (parts, body) = answer.into_parts();
    Ok(Answer { status: parts.status, headers: parts.headers, body, connection })
}

impl Answer {
    /// Returns a header as text, or an empty string.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn bytes(self) -> std::io::Result<Bytes> {
        let Self { body, connection, .. } = self;
        let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        drop(connection);
        Ok(bytes)
    }

    /// Returns the whole body as JSON.
    pub async fn json(self) -> Value {
        serde_json::from_slice(&self.bytes().await.unwrap()).unwrap()
    }

    /// Returns the answering message: the body itself, or the last event of the stream.
    pub async fn message(self) -> Value {
        if self.header("content-type").starts_with("application/json") {
            return self.json().await;
        }
        let mut events = self.events();
        let mut last = Value::Null;
        while let Some(event) = events.next().await {
            if !event.data().is_empty() {
                last = serde_json::from_slice(event.data()).unwrap();
            }
        }
        last
    }

    /// Returns the body as a stream of events.
    #[must_use]
    pub fn events(self) -> Events {
        let decoder = Decoder::new(64 << 20);
        Events { body: self.body, _connection: self.connection, decoder, left: Bytes::new() }
    }
}

/// Stream of events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    _connection: Connection,
    decoder: Decoder,
    left: Bytes,
}

impl Events {
    /// Returns the next event, or `None` at the end of the stream, even if it breaks.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let mut rest = &self.left[..];
            let event = self.decoder.next_event(&mut rest);
            self.left = self.left.slice_ref(rest);
            if let Some(event) = event {
                return Some(event.unwrap());
            }
            self.left = self.body.frame().await?.ok()?.into_data().ok()?;
        }
    }

    /// Returns the next event that carries a message.
    pub async fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.next().await?;
            if !event.data().is_empty() {
                return Some(serde_json::from_slice(event.data()).unwrap());
            }
        }
    }

    /// Returns the id from which the stream can be resumed.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.decoder.last_id()
    }
}
