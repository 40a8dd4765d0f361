//! The body of a request, piece by piece.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;

/// Why a request is not passed on.
pub(crate) type Refusal = (StatusCode, &'static str);

/// What was read of a body. It nearly always comes in one piece, and then nothing is copied.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: Bytes,
    more: BytesMut,
}

impl Pieces {
    /// Reads on; gives all of it in the end.
    pub(crate) fn poll_whole<B: Body + Unpin>(
        &mut self,
        body: &mut B,
        limit: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Refusal>> {
        const LARGE: Refusal =
            (StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large: the body has too many bytes");
        const BROKEN: Refusal =
            (StatusCode::BAD_REQUEST, "Bad Request: the body could not be read");
        if body.size_hint().lower() > limit as u64 {
            return Poll::Ready(Err(LARGE));
        }
        while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) {
            let Ok(frame) = frame else { return Poll::Ready(Err(BROKEN)) };
            let Ok(mut piece) = frame.into_data() else { continue };
            if piece.remaining() > limit - self.first.len().max(self.more.len()) {
                return Poll::Ready(Err(LARGE));
            }
            if self.first.is_empty() {
                self.first = piece.copy_to_bytes(piece.remaining());
            } else {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&self.first);
                }
                self.more.put(piece);
            }
            // Most bodies know, and then nothing is waited for.
            if body.is_end_stream() {
                break;
            }
        }
        let Self { first, more } = std::mem::take(self);
        Poll::Ready(Ok(if more.is_empty() { first } else { more.freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    async fn whole<B: Body + Unpin>(mut body: B, limit: usize) -> Result<Bytes, Refusal> {
        let mut pieces = Pieces::default();
        poll_fn(|cx| pieces.poll_whole(&mut body, limit, cx)).await
    }

    /// R060: a body is read whole, however it comes, and no further than it may be long.
    #[tokio::test]
    async fn a_body_in_pieces_is_whole() {
        let pieces = |texts: &[&'static str]| {
            let frame = |text: &&'static str| Ok::<_, Infallible>(Frame::data(Bytes::from(*text)));
            StreamBody::new(futures_util::stream::iter(texts.iter().map(frame).collect::<Vec<_>>()))
        };
        for texts in [&["abc"][..], &["a", "b", "c"], &["", "ab", "", "c"]] {
            assert_eq!(whole(pieces(texts), 3).await.unwrap(), "abc", "{texts:?}");
        }
        assert_eq!(whole(pieces(&[]), 3).await.unwrap(), "");
        for texts in [&["abcd"][..], &["ab", "cd"], &["a", "b", "c", "d"]] {
            let (status, _) = whole(pieces(texts), 3).await.unwrap_err();
            assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{texts:?}");
        }
        let (status, _) = whole(Full::<Bytes>::from("abcd"), 3).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
