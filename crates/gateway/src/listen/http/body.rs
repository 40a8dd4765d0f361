//! Body of a request: its maximum size, its time limits and its memory budget.

use std::{error::Error as _, future::poll_fn, io, pin::Pin, task::Poll, time::Duration};

use bytes::Bytes;
use http::{header, request::Parts};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::state::ConnState;
use crate::{
    auth::body_budget::{BodyLimits, BodyPermit, FREE_BYTES, OverBudget},
    state::RequestRules,
};

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
    /// Number of bytes so far.
    size: usize,
    /// Time of the first wait for a part. `None` if the body came with the head.
    waits_since: Option<Instant>,
}

/// Reason why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::listen) enum BodyError {
    /// The body has more bytes than the limit.
    TooLarge,
    /// The client paused for too long, or sent below the minimum rate.
    Late,
    /// The body as a whole took too long.
    Overdue,
    /// There is no memory for the body now.
    OverBudget(OverBudget),
    /// The chunked encoding is invalid.
    Broken,
    /// The client disconnected.
    Gone,
}

impl RequestBody {
    pub(super) fn new(head: &Parts, incoming: Incoming) -> Self {
        let expects = !incoming.is_end_stream() && head.headers.contains_key(header::EXPECT);
        Self { incoming, expects, had_trailers: false, failed: false, size: 0, waits_since: None }
    }

    /// Number of bytes that were read.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Time since the body was first waited for.
    pub(super) fn waited(&self) -> Duration {
        self.waits_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Reads the whole body. Fails after a pause, when the transfer rate is too low, when the whole body takes too long, or
    /// when the memory budget is used up. A body over the limit is read and dropped up to twice the limit: otherwise a
    /// client that is still sending would see a connection reset instead of the answer.
    pub(super) async fn collect(
        &mut self,
        state: &ConnState,
        (rules, permit): (&RequestRules, BodyPermit),
    ) -> Result<Bytes, BodyError> {
        let (limits, pause) = (&rules.limits.body, rules.limits.stall);
        let most = limits.each.saturating_mul(2);
        let expected = self.incoming.size_hint().lower();
        if expected > most as u64 {
            return Err(BodyError::TooLarge);
        }
        let mut collected = Collected { bytes: Vec::new(), size: 0, permit, limits };
        // The memory of a body with a known length is taken before anything of it is read.
        collected.reserve(usize::try_from(expected).unwrap_or(usize::MAX))?;
        let Some(first) = self.next(state, pause).await? else { return Ok(Bytes::new()) };
        self.size = first.len();
        if self.incoming.is_end_stream() && first.len() <= FREE_BYTES.min(limits.each) {
            // The usual case: the whole body came with the head.
            return Ok(first);
        }
        collected.push(&first)?;
        let begun = Instant::now();
        loop {
            let left = time_left(begun, self.size, rules);
            let Some(piece) = self.next(state, left).await.map_err(|error| match error {
                BodyError::Late if begun.elapsed() >= limits.time => BodyError::Overdue,
                error => error,
            })?
            else {
                break;
            };
            self.size = self.size.saturating_add(piece.len());
            if self.size > most {
                return Err(BodyError::TooLarge);
            }
            collected.push(&piece)?;
            if begun.elapsed() >= limits.time && !self.incoming.is_end_stream() {
                return Err(BodyError::Overdue);
            }
        }
        if self.size > limits.each { Err(BodyError::TooLarge) } else { Ok(collected.finish()) }
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
                            self.waits_since.get_or_insert_with(Instant::now);
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

/// Time that the next part of a body has, of which this many bytes have come. A client that sends a few bytes now and then
/// must not hold the connection forever.
fn time_left(begun: Instant, size: usize, rules: &RequestRules) -> Duration {
    let earned = Duration::from_secs((size / SLOWEST) as u64);
    let time =
        rules.limits.stall.saturating_mul(2).saturating_add(earned).min(rules.limits.body.time);
    time.saturating_sub(begun.elapsed()).min(rules.limits.stall)
}

/// Bytes of a body, with their place in the memory budget.
struct Collected<'a> {
    bytes: Vec<u8>,
    /// Number of bytes that came, also if they were dropped.
    size: usize,
    permit: BodyPermit,
    limits: &'a BodyLimits,
}

impl Collected<'_> {
    /// Takes memory for a body of this size, unless the body is over the limit and will be dropped.
    fn reserve(&mut self, size: usize) -> Result<(), BodyError> {
        if size > self.limits.each {
            self.bytes = Vec::new();
        } else if size > FREE_BYTES && size > self.bytes.capacity() {
            let doubled = self.bytes.capacity().saturating_mul(2).min(self.limits.each);
            let (size, length) = (size.max(doubled), self.bytes.len());
            self.permit.grow(size, self.limits).map_err(BodyError::OverBudget)?;
            self.bytes.reserve_exact(size - length);
        }
        Ok(())
    }

    /// Adds a part. A body over the limit is dropped.
    fn push(&mut self, part: &[u8]) -> Result<(), BodyError> {
        self.size = self.size.saturating_add(part.len());
        self.reserve(self.size)?;
        if self.size <= self.limits.each {
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }

    fn finish(self) -> Bytes {
        self.permit.attach(self.bytes)
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
