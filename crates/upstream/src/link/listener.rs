//! Listeners for messages outside any call.

use bytes::Bytes;
use std::{fmt, future::poll_fn, sync::Arc};

use super::{
    Call, ClientCapabilities, Core, Inbox, Incoming,
    inbox::{MessagePriority, Overflow},
};
use crate::{CallError, util::lock::lock};

/// Receives messages of the server outside any call: changed lists, updated resources, logs, and requests of
/// the server.
///
/// While there is a listener, a separate stream to an HTTP server is open; an idle link has none.
/// [`Incoming::Answer`] marks the end.
pub struct Listener {
    source: Source,
}

enum Source {
    /// Messages of a legacy link.
    Link { core: Arc<Core>, inbox: Arc<Inbox> },
    /// A `subscriptions/listen` call to a modern server.
    Call(Call),
}

impl Listener {
    pub(super) fn on_link(core: Arc<Core>, capabilities: ClientCapabilities) -> Self {
        let inbox = Arc::new(Inbox::default());
        if let Some(error) = core.lost(crate::Delivery::NotSent) {
            inbox.end(Err(error));
        } else {
            lock(&core.listeners).0.push((inbox.clone(), capabilities));
            core.transport.listen(&core);
            // The link may have ended between the check and the insertion.
            if let Some(error) = core.lost(crate::Delivery::NotSent) {
                inbox.end(Err(error));
            }
        }
        Self { source: Source::Link { core, inbox } }
    }

    pub(super) fn on_call(call: Call) -> Self {
        Self { source: Source::Call(call) }
    }

    /// Returns the next event. `None` after the end.
    pub async fn next(&mut self) -> Option<Incoming> {
        match &mut self.source {
            Source::Link { inbox, .. } => poll_fn(|cx| inbox.poll_next(cx)).await,
            Source::Call(call) => call.next().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Source::Link { core, inbox } = &self.source {
            lock(&core.listeners).0.retain(|(held, _)| !Arc::ptr_eq(held, inbox));
            core.transport.listen(core);
            drop(inbox.abandon());
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Listeners of one link.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<(Arc<Inbox>, ClientCapabilities)>);

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn drain(&mut self) -> Vec<Arc<Inbox>> {
        self.0.drain(..).map(|(inbox, _)| inbox).collect()
    }

    /// Sends a notification to all listeners. Returns whether there is one. A listener with a full queue is
    /// ended with an error.
    pub(super) fn tell(&self, worth: MessagePriority, text: &Bytes) -> bool {
        for (inbox, _) in &self.0 {
            if inbox.notify(worth, text.clone()) == Err(Overflow) {
                inbox.end(Err(CallError::SlowReader));
            }
        }
        !self.0.is_empty()
    }

    /// Returns the first listener that can answer such a request.
    pub(super) fn find_answerer(&self, needed: ClientCapabilities) -> Option<Arc<Inbox>> {
        let mut only_call_that_can_answer =
            self.0.iter().filter(|(_, capabilities)| capabilities.includes(needed));
        only_call_that_can_answer.next().map(|(inbox, _)| inbox.clone())
    }
}
