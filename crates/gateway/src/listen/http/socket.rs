//! Bytes between hyper and the socket of a client.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use stayput_wire::Code;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{line_breaks::LineBreaks, state::ConnState};
use crate::reply::{self, SocketTimer as _};

/// Time after which a client that reads nothing is disconnected.
const STALLED: Duration = Duration::from_secs(120);

/// Time that a client has to read the last response, if its request was not read to the end.
const PARTING: Duration = Duration::from_secs(2);

/// Number of bytes of a refused request that are read at a time, and the pause after them. The pause slows the client down,
/// which could otherwise keep the worker busy with bytes that nobody wants. In all, a client can send 64 MiB before its
/// connection is closed.
const UNWANTED_PIECE: usize = 128 << 10;
const UNWANTED_PAUSE: Duration = Duration::from_millis(4);

/// Header of the empty body of hyper's own responses.
const EMPTY: &str = "content-length: 0\r\n";

/// Socket with time limits. It also completes the responses that hyper writes by itself.
pub(super) struct Socket<S> {
    inner: S,
    state: Arc<ConnState>,
    /// Turn of the connection that the next three fields belong to.
    turn: u64,
    /// A part of the next head has come.
    begun: bool,
    /// The time limit of that head is set.
    is_timed: bool,
    line_breaks: LineBreaks,
    /// Turn in which hyper had written all that it has to write.
    flushed: u64,
    /// Rest of a refusal.
    refusal: Bytes,
    header_limit: usize,
    stall: Duration,
    /// The client has closed its side.
    ended: bool,
    is_shut_down: bool,
    /// End of the pause before more of a refused request is read.
    pause: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Wraps a socket. A head may have `header_limit` bytes.
    pub(super) fn new(inner: S, state: Arc<ConnState>, header_limit: usize) -> Self {
        let stall = state.current_app().rules.limits.stall;
        Self {
            inner,
            state,
            turn: 0,
            begun: false,
            is_timed: false,
            line_breaks: LineBreaks::default(),
            flushed: 0,
            refusal: Bytes::new(),
            header_limit,
            stall,
            ended: false,
            is_shut_down: false,
            pause: None,
        }
    }

    /// Whether the gateway waits for a head. The notes about an earlier head are cleared.
    fn is_between(&mut self) -> bool {
        let turn = self.state.turn();
        if turn != self.turn {
            (self.turn, self.begun, self.is_timed) = (turn, false, false);
            self.line_breaks.begin_head();
        }
        ConnState::is_between(turn)
    }

    /// Ready when the next head does not come in time. A complete head is read at once, so its time limit is set only
    /// when a part of it is missing.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun && !self.is_timed {
            self.is_timed = true;
            self.state.give(self.stall);
        }
        self.state.poll_late(cx)
    }

    /// Takes a response that hyper writes by itself, to refuse a malformed head, and adds a sentence to it. hyper has
    /// written everything before, and no request has begun since.
    fn takes_refusal(&mut self, response: &[u8]) -> bool {
        if !self.is_between() || self.flushed != self.turn || !self.refusal.is_empty() {
            return false;
        }
        let Some((head, behind)) =
            str::from_utf8(response).ok().and_then(|text| text.split_once(EMPTY))
        else {
            return false;
        };
        let sentence = match head.get(9..12) {
            Some("400") => {
                "this is not HTTP/1.1, or it could be read in two ways; nothing of it was looked at"
                    .to_owned()
            }
            Some("414") => "the path is longer than the limit".to_owned(),
            Some("431") => format!(
                "the headers have more than {} bytes, which is `limits.headers`, or are more than 100",
                self.header_limit
            ),
            _ => return false,
        };
        let body = reply::error("null", Code::INVALID_REQUEST, &sentence);
        let kind = stayput_wire::header::JSON;
        let length = body.len();
        self.refusal =
            format!("{head}content-type: {kind}\r\ncontent-length: {length}\r\n{behind}{body}")
                .into();
        true
    }

    /// Fails if the client takes nothing for too long.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.state.set_blocked(false);
            return written;
        }
        if !self.state.set_blocked(true) {
            self.state.give(STALLED);
        }
        self.state.poll_late(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.refusal.is_empty() {
            let written = Pin::new(&mut self.inner).poll_write(cx, &self.refusal);
            let written = ready!(self.written(written, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.refusal.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads to the end of the input. Without this read, closing the socket with unread bytes would discard the
    /// response. Only a client that still sends gets time for it.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = !self.state.is_read() || (self.is_between() && self.begun);
        if let Some(end) = self.pause.filter(|end| Instant::now() < *end) {
            ready!(self.state.poll_until(end, cx));
        }
        let (mut buffer, mut left) = ([0; 16 << 10], UNWANTED_PIECE);
        while !self.ended {
            if left == 0 {
                if self.state.poll_late(cx).is_ready() {
                    break;
                }
                let end = Instant::now() + UNWANTED_PAUSE;
                self.pause = Some(end);
                return self.state.poll_until(end, cx);
            }
            let mut rest = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.inner).poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) => self.ended = rest.filled().is_empty(),
                Poll::Ready(Err(_)) => self.ended = true,
                Poll::Pending if waits => return self.state.poll_late(cx),
                Poll::Pending => break,
            }
            left = left.saturating_sub(rest.filled().len());
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (is_between, before) = (this.is_between(), buffer.filled().len());
        let Poll::Ready(read) = Pin::new(&mut this.inner).poll_read(cx, buffer) else {
            ready!(if is_between { this.poll_late(cx) } else { Poll::Pending });
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        };
        read?;
        let new = &mut buffer.filled_mut()[before..];
        this.ended = new.is_empty();
        if is_between && !new.is_empty() {
            this.begun = true;
            this.line_breaks.check(new);
        } else {
            this.line_breaks.skip(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.takes_refusal(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.written(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(first) = parts.first()
            && this.takes_refusal(first)
        {
            return Poll::Ready(Ok(first.len()));
        }
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, parts);
        this.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_refusal(cx))?;
        if this.is_between() {
            this.flushed = this.turn;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut_down {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.is_shut_down = true;
            this.state.give(PARTING);
        }
        this.poll_part(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::identify::tests::Fixture;

    /// R170: the bytes of a refused request are read with pauses, in which the worker has other clients.
    #[tokio::test]
    async fn refused_request_is_read_with_pauses() {
        const PIECES: u32 = 8;
        let app = Fixture::new().await.app;
        let (mut client, socket) = tokio::io::duplex(PIECES as usize * UNWANTED_PIECE);
        client.write_all(&vec![b'x'; PIECES as usize * UNWANTED_PIECE]).await.unwrap();
        drop(client);
        let state = Arc::new(ConnState::new(app, None));
        state.begin_request();
        let begun = Instant::now();
        Socket::new(socket, state, 8 << 10).shutdown().await.unwrap();
        assert!(begun.elapsed() >= PIECES * UNWANTED_PAUSE, "{:?}", begun.elapsed());
    }
}
