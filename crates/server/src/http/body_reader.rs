//! Reader of a request body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;

/// Status and text of a refused request.
pub(crate) type Rejection = (StatusCode, &'static str);

/// Bytes read so far. A body nearly always arrives as one chunk, which is not copied.
#[derive(Debug, Default)]
pub(crate) struct BodyReader {
    first: Bytes,
    rest: BytesMut,
}

impl BodyReader {
    /// Reads on until the body is complete.
    pub(crate) fn poll_read<B: Body + Unpin>(
        &mut self,
        body: &mut B,
        limit: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Rejection>> {
        const TOO_LARGE: Rejection =
            (StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large: the body has too many bytes");
        const UNREADABLE: Rejection =
            (StatusCode::BAD_REQUEST, "Bad Request: the body could not be read");
        if body.size_hint().lower() > limit as u64 {
            return Poll::Ready(Err(TOO_LARGE));
        }
        while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) {
            let Ok(frame) = frame else { return Poll::Ready(Err(UNREADABLE)) };
            let Ok(mut chunk) = frame.into_data() else { continue };
            if chunk.remaining() > limit - self.first.len().max(self.rest.len()) {
                return Poll::Ready(Err(TOO_LARGE));
            }
            if self.first.is_empty() {
                self.first = chunk.copy_to_bytes(chunk.remaining());
            } else {
                if self.rest.is_empty() {
                    self.rest.extend_from_slice(&self.first);
                }
                self.rest.put(chunk);
            }
            // Most bodies know their end, so no further poll is needed.
            if body.is_end_stream() {
                break;
            }
        }
        let Self { first, rest } = std::mem::take(self);
        Poll::Ready(Ok(if rest.is_empty() { first } else { rest.freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    async fn read_body<B: Body + Unpin>(mut body: B, limit: usize) -> Result<Bytes, Rejection> {
        let mut body_reader = BodyReader::default();
        poll_fn(|cx| body_reader.poll_read(&mut body, limit, cx)).await
    }

    /// R060: a chunked body is joined, and a body over the limit is refused.
    #[tokio::test]
    async fn chunked_body_is_joined_up_to_the_limit() {
        let body_reader = |texts: &[&'static str]| {
            let frame = |text: &&'static str| Ok::<_, Infallible>(Frame::data(Bytes::from(*text)));
            StreamBody::new(futures_util::stream::iter(texts.iter().map(frame).collect::<Vec<_>>()))
        };
        for texts in [&["abc"][..], &["a", "b", "c"], &["", "ab", "", "c"]] {
            assert_eq!(read_body(body_reader(texts), 3).await.unwrap(), "abc", "{texts:?}");
        }
        assert_eq!(read_body(body_reader(&[]), 3).await.unwrap(), "");
        for texts in [&["abcd"][..], &["ab", "cd"], &["a", "b", "c", "d"]] {
            let (status, _) = read_body(body_reader(texts), 3).await.unwrap_err();
            assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{texts:?}");
        }
        let (status, _) = read_body(Full::<Bytes>::from("abcd"), 3).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
