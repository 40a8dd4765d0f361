//! Call of a modern client as a response body. A disconnect of the client cancels the call.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use stayput_upstream::{CallError, Incoming};
use stayput_wire::{meta, sse};
use tokio::time::Sleep;

use super::{
    era::{self, KEEP_ALIVE_INTERVAL},
    follow::RunningCall,
};
use crate::reply::{self, AfterWriteSink, EventBody, MessageBody, ReplyText};

/// Call in flight, as the body of an event stream. Dropping it cancels the call.
pub(crate) struct CallStream {
    /// `None` after the call has ended.
    running: Option<RunningCall>,
    server: Arc<str>,
    first: Option<Bytes>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Ready when the gateway closes. Set for `subscriptions/listen` only: other calls end by themselves.
    closing: Option<Closing>,
    /// Takes the action of the answer. `None` if it runs when the answer is written.
    sink: Option<AfterWriteSink>,
}

type Closing = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl CallStream {
    /// Wraps a call whose first message is `first`, if one came already.
    pub(super) fn new(running: RunningCall, first: Option<Incoming>) -> Self {
        let call = &running.client_call;
        let mut closing = call.owner.app.closing.clone();
        let wait = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        let closing = era::listens(&call.method).then(|| Box::pin(wait) as _);
        let first = match first {
            Some(Incoming::Notification(text)) => Some(text),
            _ => None,
        };
        let server = call.owner.server.shared_name();
        Self { running: Some(running), server, first, timer: None, closing, sink: None }
    }

    /// Returns the final result of a `subscriptions/listen` request, after the gateway began to close.
    fn poll_closing_result(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(closing) = &mut self.closing else { return Poll::Pending };
        std::task::ready!(closing.as_mut().poll(cx));
        self.closing = None;
        // Dropping the call ends the subscription at the server.
        let running = self.running.take();
        Poll::Ready(running.map(|running| {
            let (meta, tag, id) = (meta::META, meta::SUBSCRIPTION_ID, &running.client_call.id);
            let result = format!(r#"{{"resultType":"complete","{meta}":{{"{tag}":{id}}}}}"#);
            reply::result(id, &result).into()
        }))
    }

    fn poll_sign_of_life(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(KEEP_ALIVE_INTERVAL)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }
}

impl EventBody for CallStream {
    fn server(&self) -> Option<Arc<str>> {
        Some(self.server.clone())
    }

    fn defer(&mut self, sink: AfterWriteSink) -> bool {
        self.sink = Some(sink);
        true
    }
}

impl MessageBody for CallStream {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Poll::Ready(result) = self.poll_closing_result(cx) {
            return Poll::Ready(result);
        }
        while let Some(running) = &mut self.running {
            let end = match std::task::ready!(running.call.poll_next(cx)) {
                Some(Incoming::Answer(end)) => end,
                Some(incoming) => match running.client_call.filter_message(incoming) {
                    Some(Incoming::Notification(text)) => return Poll::Ready(Some(text)),
                    _ => continue,
                },
                None => Err(CallError::Cancelled),
            };
            let done = running.client_call.ended(end);
            self.running = None;
            let Some(ReplyText { text, then, .. }) = done else { break };
            if let Some(then) = then {
                match &self.sink {
                    Some(sink) => sink(then),
                    None => then.run(),
                }
            }
            return Poll::Ready(Some(text));
        }
        Poll::Ready(None)
    }
}

impl Body for CallStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.poll_message(cx) {
            Poll::Ready(text) => {
                self.timer = None;
                text.map(|text| sse::Event::new(text).encode().into())
            }
            Poll::Pending => {
                std::task::ready!(self.poll_sign_of_life(cx));
                Some(Bytes::from_static(sse::KEEP_ALIVE))
            }
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }
}

impl fmt::Debug for CallStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallStream({:?})", self.running.as_ref().map(|it| &it.call))
    }
}
