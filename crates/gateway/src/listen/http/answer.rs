//! Body of a response, as hyper takes it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use hyper::body::{Body, Frame, SizeHint};
use stayput_wire::header as mcp;

use super::state::ConnState;
use crate::reply::Reply;

/// Body of a response. It ends when the client loses access. Dropping it ends the request: hyper drops it when the
/// last part is in its buffer, or with the connection.
pub(super) struct Answer {
    reply: Reply,
    state: Arc<ConnState>,
}

impl Answer {
    /// Prepares a response for hyper. `keeps` is false if the connection has to close after it.
    pub(super) fn prepare(
        mut response: Response<Reply>,
        state: Arc<ConnState>,
        keeps: bool,
    ) -> Response<Self> {
        let (is_message, headers) = (
            matches!(response.body(), Reply::Whole(text, _) if !text.is_empty()),
            response.headers_mut(),
        );
        if is_message && !headers.contains_key(header::CONTENT_TYPE) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(mcp::JSON));
        }
        if !keeps {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(|reply| {
            let reply = match reply {
                Reply::Guarded(guarded) => {
                    state.watch(guarded.access);
                    guarded.stream
                }
                reply => reply,
            };
            Self { reply, state }
        })
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let is_stream = !matches!(this.reply, Reply::Whole(..));
        if is_stream && this.state.is_lost() {
            return Poll::Ready(None);
        }
        Pin::new(&mut this.reply).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.state.end_request();
    }
}
