//! Connection in use.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use ::http::{HeaderName, HeaderValue, Method};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    net::TcpStream,
};

use super::{
    closed_early,
    head::{self, Head},
    invalid_response,
};
use crate::{Request, request::SentFlag};

/// Largest head of a response, in bytes, together with the heads that only announce it (1xx).
const MAX_HEAD: usize = 400 << 10;

/// Largest body that is written together with its head.
const MAX_COPIED_BODY: usize = 16 << 10;

thread_local! {
    /// Buffer for reads. One for all connections of a thread: none has its own.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// Connection with one request on it.
pub(super) struct Conn {
    pub(super) tcp: TcpStream,
    out: OutgoingRequest,
    /// Bytes that came and were not taken yet.
    pub(super) rest: BytesMut,
    /// Number of bytes of heads that only announced the response. It is bounded, because a server could send such
    /// heads for ever.
    announcing: usize,
}

/// Outgoing request.
pub(super) struct OutgoingRequest {
    /// Head, followed by a small body.
    head: Vec<u8>,
    /// Number of bytes of `head` that are written.
    at: usize,
    /// Unwritten part of a large body.
    body: Bytes,
    /// Error after which nothing more can be written. A response may have come all the same.
    failed: Option<io::Error>,
}

/// Reason why there is no response.
pub(super) enum ExchangeError {
    /// No byte of the request was written.
    Unsent(io::Error),
    /// Some or all of the request was written.
    Sent(io::Error),
}

impl Conn {
    pub(super) fn new(tcp: TcpStream, out: OutgoingRequest) -> Self {
        Self { tcp, out, rest: BytesMut::new(), announcing: 0 }
    }

    /// Returns the request for another connection. Nothing of it was sent.
    pub(super) fn into_unsent(self) -> OutgoingRequest {
        OutgoingRequest { failed: None, ..self.out }
    }

    /// Returns whether the request was written to its end.
    pub(super) fn is_written(&self) -> bool {
        self.out.is_empty() && self.out.failed.is_none()
    }

    /// Writes the request and reads the head of its response, which may come before all is written.
    pub(super) fn poll_head(
        &mut self,
        method: &Method,
        sent: &SentFlag,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, ExchangeError>> {
        self.poll_out(cx);
        if self.out.at > 0 {
            sent.note();
        }
        let failed = |conn: &mut Self, error| {
            // The error that came first is the reason.
            let error = conn.out.failed.take().unwrap_or(error);
            if conn.out.at == 0 { ExchangeError::Unsent(error) } else { ExchangeError::Sent(error) }
        };
        loop {
            match std::task::ready!(self.poll_read_head(method, cx)) {
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(failed(self, error))),
            }
        }
    }

    /// Reads once. Returns `None` if the head is incomplete, or one that only announces the response (1xx).
    fn poll_read_head(
        &mut self,
        method: &Method,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Head>>> {
        let (rest, announcing) = (&mut self.rest, &mut self.announcing);
        let read = poll_read(&mut self.tcp, cx, |new| {
            if rest.is_empty() {
                // The usual case: the whole head comes at once, and maybe the whole body.
                let (head, used) = head::read_last(new, method)?;
                rest.extend_from_slice(&new[used..]);
                *announcing += used;
                return Ok(head);
            }
            let line_ended = new.contains(&b'\n');
            rest.extend_from_slice(new);
            if !line_ended {
                return Ok(None);
            }
            let (head, used) = head::read_last(rest, method)?;
            rest.advance(used);
            *announcing += used;
            Ok(head)
        });
        let head = std::task::ready!(read)?.unwrap_or_else(|| Err(closed_early()))?;
        if head.is_none() && self.announcing + self.rest.len() > MAX_HEAD {
            return Poll::Ready(Err(invalid_response("the head of its answer is too large")));
        }
        Poll::Ready(Ok(head))
    }

    /// Writes as much as the connection takes.
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>) {
        while !self.out.is_empty() && self.out.failed.is_none() {
            let parts = self.out.parts();
            let written = if parts[1].is_empty() {
                Pin::new(&mut self.tcp).poll_write(cx, &parts[0])
            } else {
                Pin::new(&mut self.tcp).poll_write_vectored(cx, &parts)
            };
            match written {
                Poll::Ready(Ok(0)) => self.out.failed = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.out.written(written),
                Poll::Ready(Err(error)) => self.out.failed = Some(error),
                Poll::Pending => return,
            }
        }
    }

    /// Reads once into [`Conn::rest`]. Returns false if the connection has ended.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.poll_out(cx);
        let rest = &mut self.rest;
        let read = poll_read(&mut self.tcp, cx, |new| rest.extend_from_slice(new));
        read.map_ok(|some| some.is_some())
    }
}

impl OutgoingRequest {
    pub(super) fn new(request: &Request, more: &[(HeaderName, HeaderValue)]) -> Self {
        let (mut head, mut body) = (head::write(request, more), request.body.clone());
        if body.len() <= MAX_COPIED_BODY {
            head.extend_from_slice(&body);
            body = Bytes::new();
        }
        Self { head, at: 0, body, failed: None }
    }

    fn is_empty(&self) -> bool {
        self.at == self.head.len() && self.body.is_empty()
    }

    fn parts(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.head[self.at..]), IoSlice::new(&self.body)]
    }

    fn written(&mut self, bytes: usize) {
        let head = bytes.min(self.head.len() - self.at);
        self.at += head;
        self.body.advance(bytes - head);
    }
}

/// Reads once. Returns `None` at the end of the stream.
fn poll_read<T>(
    tcp: &mut TcpStream,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<Option<T>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        std::task::ready!(Pin::new(tcp).poll_read(cx, &mut buffer))?;
        let new = buffer.filled();
        Poll::Ready(Ok((!new.is_empty()).then(|| take(new))))
    })
}
