//! What comes after the head of an answer.

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

use super::{HttpError, Phase, Target, error::reasons, plain::Reader};
use crate::Delivery;

/// How much is reserved before all of it has come: a length is only a claim.
pub(super) const RESERVED: usize = 1 << 20;

/// The body of an answer, chunk by chunk as it comes. Dropped before its end, it closes its
/// connection, which is how a server learns that nobody listens any more.
pub struct Body {
    source: Source,
    from: Target,
    idle: Duration,
    /// Until when the next chunk must be there. It begins with the first wait for it and not when the
    /// last one came: a reader may be slow. A wait that is given up and begun again is still the same.
    deadline: Option<Instant>,
}

/// Who reads it.
pub(super) enum Source {
    Plain(Reader),
    Hyper(Incoming, CaptureConnection),
}

impl Source {
    /// How many bytes are to come at least.
    fn announced(&self) -> usize {
        let announced = match self {
            Self::Plain(reader) => reader.announced(),
            Self::Hyper(incoming, _) => incoming.size_hint().lower(),
        };
        usize::try_from(announced).unwrap_or(usize::MAX)
    }

    /// The next piece, or nothing at the end; or in words why not.
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
            // Trailers say nothing that MCP knows.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    /// The same, behind what is in `all`. Says whether there was anything.
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
        Self { source, from, idle, deadline: None }
    }

    /// The next chunk, or nothing at the end. Cancelled, it loses nothing. After an error it is over, and
    /// not whole.
    ///
    /// # Errors
    /// If the connection breaks, or is silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        self.in_time(|source, cx| source.poll_piece(cx)).await
    }

    async fn in_time<T>(
        &mut self,
        mut poll: impl FnMut(&mut Source, &mut Context<'_>) -> Poll<Result<T, String>>,
    ) -> Result<T, HttpError> {
        let deadline = match self.deadline {
            Some(deadline) => Some(deadline),
            // Too far away to be a time: no limit.
            None => Instant::now().checked_add(self.idle),
        };
        self.deadline = deadline;
        let source = &mut self.source;
        let outcome = poll_fn(|cx| poll(source, cx));
        let outcome = match deadline {
            Some(deadline) => timeout_at(deadline, outcome).await.map_err(|_| {
                HttpError::late(Phase::Idle, Delivery::Unknown, &self.from, self.idle)
            })?,
            None => outcome.await,
        };
        self.deadline = None;
        outcome.map_err(|reason| HttpError::broken(Delivery::Unknown, &self.from, &reason))
    }

    /// All of it, if all of it came and is not more than `limit`.
    pub(crate) fn whole(&mut self, limit: usize) -> Option<Bytes> {
        match &mut self.source {
            Source::Plain(reader) if reader.announced() <= limit as u64 => reader.whole(),
            _ => None,
        }
    }

    /// Closes the connection, be it that the body was read to its end: what came on it is not the answer
    /// to what was asked, so nothing else that comes on it can be trusted.
    pub(crate) fn discard(&mut self) {
        match &mut self.source {
            Source::Plain(reader) => reader.discard(),
            Source::Hyper(_, connection) => {
                if let Some(connection) = &*connection.connection_metadata() {
                    connection.poison();
                }
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// If it has more than `limit` bytes, which is known at once when the server says so, and as
    /// [`Body::chunk`].
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, HttpError> {
        self.read_all(limit).await
    }

    /// The same for a reader who may [discard](Body::discard) it after that.
    pub(crate) async fn read_all(&mut self, limit: usize) -> Result<Bytes, HttpError> {
        let announced = self.source.announced();
        if announced > limit {
            return Err(HttpError::too_large(limit, &self.from));
        }
        if let Source::Plain(reader) = &mut self.source
            && let Some(whole) = reader.whole()
        {
            return Ok(whole);
        }
        // In a box, as all that a call mostly does not need: every call would have to be as large.
        Box::pin(self.collect_rest(announced, limit)).await
    }

    async fn collect_rest(&mut self, announced: usize, limit: usize) -> Result<Bytes, HttpError> {
        let mut all = BytesMut::with_capacity(announced.min(RESERVED));
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
