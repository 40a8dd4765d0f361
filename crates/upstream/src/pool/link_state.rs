//! State of a link.

use std::{sync::Arc, time::Duration};

use stayput_core::Generation;

use super::Links;
use crate::{LinkOwner, Loss, Server};

/// State of the link between a session and a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LinkState {
    /// No link was opened yet.
    None,
    /// The link is being opened.
    Opening,
    /// The link is live.
    Live {
        /// Generation of the link.
        generation: Generation,
        /// Number of calls in flight.
        in_flight: usize,
    },
    /// The link has ended; the next request opens a new one.
    Over(Option<Arc<Loss>>),
    /// The link failed; no new one is opened for this long.
    BackingOff(Duration),
}

impl Links {
    /// Returns the state of the link of `link_owner` to `server`. Never waits.
    #[must_use]
    pub fn state(&self, server: &Server, link_owner: &LinkOwner) -> LinkState {
        let entries = self.0.table.entries_for(server, link_owner);
        entries.first().map_or(LinkState::None, |entry| entry.state())
    }
}
