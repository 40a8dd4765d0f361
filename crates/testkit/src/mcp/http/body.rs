//! The body of an answer: all at once, or piece by piece.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

pub(crate) enum Body {
    Whole(Option<Bytes>),
    Pieces { pieces: mpsc::UnboundedReceiver<Piece>, cut: bool, _gone: OnGone },
}

pub(crate) enum Piece {
    Bytes(Bytes),
    /// The connection breaks here.
    Cut,
}

/// Does something when the body is dropped: it was sent to its end, or the client went away.
pub(crate) struct OnGone(Option<Box<dyn FnOnce() + Send>>);

impl OnGone {
    pub(crate) fn new(what: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(what)))
    }

    pub(crate) fn nothing() -> Self {
        Self(None)
    }
}

impl Drop for OnGone {
    fn drop(&mut self) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// These pieces, and then nothing for as long as the client stays.
    pub(crate) fn endless(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        for piece in pieces {
            let _ = send.send(piece);
        }
        Self::pieces(receive, OnGone::new(move || drop(send)))
    }

    pub(crate) fn pieces(pieces: mpsc::UnboundedReceiver<Piece>, gone: OnGone) -> Self {
        Self::Pieces { pieces, cut: false, _gone: gone }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces { cut: true, .. } => {
                Poll::Ready(Some(Err(io::Error::other("cut, as the script says"))))
            }
            Self::Pieces { pieces, cut, .. } => match ready!(pieces.poll_recv(context)) {
                Some(Piece::Bytes(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Piece::Cut) => {
                    // Not at once: what was said before is first to be written.
                    *cut = true;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Self::Pieces { .. } => SizeHint::default(),
        }
    }
}
