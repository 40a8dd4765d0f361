//! Body of a response.

use std::{
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

use super::{
    closed_early,
    conn::Conn,
    framing::{Framing, Piece},
    idle::IdlePool,
};
use crate::Target;

/// Most bytes that are reserved before the body has come: an announced length is only a claim.
pub(crate) const MAX_RESERVED: usize = 1 << 20;

/// Body of a response. Dropped after its end, it keeps its connection for another request, unless it was
/// [discarded](Reader::discard); dropped before its end, it closes the connection.
pub(crate) enum Reader {
    /// All of the body came with the head, as it mostly does.
    Whole(Bytes, Option<SpentConn>),
    /// More of the body is to come.
    IncomingBody(Box<IncomingBody>),
    /// The body was read.
    Over(Option<SpentConn>),
}

/// Connection whose response was read to its end. Dropped, it is kept for the next request.
pub(crate) struct SpentConn {
    /// `None` if the connection is to be closed.
    tcp: Option<TcpStream>,
    pool: Arc<IdlePool>,
    to: Target,
}

impl Drop for SpentConn {
    fn drop(&mut self) {
        if let Some(tcp) = self.tcp.take() {
            self.pool.keep(self.to.origin(), tcp);
        }
    }
}

/// Body that is still being received.
pub(crate) struct IncomingBody {
    conn: Conn,
    framing: Framing,
    /// Whether the connection can be used again.
    keep: bool,
    pool: Arc<IdlePool>,
    to: Target,
}

impl Reader {
    pub(super) fn new(coming: IncomingBody) -> Self {
        let IncomingBody { conn, framing, .. } = &coming;
        if let Framing::Length(length) = framing
            && conn.rest.len() as u64 == *length
        {
            let mut coming = coming;
            let body = std::mem::take(&mut coming.conn.rest).freeze();
            return Self::Whole(body, coming.finish());
        }
        Self::IncomingBody(Box::new(coming))
    }

    /// Returns the whole body, if it is there.
    pub(crate) fn whole(&mut self) -> Option<Bytes> {
        let Self::Whole(body, spent) = self else { return None };
        let (body, spent) = (std::mem::take(body), spent.take());
        *self = Self::Over(spent);
        Some(body)
    }

    /// Closes the connection, even if the body was read to its end.
    pub(crate) fn discard(&mut self) {
        if let Self::Whole(_, Some(spent)) | Self::Over(Some(spent)) = self {
            spent.tcp = None;
        }
        *self = Self::Over(None);
    }

    /// Returns the number of bytes that are still to come, or 0 if it was not announced.
    pub(crate) fn announced(&self) -> u64 {
        match self {
            Self::Whole(body, _) => body.len() as u64,
            Self::IncomingBody(coming) => match coming.framing {
                Framing::Length(left) => left,
                Framing::Chunked(_) | Framing::Close => 0,
            },
            Self::Over(_) => 0,
        }
    }

    /// Returns the next piece as it comes, or `None` at the end.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(body) = self.whole() {
            return Poll::Ready(Ok(Some(body).filter(|body| !body.is_empty())));
        }
        let Self::IncomingBody(coming) = self else { return Poll::Ready(Ok(None)) };
        let piece = std::task::ready!(coming.poll_piece(cx));
        if !matches!(piece, Ok(Some(_))) {
            self.end(piece.is_ok());
        }
        Poll::Ready(piece)
    }

    /// Appends the next piece to `all`. Returns whether there was one.
    pub(crate) fn poll_into(
        &mut self,
        all: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if let Self::IncomingBody(coming) = self
            && coming.conn.rest.is_empty()
            && let Framing::Length(left @ 1..) = &mut coming.framing
        {
            let read = std::task::ready!(coming.conn.poll_into(all, *left, cx));
            return Poll::Ready(match read {
                Ok(0) => Err(closed_early()),
                Ok(read) => {
                    *left -= read as u64;
                    Ok(true)
                }
                Err(error) => Err(error),
            });
        }
        let piece = std::task::ready!(self.poll_piece(cx))?;
        if let Some(piece) = &piece {
            all.extend_from_slice(piece);
        }
        Poll::Ready(Ok(piece.is_some()))
    }

    fn end(&mut self, whole: bool) {
        if let Self::IncomingBody(coming) = std::mem::replace(self, Self::Over(None))
            && whole
        {
            *self = Self::Over(coming.finish());
        }
    }
}

impl IncomingBody {
    pub(super) fn new(
        conn: Conn,
        framing: Framing,
        keep: bool,
        pool: &Arc<IdlePool>,
        to: &Target,
    ) -> Self {
        Self { conn, framing, keep, pool: pool.clone(), to: to.clone() }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match self.framing.next(&mut self.conn.rest)? {
                Piece::Data(data) => return Poll::Ready(Ok(Some(data))),
                Piece::End => return Poll::Ready(Ok(None)),
                Piece::More => {}
            }
            if !std::task::ready!(self.conn.poll_more(cx))? {
                let whole = self.framing == Framing::Close;
                return Poll::Ready(if whole { Ok(None) } else { Err(closed_early()) });
            }
        }
    }

    /// Returns the connection after the end of the body, if it can be used again: not if unrequested bytes came
    /// after the response.
    fn finish(self) -> Option<SpentConn> {
        let usable = self.keep && self.conn.is_written() && self.conn.rest.is_empty();
        let Self { conn, pool, to, .. } = self;
        usable.then(|| SpentConn { tcp: Some(conn.tcp), pool, to })
    }
}

impl Conn {
    /// Reads once, at most `left` bytes, directly into `all`.
    fn poll_into(
        &mut self,
        all: &mut BytesMut,
        left: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if all.len() == all.capacity() {
            all.reserve(left.min(MAX_RESERVED));
        }
        let mut room = all.limit(left);
        // A read that is dropped while pending has read nothing.
        pin!(self.tcp.read_buf(&mut room)).poll(cx)
    }
}
