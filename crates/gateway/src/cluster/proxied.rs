//! Event stream of another replica, passed on to the client as it comes.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use stayput_wire::{Message, MessageKind};

use super::{forward::unknown_text, receipts::Receipt};
use crate::reply::{AfterWriteSink, EventBody};

/// Event stream of another replica. If it breaks off, its last event is an error for the request, so that the client does
/// not wait for an answer that never comes.
pub(super) struct ProxiedStream {
    body: Option<stayput_http::Body>,
    died: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Last event if the stream breaks off.
    last: Option<Bytes>,
    /// Receipt that the other replica waits for.
    receipt: Option<Receipt>,
    /// The one server that writes to the stream.
    server: Option<Arc<str>>,
}

impl ProxiedStream {
    /// Wraps the answer to `request`, which is empty for a GET.
    pub(super) fn new(
        body: stayput_http::Body,
        died: impl Future<Output = ()> + Send + 'static,
        request: &[u8],
        (receipt, server): (Option<Receipt>, Option<Arc<str>>),
    ) -> Self {
        let is_request = Message::parse(request)
            .is_ok_and(|message| matches!(message.kind(), MessageKind::Request { .. }));
        // The line breaks end an event that was cut off.
        let last = is_request.then(|| {
            Bytes::from(format!("\n\nevent: message\ndata: {}\n\n", unknown_text(request)))
        });
        Self { body: Some(body), died: Box::pin(died), last, receipt, server }
    }
}

impl EventBody for ProxiedStream {
    fn server(&self) -> Option<Arc<str>> {
        self.server.clone()
    }

    fn defer(&mut self, _sink: AfterWriteSink) -> bool {
        false
    }
}

impl Body for ProxiedStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        match body.poll_chunk(cx) {
            Poll::Ready(Ok(Some(chunk))) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
            Poll::Ready(Ok(None)) => {
                this.body = None;
                // All chunks before the end were taken for writing.
                if let Some(receipt) = this.receipt.take() {
                    receipt.answer_was_written();
                }
                return Poll::Ready(None);
            }
            Poll::Ready(Err(error)) => {
                tracing::warn!("the stream of another replica broke off: {error}");
            }
            Poll::Pending => {
                if this.died.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        }
        this.body = None;
        Poll::Ready(this.last.take().map(|last| Ok(Frame::data(last))))
    }
}
