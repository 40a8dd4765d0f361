//! Waits for a call in flight, until it has an answer or becomes a stream.

use std::{future::poll_fn, pin::pin};

use stayput_upstream::{Answer, Call, CallError, Incoming};
use tokio::time::Instant;

use super::{
    CallOutcome, ClientCall, call_stream::CallStream, detached::detach, era::OnDisconnect,
};
use crate::{identify::RequestContext, reply::SocketTimer};

/// Call that was sent.
pub(super) struct RunningCall {
    pub(super) client_call: ClientCall,
    pub(super) call: Call,
}

impl RunningCall {
    /// Sends the request again after a loss if that is allowed. Returns whether a second attempt is in flight.
    pub(super) async fn retry(&mut self, end: &Result<Answer, CallError>) -> bool {
        let Err(error) = end else { return false };
        let Some(call) = Box::pin(self.client_call.once_more(error)).await else { return false };
        self.call = call;
        true
    }
}

/// Future that waits for a call. If it is dropped before the call ends, the client has disconnected: a legacy call
/// continues in the background, because a disconnect is not a cancellation; a modern call is cancelled.
pub(super) struct CallFuture(Option<RunningCall>);

impl CallFuture {
    pub(super) fn new(client_call: ClientCall, call: Call) -> Self {
        Self(Some(RunningCall { client_call, call }))
    }

    /// Waits for the answer. If the client reads streams, the call becomes one with its first message that is not the
    /// answer, or when the answer takes long.
    pub(super) async fn wait(mut self, context: &RequestContext<'_>) -> CallOutcome {
        let Some(running) = &self.0 else { return CallOutcome::Cancelled };
        let streams = context.streams;
        let due = Instant::now() + running.client_call.stream_after();
        let mut deadline = pin!(wait_until(due, context.timer));
        loop {
            let Some(running) = &mut self.0 else { return CallOutcome::Cancelled };
            let incoming = tokio::select! {
                biased;
                incoming = running.call.next() => incoming,
                () = &mut deadline, if streams => return self.stream(None),
            };
            let end = match incoming {
                Some(Incoming::Answer(end)) => end,
                Some(incoming) => match running.client_call.filter_message(incoming) {
                    Some(first) if streams => return self.stream(Some(first)),
                    // A client that reads no streams gets only the answer. Notifications are dropped, server requests
                    // are refused.
                    _ => continue,
                },
                None => return self.finish(Err(CallError::Cancelled)),
            };
            if !running.retry(&end).await {
                return self.finish(end);
            }
        }
    }

    fn finish(mut self, end: Result<Answer, CallError>) -> CallOutcome {
        let done = self.0.take().and_then(|running| running.client_call.ended(end));
        done.map_or(CallOutcome::Cancelled, CallOutcome::Done)
    }

    fn stream(&mut self, first: Option<Incoming>) -> CallOutcome {
        let Some(running) = self.0.take() else { return CallOutcome::Cancelled };
        match running.client_call.era.on_disconnect() {
            OnDisconnect::Detach(connection) => {
                CallOutcome::Stream(detach(running, connection, first, true))
            }
            OnDisconnect::Cancel => CallOutcome::Call(Box::new(CallStream::new(running, first))),
        }
    }
}

/// Waits until `due`, on the timer of the client's socket if there is one.
async fn wait_until(due: Instant, timer: Option<&dyn SocketTimer>) {
    match timer {
        Some(timer) => poll_fn(|cx| timer.poll_until(due, cx)).await,
        None => tokio::time::sleep_until(due).await,
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        if let OnDisconnect::Detach(connection) = running.client_call.era.on_disconnect() {
            // The client has no id of this stream and cannot resume it, so it is not kept.
            detach(running, connection, None, false);
        }
    }
}
