//! Writes an HTTP response to the client.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Method, Response, StatusCode, header::CONTENT_TYPE, response::Parts};
use hyper::body::Body as _;
use stayput_wire::{header as mcp, json};

use super::{date, head::Head};
use crate::{
    listen::http1::conn::{Conn, Socket},
    reply::{AfterWrite, Reply},
};

/// Largest body, in bytes, that is written together with its head in one call.
const MAX_COPIED_BODY: usize = 16 << 10;

/// Number of bytes of a stream that are buffered for one write.
const PIECE: usize = 64 << 10;

/// Time after which a client that reads nothing is disconnected.
const STALLED: Duration = Duration::from_secs(120);

thread_local! {
    /// Write buffer, shared by all connections of a thread.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(MAX_COPIED_BODY + 1024));
}

/// Options for writing one response.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// Whether the connection is used again.
    pub(super) keep: bool,
    /// Whether the client uses HTTP/1.1.
    pub(super) modern: bool,
    /// Whether this answers a HEAD request.
    pub(super) head_only: bool,
}

impl Manner {
    pub(super) fn of(head: &Head, keep: bool) -> Self {
        Self { keep, modern: head.modern, head_only: head.method == Method::HEAD }
    }

    /// Last response on a connection whose request could not be parsed.
    pub(super) const LAST: Self = Self { keep: false, modern: true, head_only: false };
}

/// Writes a response to its end. Returns whether another request may follow.
pub(super) async fn write(
    line: &mut Conn<impl Socket>,
    response: Response<Reply>,
    manner: Manner,
) -> io::Result<bool> {
    let (parts, body) = response.into_parts();
    // In HTTP/1.0 the end of a stream is the end of the connection, so nothing can follow.
    let endless = !manner.modern && !matches!(body, Reply::Whole(..));
    let manner = Manner { keep: manner.keep && !endless && !closes(&parts.headers), ..manner };
    match body {
        Reply::Whole(body, then) => whole(line, &parts, (body, then), manner).await?,
        body if manner.head_only => drop(body),
        body => Box::pin(stream(line, &parts, body, manner)).await?,
    }
    Ok(manner.keep)
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONNECTION).is_some_and(|said| said == "close")
}

