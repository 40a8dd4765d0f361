//! Body of a request.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use stayput_http::{Chunks, Piece};
use tokio::time::Instant;

use super::head::{Head, Length};
use crate::listen::http1::conn::{Conn, Socket};

/// Largest unread rest of a body that is skipped to reuse the connection, and the longest time for it.
const UNWANTED: usize = 64 << 10;
const UNWANTED_PAUSE: Duration = Duration::from_secs(1);

/// Minimum transfer rate of a body, in bytes per second. A slower body has twice the longest pause in total.
pub(in crate::listen) const SLOWEST: usize = 4 << 10;

const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Body that is being received.
pub(super) struct Body {
    left: Left,
    /// The client sent `Expect: 100-continue` and waits for the interim response.
    expects: bool,
}

/// Part of the body that is still to come.
enum Left {
    Bytes(u64),
    Chunks(Chunks),
    Nothing,
}

/// Reason why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::listen) enum NoBody {
    /// The body has more bytes than the limit.
    TooLarge,
    /// The client paused for too long, or sent below the minimum rate.
    Late,
    /// The chunked encoding is invalid.
    Broken,
    /// The client disconnected.
    Gone,
}

impl Body {
    pub(super) fn of(head: &Head) -> Self {
        let left = match head.length {
            Length::Known(0) => Left::Nothing,
            Length::Known(length) => Left::Bytes(length),
            Length::Chunked => Left::Chunks(Chunks::default()),
        };
        Self { left, expects: head.expects }
    }

    /// Reads the whole body. Fails after a pause of `pause`, or when the transfer rate is too low. A body over the
    /// limit is read and dropped up to twice the limit: otherwise a client that is still sending would see a
    /// connection reset instead of the answer.
    pub(super) async fn collect(
        &mut self,
        line: &mut Conn<impl Socket>,
        (limit, pause): (usize, Duration),
    ) -> Result<Bytes, NoBody> {
        if let Some(whole) = self.whole(line) {
            return if whole.len() > limit { Err(NoBody::TooLarge) } else { Ok(whole) };
        }
        let most = limit.saturating_mul(2);
        if matches!(self.left, Left::Bytes(length) if length > most as u64) {
            return Err(NoBody::TooLarge);
        }
        let (mut all, mut size) = (BytesMut::new(), 0_usize);
        let begun = Instant::now();
        line.give(pause);
        while let Some(piece) = self.next(line).await? {
            size = size.saturating_add(piece.len());
            // A client that sends a few bytes now and then must not hold the connection forever.
            let earned = Duration::from_secs((size / SLOWEST) as u64);
            let time = pause.saturating_mul(2).saturating_add(earned);
            let left = time.checked_sub(begun.elapsed()).ok_or(NoBody::Late)?;
            line.give(pause.min(left));
            if size > most {
                return Err(NoBody::TooLarge);
            }
            if size <= limit {
                all.extend_from_slice(&piece);
            } else {
                all = BytesMut::new();
            }
        }
        if size > limit { Err(NoBody::TooLarge) } else { Ok(all.freeze()) }
    }

    /// Returns the whole body if it is already in the buffer, which is the usual case.
    fn whole(&mut self, line: &mut Conn<impl Socket>) -> Option<Bytes> {
        let length = match self.left {
            Left::Nothing => return Some(Bytes::new()),
            Left::Bytes(length) => usize::try_from(length).ok()?,
            Left::Chunks(_) => return None,
        };
        if line.came.len() < length {
            return None;
        }
        self.left = Left::Nothing;
        if line.came.len() == length {
            return Some(std::mem::take(&mut line.came).freeze());
        }
        let whole = Bytes::copy_from_slice(&line.came[..length]);
        line.came.advance(length);
        Some(whole)
    }

    /// Discards the body. Returns whether the next request can be read from the connection.
    pub(super) async fn skip(&mut self, line: &mut Conn<impl Socket>) -> bool {
        if self.whole(line).is_some() {
            return true;
        }
        // Do not send `100 Continue` for a body that is discarded.
        let large = matches!(self.left, Left::Bytes(length) if length > UNWANTED as u64);
        if large || (self.expects && line.came.is_empty()) {
            return false;
        }
        line.give(UNWANTED_PAUSE);
        let mut size = 0;
        while let Ok(piece) = self.next(line).await {
            let Some(piece) = piece else { return true };
            size += piece.len();
            if size > UNWANTED {
                break;
            }
        }
        false
    }

    async fn next(&mut self, line: &mut Conn<impl Socket>) -> Result<Option<Bytes>, NoBody> {
        if self.expects && line.came.is_empty() {
            let mut at = 0;
            while at < GO_ON.len() {
                let written = poll_fn(|cx| line.poll_write([&GO_ON[at..], &[]], cx)).await;
                at += written.map_err(|_| NoBody::Gone)?;
            }
        }
        self.expects = false;
        poll_fn(|cx| self.poll_next(line, cx)).await
    }

    /// Reads the next part of the body; `None` at its end.
    fn poll_next(
        &mut self,
        line: &mut Conn<impl Socket>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, NoBody>> {
        loop {
            let piece = match &mut self.left {
                Left::Nothing => Piece::End,
                Left::Bytes(_) if line.came.is_empty() => Piece::More,
                Left::Bytes(left) => {
                    let length = line.came.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= length as u64;
                    Piece::Data(line.came.split_to(length).freeze())
                }
                Left::Chunks(chunks) => chunks.next(&mut line.came).map_err(|_| NoBody::Broken)?,
            };
            if matches!(piece, Piece::End) || matches!(self.left, Left::Bytes(0)) {
                self.left = Left::Nothing;
            }
            match piece {
                Piece::Data(data) => return Poll::Ready(Ok(Some(data))),
                Piece::End => return Poll::Ready(Ok(None)),
                Piece::More => {}
            }
            match line.poll_more(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(_) => return Poll::Ready(Err(NoBody::Gone)),
                Poll::Pending => return line.poll_late(cx).map(|()| Err(NoBody::Late)),
            }
        }
    }
}
