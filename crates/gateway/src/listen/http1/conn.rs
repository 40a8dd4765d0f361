//! Connection of a client: read buffer, deadline, and detection of a disconnect.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::head::{self, Bad, Head};

/// Number of bytes that are read ahead while a request is not answered yet.
const AHEAD: usize = 64 << 10;

thread_local! {
    /// Read buffer, shared by all connections of a thread: an idle connection has none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// Stream socket of a client.
pub(in crate::listen) trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

/// Connection of one client.
pub(super) struct Conn<S> {
    socket: S,
    /// Bytes that were received and not consumed yet.
    pub(super) came: BytesMut,
    alarm: Alarm,
    /// Largest head of a request, in bytes.
    limit: usize,
    /// Head of the previous request, after it was answered.
    last: Option<Box<Head>>,
}

/// Reason why no further request can be read.
pub(super) enum Over {
    /// The client disconnected, or sent nothing for too long.
    Gone,
    Bad(Bad),
}

impl<S: Socket> Conn<S> {
    /// Wraps a socket. The first request has to begin within `first`; a head may have `limit` bytes.
    pub(super) fn new(socket: S, first: Duration, limit: usize) -> Self {
        Self { socket, came: BytesMut::new(), alarm: Alarm::new(first), limit, last: None }
    }

    /// Keeps a head to compare the next request with.
    pub(super) fn keep(&mut self, head: Box<Head>) {
        self.last = Some(head).filter(|head| head.is_small());
    }

    /// Sets the deadline of the client's next action.
    pub(super) fn give(&mut self, time: Duration) {
        self.alarm.set(time);
    }

    /// Ready when the deadline has passed.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(cx)
    }

    /// Reads the head of the next request. `begun` is the time limit from its first byte on.
    pub(super) fn poll_head(
        &mut self,
        begun: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<Head>, Over>> {
        if !self.came.is_empty() {
            // These bytes were received together with the previous request.
            if let Some(head) = self.take_head()? {
                return Poll::Ready(Ok(head));
            }
        }
        loop {
            let first = self.came.is_empty();
            let Self { socket, came, limit, last, .. } = self;
            let read = poll_read(socket, cx, |new| {
                if came.is_empty() {
                    // The usual case: the whole head arrives at once, with the body behind it.
                    let read = head::read_next(new, *limit, last)?;
                    let used = read.as_ref().map_or(0, |(_, used)| *used);
                    came.extend_from_slice(&new[used..]);
                    return Ok(read.map(|(head, _)| head));
                }
                came.extend_from_slice(new);
                let read = if new.contains(&b'\n') || came.len() >= *limit {
                    head::read_next(came, *limit, last)?
                } else {
                    None
                };
                Ok(read.map(|(head, used)| {
                    came.advance(used);
                    head
                }))
            });
            match read {
                Poll::Ready(Ok(Some(Ok(Some(head))))) => return Poll::Ready(Ok(head)),
                Poll::Ready(Ok(Some(Ok(None)))) if first => self.give(begun),
                Poll::Ready(Ok(Some(Ok(None)))) => {}
                Poll::Ready(Ok(Some(Err(bad)))) => return Poll::Ready(Err(Over::Bad(bad))),
                Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(Err(Over::Gone)),
                Poll::Pending => {
                    return self.poll_late(cx).map(|()| Err(Over::Gone));
                }
            }
        }
    }

    fn take_head(&mut self) -> Result<Option<Box<Head>>, Over> {
        let read = head::read_next(&self.came, self.limit, &mut self.last).map_err(Over::Bad)?;
        Ok(read.map(|(head, used)| {
            self.came.advance(used);
            head
        }))
    }

    /// Reads once into [`Conn::came`]. Returns `false` if the client disconnected.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Self { socket, came, .. } = self;
        poll_read(socket, cx, |new| came.extend_from_slice(new)).map_ok(|some| some.is_some())
    }

    /// Ready when the client disconnects. Bytes that arrive meanwhile are buffered, up to `AHEAD`.
    pub(super) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.came.len() < AHEAD {
            match std::task::ready!(self.poll_more(cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Runs a future while the client stays connected. Returns `None` if the client disconnects first. The future is
    /// pinned by the caller, because it is large and would be copied.
    pub(super) async fn beside<T>(
        &mut self,
        mut doing: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        poll_fn(|cx| match doing.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_hang_up(cx).map(|()| None),
        })
        .await
    }

    /// Writes some bytes of the two slices. Fails if the client takes none before the deadline.
    pub(super) fn poll_write(
        &mut self,
        parts: [&[u8]; 2],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let socket = Pin::new(&mut self.socket);
        let written = match parts {
            [one, []] => socket.poll_write(cx, one),
            [one, two] => {
                socket.poll_write_vectored(cx, &[io::IoSlice::new(one), io::IoSlice::new(two)])
            }
        };
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Pending => self.alarm.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            written => written,
        }
    }

    /// Shuts down the write side and waits a little until the client has read the response. If unread bytes of the
    /// client were left at the close, the system would discard the response.
    pub(super) async fn part(mut self, patience: Duration) {
        self.give(patience);
        let parted = poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await;
        if parted.is_err() {
            return;
        }
        poll_fn(|cx| {
            loop {
                self.came.clear();
                match self.poll_more(cx) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_late(cx),
                }
            }
        })
        .await;
    }
}

/// Reads once. `None` at the end of the input.
fn poll_read<T>(
    socket: &mut (impl Socket + ?Sized),
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<Option<T>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        std::task::ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
        let new = buffer.filled();
        Poll::Ready(Ok((!new.is_empty()).then(|| take(new))))
    })
}

/// Deadline of a client's next action. Moving it later does not touch the timer: when the timer fires, it is set
/// again if the deadline was moved.
struct Alarm {
    due: Instant,
    set: Instant,
    sleep: Pin<Box<Sleep>>,
    /// Whether the waker is registered.
    known: bool,
}

impl Alarm {
    fn new(time: Duration) -> Self {
        let due = Instant::now() + time;
        Self { due, set: due, sleep: Box::pin(tokio::time::sleep_until(due)), known: false }
    }

    fn set(&mut self, time: Duration) {
        self.due = Instant::now() + time;
        if self.due < self.set {
            self.reset();
        }
    }

    fn reset(&mut self) {
        (self.set, self.known) = (self.due, false);
        self.sleep.as_mut().reset(self.due);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // A connection is one task, so the waker that was registered before is still the right one.
            if self.known && !self.sleep.is_elapsed() {
                return Poll::Pending;
            }
            self.known = true;
            std::task::ready!(self.sleep.as_mut().poll(cx));
            if self.due <= self.set {
                return Poll::Ready(());
            }
            self.reset();
        }
    }
}
