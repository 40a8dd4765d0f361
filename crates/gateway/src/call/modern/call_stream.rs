//! Call of a modern client as a response body. A disconnect of the client cancels the call.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body, Frame};
use stayput_upstream::{Call, CallError, Incoming};
use stayput_wire::sse;
use tokio::time::Sleep;

use crate::{
    call::modern::{
        client_call::{Ended, ModernCall},
        validate,
    },
    reply::{self, EventBody, MessageBody, Reply, ReplyText},
};

/// Interval of keep-alive comments. Proxies close connections without traffic, so an answer that takes longer than
/// this becomes a stream.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Call in flight, as the body of an event stream. Dropping it cancels the call.
pub(crate) struct ModernCallStream {
    client_call: ModernCall,
    /// `None` after the call has ended.
    call: Option<Call>,
    first: Option<Bytes>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Ready when the gateway closes. Set for `subscriptions/listen` only.
    closing: Option<Closing>,
}

type Closing = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl ModernCallStream {
    pub(crate) fn new(client_call: ModernCall, call: Call) -> Self {
        let closing = client_call.closing();
        Self { client_call, call: Some(call), first: None, timer: None, closing }
    }

    /// Waits for the first message: an answer becomes a JSON response, everything else starts an event stream.
    pub(crate) async fn begin(mut self) -> Response<Reply> {
        let keep_alive = tokio::time::sleep(SIGN_OF_LIFE);
        tokio::pin!(keep_alive);
        loop {
            let incoming = match &mut self.call {
                None => Some(Incoming::Answer(Err(CallError::Cancelled))),
                Some(call) => tokio::select! {
                    biased;
                    incoming = call.next() => incoming,
                    () = &mut keep_alive => return reply::events(Reply::Call(Box::new(self))),
                },
            };
            match incoming {
                Some(Incoming::Notification(text)) => {
                    self.first = self.client_call.heard(text);
                    if self.first.is_some() {
                        return reply::events(Reply::Call(Box::new(self)));
                    }
                }
                Some(Incoming::Answer(end)) => {
                    self.call = None;
                    let Ended { done: ReplyText { text, then }, code } =
                        self.client_call.ended(end);
                    let mut response = reply::message_then(text, then);
                    *response.status_mut() = code.map(validate::status).unwrap_or_default();
                    return response;
                }
                // Dropping a server request refuses it: a modern client cannot be asked.
                Some(_) => {}
                None => self.call = None,
            }
        }
    }

    fn poll_sign_of_life(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(SIGN_OF_LIFE)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }
}

impl EventBody for ModernCallStream {
    fn server(&self) -> Option<Arc<str>> {
        Some(self.client_call.server().into())
    }
}

impl MessageBody for ModernCallStream {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            self.closing = None;
            // Dropping the call ends the subscription at the server.
            if self.call.take().is_some() {
                return Poll::Ready(Some(self.client_call.farewell()));
            }
        }
        while let Some(call) = &mut self.call {
            match std::task::ready!(call.poll_next(cx)) {
                Some(Incoming::Notification(text)) => {
                    if let Some(text) = self.client_call.heard(text) {
                        return Poll::Ready(Some(text));
                    }
                }
                Some(Incoming::Answer(end)) => {
                    self.call = None;
                    let ReplyText { text, then } = self.client_call.ended(end).done;
                    if let Some(then) = then {
                        then();
                    }
                    return Poll::Ready(Some(text));
                }
                Some(_) => {}
                None => self.call = None,
            }
        }
        Poll::Ready(None)
    }
}

impl Body for ModernCallStream {
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

impl fmt::Debug for ModernCallStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModernCallStream({:?})", self.call)
    }
}