async fn whole(
    line: &mut Conn<impl Socket>,
    parts: &Parts,
    (body, then): (Bytes, Option<AfterWrite>),
    manner: Manner,
) -> io::Result<()> {
    // Called before the write, because the client may send its next request on another connection as soon as it has
    // read this response. A client that has disconnected gets nothing here; it is notified on its next call.
    if let Some(then) = then {
        if poll_fn(|cx| Poll::Ready(line.poll_hang_up(cx).is_ready())).await {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        then();
    }
    let mut written = Rest::begin(line, parts, body, manner).await?;
    if !written.is_empty() {
        line.give(STALLED);
        poll_fn(|cx| written.poll(line, cx)).await?;
    }
    Ok(())
}

/// Unwritten rest of a response.
struct Rest {
    head: Bytes,
    body: Bytes,
}

impl Rest {
    /// Writes as much as the connection takes at once, which is usually everything.
    async fn begin(
        line: &mut Conn<impl Socket>,
        parts: &Parts,
        mut body: Bytes,
        manner: Manner,
    ) -> io::Result<Self> {
        let length = End::Length(body.len());
        if manner.head_only {
            body.clear();
        }
        let small = body.len() <= MAX_COPIED_BODY;
        let begun = poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|out| {
                out.clear();
                head(out, parts, &length, manner);
                let mut after: &[u8] = &body;
                if small {
                    out.extend_from_slice(&body);
                    after = &[];
                }
                let written = match line.poll_write([out, after], cx) {
                    Poll::Ready(Ok(written)) => written,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => 0,
                };
                let of_head = written.min(out.len());
                let rest = Bytes::copy_from_slice(&out[of_head..]);
                Poll::Ready(Ok((rest, written - of_head)))
            })
        });
        let (head, of_body) = begun.await?;
        match small {
            true => body = Bytes::new(),
            false => body.advance(of_body),
        }
        Ok(Self { head, body })
    }

    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn poll(&mut self, line: &mut Conn<impl Socket>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let written = match self.head.is_empty() {
                true => ready!(line.poll_write([&self.body, &[]], cx))?,
                false => ready!(line.poll_write([&self.head, &self.body], cx))?,
            };
            line.give(STALLED);
            let of_head = written.min(self.head.len());
            self.head.advance(of_head);
            self.body.advance(written - of_head);
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes a stream as its data arrives, until it ends or the client disconnects.
async fn stream(
    line: &mut Conn<impl Socket>,
    parts: &Parts,
    body: Reply,
    manner: Manner,
) -> io::Result<()> {
    let end = if manner.modern { End::Chunks } else { End::Close };
    let mut out = Vec::new();
    head(&mut out, parts, &end, manner);
    line.give(STALLED);
    let chunked = manner.modern;
    let mut saying = Saying { body, out, at: 0, chunked, ended: false, lost: false };
    poll_fn(|cx| saying.poll(line, cx)).await
}

/// Stream with its write buffer.
struct Saying {
    body: Reply,
    out: Vec<u8>,
    /// Number of bytes of `out` that are written.
    at: usize,
    chunked: bool,
    ended: bool,
    /// The client has lost access.
    lost: bool,
}

impl Saying {
    fn poll(&mut self, line: &mut Conn<impl Socket>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let before = self.out.len();
            if !self.ended && self.body.poll_lost(cx).is_ready() {
                self.lost = true;
                self.end();
            }
            self.take_in(cx);
            if before == 0 && !self.out.is_empty() {
                line.give(STALLED);
            }
            if self.out.is_empty() {
                if self.ended {
                    return Poll::Ready(Ok(()));
                }
                ready!(line.poll_hang_up(cx));
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            match line.poll_write([&self.out[self.at..], &[]], cx) {
                Poll::Ready(written) => self.at += written?,
                // A client without access gets no time to read the rest.
                Poll::Pending if self.lost => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending => {
                    ready!(line.poll_hang_up(cx));
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            line.give(STALLED);
            if self.at == self.out.len() {
                // An idle stream keeps no buffer.
                (self.out, self.at) = (Vec::new(), 0);
            }
        }
    }

    /// Stops reading the body and drops it at once, so that a slow client does not keep a call alive.
    fn end(&mut self) {
        self.ended = true;
        self.body = Reply::Whole(Bytes::new(), None);
        if self.chunked {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
    }

    /// Reads frames of the body into the buffer, up to `PIECE` bytes.
    fn take_in(&mut self, cx: &mut Context<'_>) {
        while !self.ended && self.out.len() - self.at < PIECE {
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else { return };
            let Some(Ok(frame)) = next else { return self.end() };
            let Ok(data) = frame.into_data() else { continue };
            if data.is_empty() {
                // An empty chunk would end the body.
                continue;
            }
            if self.chunked {
                // Writing to a vector does not fail.
                let _ = write!(self.out, "{:x}\r\n", data.len());
            }
            self.out.extend_from_slice(&data);
            if self.chunked {
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Framing of a body: the way its end is marked.
enum End {
    Length(usize),
    Chunks,
    Close,
}

fn head(out: &mut Vec<u8>, parts: &Parts, end: &End, manner: Manner) {
    let status = match parts.status {
        StatusCode::OK => b"HTTP/1.1 200 OK\r\n",
        status => {
            let reason = status.canonical_reason().unwrap_or_default();
            // Writing to a vector does not fail.
            let _ = write!(out, "HTTP/1.1 {} {reason}\r\n", status.as_u16());
            &b""[..]
        }
    };
    out.extend_from_slice(status);
    for (name, value) in &parts.headers {
        line(out, name.as_str(), value.as_bytes());
    }
    match end {
        End::Length(length) => {
            if *length > 0 && !parts.headers.contains_key(CONTENT_TYPE) {
                line(out, CONTENT_TYPE.as_str(), mcp::JSON.as_bytes());
            }
            out.extend_from_slice(b"content-length: ");
            json::push_number(out, *length as u64);
            out.extend_from_slice(b"\r\n");
        }
        End::Chunks => line(out, "transfer-encoding", b"chunked"),
        End::Close => {}
    }
    if !manner.keep && !closes(&parts.headers) {
        line(out, "connection", b"close");
    } else if manner.keep && !manner.modern {
        line(out, "connection", b"keep-alive");
    }
    date::write(out);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::reply;

    /// E11: the action after a write does not run when the client is gone.
    #[tokio::test]
    async fn disconnected_client_does_not_trigger_the_after_write_action() {
        for stays in [true, false] {
            let (client, socket) = tokio::io::duplex(1 << 10);
            let client = stays.then_some(client);
            let ran = Arc::new(AtomicBool::new(false));
            let flag = ran.clone();
            let then: AfterWrite = Box::new(move || flag.store(true, Ordering::Relaxed));
            let answer = reply::message_then("{}", Some(then));
            let mut conn = Conn::new(socket, STALLED, MAX_COPIED_BODY);
            let manner = Manner { keep: true, modern: true, head_only: false };
            assert_eq!(write(&mut conn, answer, manner).await.is_ok(), stays);
            assert_eq!(ran.load(Ordering::Relaxed), stays);
            drop(client);
        }
    }
}
