//! Who hears what a server says to nobody in particular.

use std::{fmt, future::poll_fn, sync::Arc};

use bytes::Bytes;

use super::{
    Call, Core, Declares, Inbox, Incoming,
    inbox::{Overflow, Worth},
};
use crate::{CallError, lock::lock};

/// Hears what the server says outside any call: lists that changed, resources that were updated, log
/// messages; and is asked what the server asks outside any call.
///
/// While there is a listener, an HTTP server is listened to on a stream of its own; an idle link has
/// none. [`Incoming::Answer`] comes when there will be nothing more to hear.
pub struct Listener {
    source: Source,
}

enum Source {
    /// On the link itself.
    Link { core: Arc<Core>, inbox: Arc<Inbox> },
    /// A modern server is listened to with a call.
    Call(Call),
}

impl Listener {
    pub(super) fn on_link(core: Arc<Core>, declares: Declares) -> Self {
        let inbox = Arc::new(Inbox::default());
        if let Some(error) = core.lost(crate::Delivery::NotSent) {
            inbox.end(Err(error));
        } else {
            lock(&core.listeners).0.push((inbox.clone(), declares));
            core.carrier.listen(&core);
            // The link may have ended between the look and the listing.
            if let Some(error) = core.lost(crate::Delivery::NotSent) {
                inbox.end(Err(error));
            }
        }
        Self { source: Source::Link { core, inbox } }
    }

    pub(super) fn on_call(call: Call) -> Self {
        Self { source: Source::Call(call) }
    }

    /// What comes next. `None` after the end.
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
            core.carrier.listen(core);
            drop(inbox.abandon());
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// The listeners of one link.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<(Arc<Inbox>, Declares)>);

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn drain(&mut self) -> Vec<Arc<Inbox>> {
        self.0.drain(..).map(|(inbox, _)| inbox).collect()
    }

    /// Says whether anybody heard it. Who does not read misses what comes then, and is told so.
    pub(super) fn tell(&self, worth: Worth, text: &Bytes) -> bool {
        for (inbox, _) in &self.0 {
            if inbox.notify(worth, text.clone()) == Err(Overflow) {
                inbox.end(Err(CallError::SlowReader));
            }
        }
        !self.0.is_empty()
    }

    /// The first one who can be asked this.
    pub(super) fn answerer(&self, needed: Declares) -> Option<Arc<Inbox>> {
        let mut able = self.0.iter().filter(|(_, declares)| declares.includes(needed));
        able.next().map(|(inbox, _)| inbox.clone())
    }
}
