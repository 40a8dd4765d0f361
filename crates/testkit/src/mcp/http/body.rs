//! Body of an answer: complete, or in pieces.

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
    /// Breaks the connection.
    Cut,
}

/// Runs a function when the body is dropped: after its end, or after the client disconnected.
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

    /// Returns a body of these pieces that never ends.
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
                    // Delayed, so that the earlier pieces are written first.
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
