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
    ended,
    framing::{Framing, Piece},
    line::Line,
    shelf::Shelves,
};
use crate::http::{Target, body::RESERVED};

/// Body of a response. Dropped after its end, it keeps its connection for another request, unless it was
/// [discarded](Reader::discard); dropped before its end, it closes the connection.
pub(in crate::http) enum Reader {
    /// All of the body came with the head, as it mostly does.
    Whole(Bytes, Option<Spent>),
    /// More of the body is to come.
    Coming(Box<Coming>),
    /// The body was read.
    Over(Option<Spent>),
}

/// Connection whose response was read to its end. Dropped, it is kept for the next request.
pub(in crate::http) struct Spent {
    /// `None` if the connection is to be closed.
    tcp: Option<TcpStream>,
    shelves: Arc<Shelves>,
    to: Target,
}

impl Drop for Spent {
    fn drop(&mut self) {
        if let Some(tcp) = self.tcp.take() {
            self.shelves.keep(self.to.origin(), tcp);
        }
    }
}

/// Body that is still being received.
pub(in crate::http) struct Coming {
    line: Line,
    framing: Framing,
    /// Whether the connection can be used again.
    keep: bool,
    shelves: Arc<Shelves>,
    to: Target,
}

impl Reader {
    pub(super) fn new(coming: Coming) -> Self {
        let Coming { line, framing, .. } = &coming;
        if let Framing::Length(length) = framing
            && line.rest.len() as u64 == *length
        {
            let mut coming = coming;
            let body = std::mem::take(&mut coming.line.rest).freeze();
            return Self::Whole(body, coming.finish());
        }
        Self::Coming(Box::new(coming))
    }

    /// Returns the whole body, if it is there.
    pub(in crate::http) fn whole(&mut self) -> Option<Bytes> {
        let Self::Whole(body, spent) = self else { return None };
        let (body, spent) = (std::mem::take(body), spent.take());
        *self = Self::Over(spent);
        Some(body)
    }

    /// Closes the connection, even if the body was read to its end.
    pub(in crate::http) fn discard(&mut self) {
        if let Self::Whole(_, Some(spent)) | Self::Over(Some(spent)) = self {
            spent.tcp = None;
        }
        *self = Self::Over(None);
    }

    /// Returns the number of bytes that are still to come, or 0 if it was not announced.
    pub(in crate::http) fn announced(&self) -> u64 {
        match self {
            Self::Whole(body, _) => body.len() as u64,
            Self::Coming(coming) => match coming.framing {
                Framing::Length(left) => left,
                Framing::Chunked(_) | Framing::Close => 0,
            },
            Self::Over(_) => 0,
        }
    }

    /// Returns the next piece as it comes, or `None` at the end.
    pub(in crate::http) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(body) = self.whole() {
            return Poll::Ready(Ok(Some(body).filter(|body| !body.is_empty())));
        }
        let Self::Coming(coming) = self else { return Poll::Ready(Ok(None)) };
        let piece = std::task::ready!(coming.poll_piece(cx));
        if !matches!(piece, Ok(Some(_))) {
            self.end(piece.is_ok());
        }
        Poll::Ready(piece)
    }

    /// Appends the next piece to `all`. Returns whether there was one.
    pub(in crate::http) fn poll_into(
        &mut self,
        all: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if let Self::Coming(coming) = self
            && coming.line.rest.is_empty()
            && let Framing::Length(left @ 1..) = &mut coming.framing
        {
            let read = std::task::ready!(coming.line.poll_into(all, *left, cx));
            return Poll::Ready(match read {
                Ok(0) => Err(ended()),
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
        if let Self::Coming(coming) = std::mem::replace(self, Self::Over(None))
            && whole
        {
            *self = Self::Over(coming.finish());
        }
    }
}

impl Coming {
    pub(super) fn new(
        line: Line,
        framing: Framing,
        keep: bool,
        shelves: &Arc<Shelves>,
        to: &Target,
    ) -> Self {
        Self { line, framing, keep, shelves: shelves.clone(), to: to.clone() }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match self.framing.next(&mut self.line.rest)? {
                Piece::Data(data) => return Poll::Ready(Ok(Some(data))),
                Piece::End => return Poll::Ready(Ok(None)),
                Piece::More => {}
            }
            if !std::task::ready!(self.line.poll_more(cx))? {
                let whole = self.framing == Framing::Close;
                return Poll::Ready(if whole { Ok(None) } else { Err(ended()) });
            }
        }
    }

    /// Returns the connection after the end of the body, if it can be used again: not if unrequested bytes came
    /// after the response.
    fn finish(self) -> Option<Spent> {
        let usable = self.keep && self.line.is_written() && self.line.rest.is_empty();
        let Self { line, shelves, to, .. } = self;
        usable.then(|| Spent { tcp: Some(line.tcp), shelves, to })
    }
}

impl Line {
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
            all.reserve(left.min(RESERVED));
        }
        let mut room = all.limit(left);
        // A read that is dropped while pending has read nothing.
        pin!(self.tcp.read_buf(&mut room)).poll(cx)
    }
}
