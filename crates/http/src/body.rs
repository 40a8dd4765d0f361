//! Body of a response.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::connect::CaptureConnection;
use tokio::time::{Instant, timeout_at};

use super::{
    HttpError, Phase, Target,
    error::reasons,
    plain::{MAX_RESERVED, Reader},
};
use crate::Delivery;

/// Number of pieces that a reader gets without a wait. After that its task lets others run, so that a server that
/// never stops sending keeps neither the thread nor a call beyond its deadline.
const MAX_UNBROKEN: u32 = 16;

/// Body of a response, read chunk by chunk as it comes. Dropped before its end, it closes its connection, which
/// tells the server that the caller stopped reading.
pub struct Body {
    source: Source,
    from: Target,
    idle: Duration,
    /// Deadline of the next chunk. It is set by the first wait for that chunk and not when the last chunk came:
    /// a reader may be slow. A wait that is cancelled and repeated keeps its deadline.
    deadline: Option<Instant>,
    /// Number of pieces that were read since the last wait.
    unbroken: u32,
}

/// Client that reads the body.
pub(super) enum Source {
    Plain(Reader),
    Hyper(Incoming, CaptureConnection),
}

impl Source {
    /// Returns the least number of bytes that are still to come.
    fn announced(&self) -> usize {
        let announced = match self {
            Self::Plain(reader) => reader.announced(),
            Self::Hyper(incoming, _) => incoming.size_hint().lower(),
        };
        usize::try_from(announced).unwrap_or(usize::MAX)
    }

    /// Returns the next piece, or `None` at the end. The error is a message.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, String>> {
        let incoming = match self {
            Self::Plain(reader) => return reader.poll_piece(cx).map_err(|error| error.to_string()),
            Self::Hyper(incoming, _) => incoming,
        };
        loop {
            let frame = match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                Some(frame) => frame.map_err(|error| reasons(&error))?,
                None => return Poll::Ready(Ok(None)),
            };
            // Trailers have no meaning in MCP.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    /// Appends the next piece to `all`. Returns whether there was one.
    fn poll_into(
        &mut self,
        all: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, String>> {
        if let Self::Plain(reader) = self {
            return reader.poll_into(all, cx).map_err(|error| error.to_string());
        }
        let piece = ready!(self.poll_piece(cx))?;
        if let Some(piece) = &piece {
            all.extend_from_slice(piece);
        }
        Poll::Ready(Ok(piece.is_some()))
    }
}

impl Body {
    pub(super) fn new(source: Source, from: Target, idle: Duration) -> Self {
        Self { source, from, idle, deadline: None, unbroken: 0 }
    }

    /// Returns the next chunk, or `None` at the end. It is cancel safe. After an error the body is over, and
    /// incomplete.
    ///
    /// # Errors
    /// If the connection breaks, or is silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        self.in_time(|source, cx| source.poll_piece(cx)).await
    }

    /// Polls for the next chunk, without a time limit; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, HttpError>> {
        let failed = |reason: String| HttpError::broken(Delivery::Unknown, &self.from, &reason);
        self.source.poll_piece(cx).map_err(failed)
    }

    async fn in_time<T>(
        &mut self,
        mut poll: impl FnMut(&mut Source, &mut Context<'_>) -> Poll<Result<T, String>>,
    ) -> Result<T, HttpError> {
        let deadline = match self.deadline {
            Some(deadline) => Some(deadline),
            // A deadline that cannot be represented means no limit.
            None => Instant::now().checked_add(self.idle),
        };
        self.deadline = deadline;
        let (source, unbroken) = (&mut self.source, &mut self.unbroken);
        let outcome = poll_fn(|cx| {
            if *unbroken == MAX_UNBROKEN {
                *unbroken = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let polled = poll(source, cx);
            *unbroken = if polled.is_ready() { *unbroken + 1 } else { 0 };
            polled
        });
        let outcome = match deadline {
            Some(deadline) => timeout_at(deadline, outcome).await.map_err(|_| {
                HttpError::timed_out(Phase::Idle, Delivery::Unknown, &self.from, self.idle)
            })?,
            None => outcome.await,
        };
        self.deadline = None;
        outcome.map_err(|reason| HttpError::broken(Delivery::Unknown, &self.from, &reason))
    }

    /// Returns the whole body, if all of it came and it has at most `limit` bytes.
    #[must_use]
    pub fn whole(&mut self, limit: usize) -> Option<Bytes> {
        match &mut self.source {
            Source::Plain(reader) if reader.announced() <= limit as u64 => reader.whole(),
            _ => None,
        }
    }

    /// Closes the connection, even if the body was read to its end: the response on it did not belong to the
    /// request, so nothing else that comes on it can be trusted.
    pub fn discard(&mut self) {
        match &mut self.source {
            Source::Plain(reader) => reader.discard(),
            Source::Hyper(_, connection) => {
                if let Some(connection) = &*connection.connection_metadata() {
                    connection.poison();
                }
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// If it has more than `limit` bytes, which is known at once when the server announces its length, and as
    /// [`Body::chunk`].
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, HttpError> {
        self.read_all(limit).await
    }

    /// Reads the whole body, for a reader that may [discard](Body::discard) it after that.
    ///
    /// # Errors
    /// As [`Body::collect`].
    pub async fn read_all(&mut self, limit: usize) -> Result<Bytes, HttpError> {
        let announced = self.source.announced();
        if announced > limit {
            return Err(HttpError::too_large(limit, &self.from));
        }
        if let Source::Plain(reader) = &mut self.source
            && let Some(whole) = reader.whole()
        {
            return Ok(whole);
        }
        // Boxed, because the future of every call would otherwise be as large as this one, which is rarely
        // needed.
        Box::pin(self.collect_rest(announced, limit)).await
    }

    async fn collect_rest(&mut self, announced: usize, limit: usize) -> Result<Bytes, HttpError> {
        let mut all = BytesMut::with_capacity(announced.min(MAX_RESERVED));
        while self.in_time(|source, cx| source.poll_into(&mut all, cx)).await? {
            if all.len() > limit {
                return Err(HttpError::too_large(limit, &self.from));
            }
        }
        Ok(all.freeze())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("from", &self.from).finish_non_exhaustive()
    }
}
