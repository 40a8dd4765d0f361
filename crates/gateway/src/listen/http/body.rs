//! Body of a request.

use std::{error::Error as _, future::poll_fn, io, pin::Pin, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{header, request::Parts};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::state::ConnState;

/// Largest unread rest of a body that is skipped to reuse the connection, and the longest time for it.
const UNWANTED: usize = 64 << 10;
const UNWANTED_PAUSE: Duration = Duration::from_secs(1);

/// Minimum transfer rate of a body, in bytes per second. A slower body has twice the longest pause in total.
pub(in crate::listen) const SLOWEST: usize = 4 << 10;

/// Body that is being received.
pub(super) struct RequestBody {
    incoming: Incoming,
    /// The client sent `Expect: 100-continue` and waits for the interim response, which hyper sends when the body is
    /// read.
    expects: bool,
    /// The body had trailers.
    had_trailers: bool,
    failed: bool,
}

/// Reason why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::listen) enum BodyError {
    /// The body has more bytes than the limit.
    TooLarge,
    /// The client paused for too long, or sent below the minimum rate.
    Late,
    /// The chunked encoding is invalid.
    Broken,
    /// The client disconnected.
    Gone,
}

impl RequestBody {
    pub(super) fn new(head: &Parts, incoming: Incoming) -> Self {
        let expects = !incoming.is_end_stream() && head.headers.contains_key(header::EXPECT);
        Self { incoming, expects, had_trailers: false, failed: false }
    }

    /// Reads the whole body. Fails after a pause of `pause`, or when the transfer rate is too low. A body over the
    /// limit is read and dropped up to twice the limit: otherwise a client that is still sending would see a
    /// connection reset instead of the answer.
    pub(super) async fn collect(
        &mut self,
        state: &ConnState,
        (limit, pause): (usize, Duration),
    ) -> Result<Bytes, BodyError> {
        let most = limit.saturating_mul(2);
        if self.incoming.size_hint().lower() > most as u64 {
            return Err(BodyError::TooLarge);
        }
        let Some(first) = self.next(state, pause).await? else { return Ok(Bytes::new()) };
        if self.incoming.is_end_stream() {
            // The usual case: the whole body came with the head.
            return if first.len() > limit { Err(BodyError::TooLarge) } else { Ok(first) };
        }
        let (mut size, mut all, begun) = (first.len(), BytesMut::from(first), Instant::now());
        loop {
            // A client that sends a few bytes now and then must not hold the connection forever.
            let earned = Duration::from_secs((size / SLOWEST) as u64);
            let time = pause.saturating_mul(2).saturating_add(earned);
            let left = time.saturating_sub(begun.elapsed()).min(pause);
            let Some(piece) = self.next(state, left).await? else { break };
            size = size.saturating_add(piece.len());
            if size > most {
                return Err(BodyError::TooLarge);
            }
            if size <= limit {
                all.extend_from_slice(&piece);
            } else {
                all = BytesMut::new();
            }
        }
        if size > limit { Err(BodyError::TooLarge) } else { Ok(all.freeze()) }
    }

    /// Discards the rest of the body. Returns whether another request may follow it.
    pub(super) async fn skip(&mut self, state: &ConnState) -> bool {
        // hyper sends `100 Continue` when a body is read; a discarded body is not asked for.
        let large = self.incoming.size_hint().lower() > UNWANTED as u64;
        if self.failed || self.had_trailers || large || self.expects {
            return false;
        }
        let mut size = 0;
        while let Ok(piece) = self.next(state, UNWANTED_PAUSE).await {
            let Some(piece) = piece else { return !self.had_trailers };
            size += piece.len();
            if size > UNWANTED {
                break;
            }
        }
        false
    }

    /// Reads the next part of the body; `None` at its end. Fails if it does not come within `pause`.
    async fn next(
        &mut self,
        state: &ConnState,
        pause: Duration,
    ) -> Result<Option<Bytes>, BodyError> {
        self.expects = false;
        let mut waits = false;
        let next = poll_fn(|cx| {
            loop {
                if self.incoming.is_end_stream() {
                    return Poll::Ready(Ok(None));
                }
                let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                    Poll::Pending => {
                        if !std::mem::replace(&mut waits, true) {
                            state.give(pause);
                        }
                        return state.poll_late(cx).map(|()| Err(BodyError::Late));
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(None)),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(reason(&error))),
                    Poll::Ready(Some(Ok(frame))) => frame,
                };
                match frame.into_data() {
                    Ok(data) => return Poll::Ready(Ok(Some(data))),
                    Err(_) => self.had_trailers = true,
                }
            }
        })
        .await;
        self.failed |= next.is_err();
        next
    }
}

/// Reason of an error of hyper. Invalid chunks are invalid data; anything else is the end of the connection.
fn reason(error: &hyper::Error) -> BodyError {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => BodyError::Broken,
        _ => BodyError::Gone,
    }
}
