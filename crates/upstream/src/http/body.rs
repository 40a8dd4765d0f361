//! What comes after the head of an answer.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use super::{HttpError, Phase, Target, error::reasons};
use crate::Delivery;

/// How much is reserved before all of it has come: a length is only a claim.
const RESERVED: usize = 1 << 20;

/// The body of an answer, chunk by chunk as it comes. Dropped before its end, it closes its
/// connection, which is how a server learns that nobody listens any more.
pub struct Body {
    incoming: Incoming,
    from: Target,
    idle: Duration,
    /// Until when the next chunk must be there. It begins with the first wait for it and not when the
    /// last one came: a reader may be slow. A wait that is given up and begun again is still the same.
    deadline: Option<Instant>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, from: Target, idle: Duration) -> Self {
        Self { incoming, from, idle, deadline: None }
    }

    /// The next chunk, or nothing at the end. Cancelled, it loses nothing. After an error it is over, and
    /// not whole.
    ///
    /// # Errors
    /// If the connection breaks, or is silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        while let Some(frame) = self.frame().await? {
            // Trailers say nothing that MCP knows.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    async fn frame(&mut self) -> Result<Option<hyper::body::Frame<Bytes>>, HttpError> {
        let deadline = match self.deadline {
            Some(deadline) => Some(deadline),
            // Too far away to be a time: no limit.
            None => Instant::now().checked_add(self.idle),
        };
        self.deadline = deadline;
        let frame = match deadline {
            Some(deadline) => timeout_at(deadline, self.incoming.frame()).await.map_err(|_| {
                HttpError::late(Phase::Idle, Delivery::Unknown, &self.from, self.idle)
            })?,
            None => self.incoming.frame().await,
        };
        self.deadline = None;
        frame
            .transpose()
            .map_err(|error| HttpError::broken(Delivery::Unknown, &self.from, &reasons(&error)))
    }

    /// All of it.
    ///
    /// # Errors
    /// If it has more than `limit` bytes, which is known at once when the server says so, and as
    /// [`Body::chunk`].
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, HttpError> {
        let announced = usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > limit {
            return Err(HttpError::too_large(limit, &self.from));
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(HttpError::too_large(limit, &self.from));
        }
        let Some(second) = self.chunk().await? else {
            // As most answers are: in one piece, and not copied.
            return Ok(first);
        };
        let mut all = BytesMut::with_capacity(announced.min(RESERVED).max(first.len()));
        all.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            if chunk.len() > limit - all.len() {
                return Err(HttpError::too_large(limit, &self.from));
            }
            all.extend_from_slice(&chunk);
            next = self.chunk().await?;
        }
        Ok(all.freeze())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("from", &self.from).finish_non_exhaustive()
    }
}
