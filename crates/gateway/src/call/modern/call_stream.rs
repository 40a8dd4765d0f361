//! A call that a client waits for. To go away is to cancel it.

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

/// How long nothing is written before a sign of life. Whoever stands between gives up on silence; so an
/// answer that takes that long becomes a stream.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// A call and what came of it so far: the answer itself, or the body of a stream. Dropped, it cancels the
/// call.
pub(crate) struct ModernCallStream {
    errand: ModernCall,
    /// Until it has ended.
    call: Option<Call>,
    first: Option<Bytes>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Ready when the gateway closes, for who listens until then.
    closing: Option<Closing>,
}

type Closing = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl ModernCallStream {
    pub(crate) fn new(errand: ModernCall, call: Call) -> Self {
        let closing = errand.closing();
        Self { errand, call: Some(call), first: None, timer: None, closing }
    }

    /// Waits for what comes first: the answer goes out alone, everything else begins a stream.
    pub(crate) async fn begin(mut self) -> Response<Reply> {
        let patience = tokio::time::sleep(SIGN_OF_LIFE);
        tokio::pin!(patience);
        loop {
            let incoming = match &mut self.call {
                None => Some(Incoming::Answer(Err(CallError::Cancelled))),
                Some(call) => tokio::select! {
                    biased;
                    incoming = call.next() => incoming,
                    () = &mut patience => return reply::events(Reply::Call(Box::new(self))),
                },
            };
            match incoming {
                Some(Incoming::Notification(text)) => {
                    self.first = self.errand.heard(text);
                    if self.first.is_some() {
                        return reply::events(Reply::Call(Box::new(self)));
                    }
                }
                Some(Incoming::Answer(end)) => {
                    self.call = None;
                    let Ended { done: ReplyText { text, then }, code } = self.errand.ended(end);
                    let mut response = reply::message_then(text, then);
                    *response.status_mut() = code.map(validate::status).unwrap_or_default();
                    return response;
                }
                // Dropped, a question is refused: nobody can be asked.
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
        Some(self.errand.server().into())
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
            // With the call the server is let go of.
            if self.call.take().is_some() {
                return Poll::Ready(Some(self.errand.farewell()));
            }
        }
        while let Some(call) = &mut self.call {
            match std::task::ready!(call.poll_next(cx)) {
                Some(Incoming::Notification(text)) => {
                    if let Some(text) = self.errand.heard(text) {
                        return Poll::Ready(Some(text));
                    }
                }
                Some(Incoming::Answer(end)) => {
                    self.call = None;
                    let ReplyText { text, then } = self.errand.ended(end).done;
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
