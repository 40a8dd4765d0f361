//! Listeners for messages outside any call.

use bytes::Bytes;
use std::{fmt, future::poll_fn, sync::Arc};

use super::{
    Call, ClientCapabilities, Core, Inbox, Incoming, ServerRequest,
    inbox::{MessagePriority, Overflow, QUEUE_LIMIT},
};
use crate::{CallError, Loss};

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
    /// Messages of a `subscriptions/listen` call to a modern server.
    Call(Call),
}

impl Listener {
    pub(super) fn on_link(core: Arc<Core>, capabilities: ClientCapabilities) -> Self {
        let inbox = Arc::new(Inbox::default());
        if let Some(error) = core.lost(crate::Delivery::NotSent) {
            inbox.end(Err(error));
        } else {
            core.listeners.lock().all.push((inbox.clone(), capabilities));
            core.transport.listen(&core);
            core.hand_over_held(&inbox, capabilities);
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
            core.listeners.lock().all.retain(|(listening, _)| !Arc::ptr_eq(listening, inbox));
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

/// Callback for the end of a link.
pub(crate) type LossCallback = Box<dyn FnOnce(&Loss) + Send>;

/// Listeners of one link.
#[derive(Default)]
pub(crate) struct Listeners {
    /// Callback for the end of the link, until it was called.
    pub(super) on_loss: Option<LossCallback>,
    all: Vec<(Arc<Inbox>, ClientCapabilities)>,
    /// Requests of the server that came before any client could get them. `None` if none are held.
    held: Option<HeldRequests>,
}

/// Requests of a server that wait for the first call or listener of the client that the server was told of.
#[derive(Debug)]
struct HeldRequests {
    capabilities: ClientCapabilities,
    requests: Vec<ServerRequest>,
    bytes: usize,
    /// Whether further requests are held.
    is_open: bool,
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listeners({})", self.all.len())
    }
}

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn drain(&mut self) -> Vec<Arc<Inbox>> {
        self.all.drain(..).map(|(inbox, _)| inbox).collect()
    }

    /// Holds requests that a client with these capabilities can answer, from now on.
    pub(super) fn begin_to_hold(&mut self, capabilities: ClientCapabilities) {
        self.held =
            Some(HeldRequests { capabilities, requests: Vec::new(), bytes: 0, is_open: true });
    }

    /// Whether such a request is held.
    pub(super) fn holds(&self, needed: ClientCapabilities) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_open && held.capabilities.includes(needed))
    }

    /// Whether requests are held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Holds a request. Returns it if requests are not held any more, or too many are.
    pub(super) fn hold(&mut self, asked: ServerRequest) -> Option<ServerRequest> {
        let size = asked.text().len();
        match &mut self.held {
            Some(held) if held.is_open && held.bytes + size <= QUEUE_LIMIT => {
                held.bytes += size;
                held.requests.push(asked);
                None
            }
            _ => Some(asked),
        }
    }

    /// Holds no further requests, because the link is used now. Takes those that were held, if a client with these
    /// capabilities can answer one of them.
    pub(super) fn take_held(&mut self, capabilities: ClientCapabilities) -> Vec<ServerRequest> {
        let held = self.held.take_if(|held| {
            held.is_open = false;
            held.requests.is_empty() || held.capabilities.overlaps(capabilities)
        });
        held.map(|held| held.requests).unwrap_or_default()
    }

    /// Takes the held requests of a link that has ended.
    pub(super) fn drop_held(&mut self) -> Vec<ServerRequest> {
        self.held.take().map(|held| held.requests).unwrap_or_default()
    }

    /// Sends a notification to all listeners. Returns whether there is one. A listener with a full queue is
    /// ended with an error.
    pub(super) fn tell(&self, worth: MessagePriority, text: &Bytes) -> bool {
        for (inbox, _) in &self.all {
            if inbox.notify(worth, text.clone()) == Err(Overflow) {
                inbox.end(Err(CallError::SlowReader));
            }
        }
        !self.all.is_empty()
    }

    /// Returns the first listener that can answer such a request.
    pub(super) fn find_answerer(&self, needed: ClientCapabilities) -> Option<Arc<Inbox>> {
        let mut only_call_that_can_answer =
            self.all.iter().filter(|(_, capabilities)| capabilities.includes(needed));
        only_call_that_can_answer.next().map(|(inbox, _)| inbox.clone())
    }
}
