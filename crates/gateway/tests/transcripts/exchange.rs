//! One HTTP request on a connection of its own, and its answer as the client reads it.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use crate::{
    support::LONG,
    transcript::{Kind, Transcript},
};

/// A request that is sent; its answer is recorded as far as it is read.
pub(crate) struct Exchange {
    transcript: Transcript,
    block: usize,
    sending: Option<JoinHandle<hyper::Result<Response<Incoming>>>>,
    body: Option<Incoming>,
    streams: bool,
    buffer: Vec<u8>,
    /// `id:` of the last event.
    pub(crate) last_event: Option<String>,
    connection: AbortHandle,
}

/// Parts of a request.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    /// `http://HOST:PORT`
    pub(crate) base: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'a str,
}

impl Exchange {
    /// Connects and sends.
    pub(crate) async fn send(transcript: &Transcript, outgoing: Outgoing<'_>) -> Self {
        let Outgoing { method, base, path, headers, body } = outgoing;
        let block = transcript.begin(format!("{method} {path}"));
        let authority = base.trim_start_matches("http://");
        let mut request = Request::builder().method(method).uri(path).header("host", authority);
        for (name, value) in &headers {
            match *name {
                "last-event-id" => transcript.add(block, ">", Kind::LastEventId, value),
                name => transcript.plain(block, ">", &format!("{name}: {value}")),
            }
            request = request.header(*name, value);
        }
        if !body.is_empty() {
            transcript.add(block, ">", Kind::Sent, body);
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let socket = timeout(LONG, TcpStream::connect(authority)).await.unwrap().unwrap();
        socket.set_nodelay(true).unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        let connection = Handle::current().spawn(connection).abort_handle();
        let sending = Handle::current().spawn(async move { sender.send_request(request).await });
        Self {
            transcript: transcript.clone(),
            block,
            sending: Some(sending),
            body: None,
            streams: false,
            buffer: Vec::new(),
            last_event: None,
            connection,
        }
    }

    /// Waits for status and headers, if they have not been read.
    pub(crate) async fn head(&mut self) -> Option<HeaderMap> {
        let response = timeout(LONG, self.sending.take()?).await.expect("an answer in time");
        let (parts, body) = response.unwrap().unwrap().into_parts();
        self.transcript.plain(self.block, "<", &parts.status.as_u16().to_string());
        let mut recorded: Vec<_> = parts
            .headers
            .iter()
            .filter(|(name, _)| is_recorded(name.as_str()))
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        recorded.sort_unstable();
        for header in recorded {
            self.transcript.plain(self.block, "<", &header);
        }
        let kind = parts.headers.get("content-type");
        self.streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        self.body = Some(body);
        Some(parts.headers)
    }

    /// Reads the next message: the whole body, or the data of the next event that has data. `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.head().await;
        if self.streams { self.event().await } else { self.document().await }
    }

    async fn document(&mut self) -> Option<String> {
        let body = timeout(LONG, self.body.take()?.collect()).await.expect("a body in time");
        let bytes = body.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.is_empty() {
            self.transcript.plain(self.block, "<", "(no body)");
            return None;
        }
        self.transcript.add(self.block, "<", Kind::Received, &text);
        Some(text)
    }

    async fn event(&mut self) -> Option<String> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(data) = self.record(&String::from_utf8_lossy(&event)) {
                    return Some(data);
                }
            }
            let frame = timeout(LONG, self.body.as_mut()?.frame()).await;
            match frame.expect("an event in time") {
                Some(frame) => self.buffer.extend(frame.unwrap().into_data().unwrap_or_default()),
                None => {
                    let rest = String::from_utf8_lossy(&self.buffer).into_owned();
                    self.transcript.plain(self.block, "<", &format!("(end of stream){rest}"));
                    self.body = None;
                }
            }
        }
    }

    /// Records an event: its fields in a fixed order, without comments. Returns its data if there is any.
    fn record(&mut self, event: &str) -> Option<String> {
        let field = |name: &str| {
            let values =
                event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let values: Vec<_> = values.map(|it| it.strip_prefix(' ').unwrap_or(it)).collect();
            (!values.is_empty()).then(|| values.join("\n"))
        };
        let fields = (field("event"), field("id"), field("retry"), field("data"));
        let (name, id, retry, data) = fields;
        if name.is_none() && id.is_none() && retry.is_none() && data.is_none() {
            return None;
        }
        let (log, block) = (self.transcript.clone(), self.block);
        log.plain(block, "<", "(event)");
        if let Some(name) = name {
            log.plain(block, "<  ", &format!("event: {name}"));
        }
        if let Some(id) = id {
            log.add(block, "<  ", Kind::EventId, &id);
            self.last_event = Some(id);
        }
        if let Some(retry) = retry {
            log.plain(block, "<  ", &format!("retry: {retry}"));
        }
        log.add(block, "<   data:", Kind::Received, data.as_deref().unwrap_or_default());
        data.filter(|data| !data.is_empty())
    }

    /// Reads to the end; returns the last message.
    pub(crate) async fn finish(mut self) -> String {
        let mut last = String::new();
        while let Some(message) = self.next().await {
            last = message;
        }
        last
    }

    /// Closes the connection before the end of the answer.
    pub(crate) fn close(self) {
        self.transcript.plain(self.block, ">", "(closes the connection)");
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.abort();
        if let Some(sending) = &self.sending {
            sending.abort();
        }
    }
}

fn is_recorded(header: &str) -> bool {
    ["content-type", "www-authenticate", "retry-after", "set-cookie", "allow"].contains(&header)
        || header.starts_with("mcp-")
}
