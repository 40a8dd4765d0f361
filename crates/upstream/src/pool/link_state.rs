//! State of a link, and the end of a branch of a session.

use std::{sync::Arc, time::Duration};

use stayput_core::{Generation, SessionId};

use super::{Links, all_gone, leaving};
use crate::{LinkOwner, Loss, LossReason, Server, UnremovedPaths};

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
    /// Returns the state of the link of `place` to `server`. Never waits.
    #[must_use]
    pub fn state(&self, server: &Server, link_owner: &LinkOwner) -> LinkState {
        let entries = self.0.table.of_place(server, link_owner);
        entries.first().map_or(LinkState::None, |entry| entry.state())
    }

    /// Ends all links of a branch of a session and removes its directories. The session itself stays open.
    ///
    /// The work continues if the future is dropped.
    pub async fn end_part(&self, session: SessionId, branch: u64) -> UnremovedPaths {
        let part = |scope: &crate::Scope| matches!(scope, crate::Scope::Session { session: of, branch: it, .. } if *of == session && *it == branch);
        let entries = self.0.table.remove_where(|key| part(key.scope()));
        let mut ended = leaving(&entries, LossReason::Ended);
        ended.extend(self.0.probed.end(LossReason::Ended, part));
        let folders = self.0.opener.folders.clone();
        let ending = self.0.opener.runtime.spawn(async move {
            all_gone(&ended).await;
            folders.remove_branch(session, branch).await
        });
        ending.await.unwrap_or_default()
    }
}
