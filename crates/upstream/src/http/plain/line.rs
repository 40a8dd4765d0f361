//! A connection that somebody uses.

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
    ended,
    head::{self, Head},
    nonsense,
};
use crate::http::{Request, request::Taken};

/// The largest head of an answer.
const HEAD: usize = 400 << 10;

/// A body up to this size goes out in one piece with its head.
const SMALL: usize = 16 << 10;

thread_local! {
    /// What is read lands here first. One buffer for all connections of a thread: none has its own.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// One connection, with one request on it.
pub(super) struct Line {
    pub(super) tcp: TcpStream,
    out: Out,
    /// What came and was not taken yet.
    pub(super) rest: BytesMut,
}

/// A request on its way out.
pub(super) struct Out {
    /// The head, and a small body behind it.
    head: Vec<u8>,
    /// How much of that is written.
    at: usize,
    /// A large body, as far as it is not written.
    body: Bytes,
    /// Why nothing more can be written. An answer may be there all the same.
    failed: Option<io::Error>,
}

/// Why there is no answer.
pub(super) enum Failed {
    /// Not a byte of the request went out.
    Unsent(io::Error),
    /// Some of it did, or all.
    Sent(io::Error),
}

impl Line {
    pub(super) fn new(tcp: TcpStream, out: Out) -> Self {
        Self { tcp, out, rest: BytesMut::new() }
    }

    /// The request, for another connection: nothing of it was sent.
    pub(super) fn into_unsent(self) -> Out {
        Out { failed: None, ..self.out }
    }

    /// Whether the request was written to its end.
    pub(super) fn is_written(&self) -> bool {
        self.out.is_empty() && self.out.failed.is_none()
    }

    /// Writes the request, and reads the head of its answer, which may come before all is written.
    pub(super) fn poll_head(
        &mut self,
        method: &Method,
        taken: &Taken,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Failed>> {
        self.poll_out(cx);
        if self.out.at > 0 {
            taken.note();
        }
        let failed = |line: &mut Self, error| {
            // What went wrong first is the reason.
            let error = line.out.failed.take().unwrap_or(error);
            if line.out.at == 0 { Failed::Unsent(error) } else { Failed::Sent(error) }
        };
        loop {
            match std::task::ready!(self.poll_read_head(method, cx)) {
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(failed(self, error))),
            }
        }
    }

    /// Reads once. `None` if the head is not whole yet, or one of those that come before the answer.
    fn poll_read_head(
        &mut self,
        method: &Method,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Head>>> {
        let rest = &mut self.rest;
        let read = poll_read(&mut self.tcp, cx, |new| {
            if rest.is_empty() {
                // As it nearly always is: all of the head at once, and maybe all of the body.
                let (head, used) = head::read_last(new, method)?;
                rest.extend_from_slice(&new[used..]);
                return Ok(head);
            }
            let line_ended = new.contains(&b'\n');
            rest.extend_from_slice(new);
            if !line_ended {
                return Ok(None);
            }
            let (head, used) = head::read_last(rest, method)?;
            rest.advance(used);
            Ok(head)
        });
        let head = std::task::ready!(read)?.unwrap_or_else(|| Err(ended()))?;
        if head.is_none() && self.rest.len() > HEAD {
            return Poll::Ready(Err(nonsense("the head of its answer is too large")));
        }
        Poll::Ready(Ok(head))
    }

    /// Writes what the connection takes.
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

    /// Reads once into [`Line::rest`]. Says whether there was anything: else the connection ended.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.poll_out(cx);
        let rest = &mut self.rest;
        let read = poll_read(&mut self.tcp, cx, |new| rest.extend_from_slice(new));
        read.map_ok(|some| some.is_some())
    }
}

impl Out {
    pub(super) fn new(request: &Request, more: &[(HeaderName, HeaderValue)]) -> Self {
        let (mut head, mut body) = (head::write(request, more), request.body.clone());
        if body.len() <= SMALL {
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

/// Reads once. `None` at the end of what there is.
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
