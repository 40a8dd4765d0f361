//! The connection of a client: what comes on it, until when, and whether the client is still there.

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
use crate::call::stream_after::watched;

/// How much is taken in of what comes behind a request that is not answered yet.
const AHEAD: usize = 64 << 10;

thread_local! {
    /// What is read lands here first. One buffer for all connections of a thread: an idle one has none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// What a client can be connected by.
pub(in crate::listen) trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

/// One connection of a client.
pub(super) struct Conn<S> {
    socket: S,
    /// What came and was not taken yet.
    pub(super) came: BytesMut,
    alarm: Alarm,
    /// The largest head of a request.
    limit: usize,
    /// The head of the request before, once that is answered.
    last: Option<Box<Head>>,
}

/// What comes instead of a request.
pub(super) enum Over {
    /// The client hung up, or sent nothing for too long.
    Gone,
    Bad(Bad),
}

impl<S: Socket> Conn<S> {
    /// The first request has to begin within `first`, and its head may have `limit` bytes.
    pub(super) fn new(socket: S, first: Duration, limit: usize) -> Self {
        Self { socket, came: BytesMut::new(), alarm: Alarm::new(first), limit, last: None }
    }

    /// The next request may have the head of this one.
    pub(super) fn keep(&mut self, head: Box<Head>) {
        self.last = Some(head).filter(|head| head.is_small());
    }

    /// The client has so long for what it has to do next.
    pub(super) fn give(&mut self, time: Duration) {
        self.alarm.set(time);
    }

    /// Ready when the time that was given is over.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(cx)
    }

    /// The head of the next request. `begun` is how long it may take from its first byte on.
    pub(super) fn poll_head(
        &mut self,
        begun: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<Head>, Over>> {
        if !self.came.is_empty() {
            // It came behind the request before.
            if let Some(head) = self.take_head()? {
                return Poll::Ready(Ok(head));
            }
        }
        loop {
            let first = self.came.is_empty();
            let Self { socket, came, limit, last, .. } = self;
            let read = poll_read(socket, cx, |new| {
                if came.is_empty() {
                    // As it nearly always is: all of it at once, and the body behind it.
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

    /// Reads once into [`Conn::came`]. Says whether there was anything: else the client hung up.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Self { socket, came, .. } = self;
        poll_read(socket, cx, |new| came.extend_from_slice(new)).map_ok(|some| some.is_some())
    }

    /// Ready when the client hung up. What it sends meanwhile is for later, and not taken in without end.
    pub(super) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.came.len() < AHEAD {
            match std::task::ready!(self.poll_more(cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Does something for as long as the client is there. `None` if it hung up first. After `patience` it is told
    /// that it takes long.
    /// What is done stays where it is: it is large, and would be copied.
    pub(super) async fn beside<T>(
        &mut self,
        patience: Duration,
        mut doing: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let (mut waits, mut over) = (false, false);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(done) = watched(over, || doing.as_mut().poll(cx)) {
                    return Poll::Ready(Some(done));
                }
                if !std::mem::replace(&mut waits, true) {
                    self.give(patience);
                }
                if over || self.poll_late(cx).is_pending() {
                    return self.poll_hang_up(cx).map(|()| None);
                }
                over = true;
            }
        })
        .await
    }

    /// Writes some of these bytes, or those behind them. Fails if the client takes none for too long.
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

    /// Says that nothing more comes, and waits a little until the client has read what came before: else
    /// that would be thrown away with what was not read of the client.
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

/// Reads once. `None` at the end of what there is.
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

/// When something has to have come. A call moves it without setting a timer: that is looked at when it is
/// due, and set again if the moment was moved.
struct Alarm {
    due: Instant,
    set: Instant,
    sleep: Pin<Box<Sleep>>,
    /// It knows whom to wake.
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
            // A connection is one task, so who was to be woken before still is.
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
