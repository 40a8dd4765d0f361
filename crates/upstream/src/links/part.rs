//! The link of one place to one server: how it stands, and the end of a part of a session.

use std::{sync::Arc, time::Duration};

use stayput_core::{Generation, SessionId};

use super::{Links, all_gone, leaving};
use crate::{Kept, Loss, LossReason, Place, Server};

/// How the link of a place to a server stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// There never was one.
    None,
    /// It is being opened.
    Opening,
    /// It is there.
    Live {
        /// Its generation.
        generation: Generation,
        /// How many calls are in flight on it.
        in_flight: usize,
    },
    /// It is over; the next who asks opens another one.
    Over(Option<Arc<Loss>>),
    /// It failed, and nobody gets another one for this long.
    Resting(Duration),
}

impl Links {
    /// How the link of `place` to `server` stands. Nothing is waited for.
    #[must_use]
    pub fn standing(&self, server: &Server, place: &Place) -> Standing {
        let slots = self.0.table.of_place(server, place);
        slots.first().map_or(Standing::None, |slot| slot.standing())
    }

    /// Ends all links of a part of a session, and removes its folders. The session goes on.
    ///
    /// Dropped, it goes on.
    pub async fn end_part(&self, session: SessionId, branch: u64) -> Kept {
        let part = |scope: &crate::Scope| matches!(scope, crate::Scope::Session { session: of, branch: it, .. } if *of == session && *it == branch);
        let slots = self.0.table.remove_where(|key| part(key.scope()));
        let ended = leaving(&slots, LossReason::Ended);
        let folders = self.0.opener.folders.clone();
        let ending = self.0.opener.runtime.spawn(async move {
            all_gone(&ended).await;
            folders.remove_branch(session, branch).await
        });
        ending.await.unwrap_or_default()
    }
}
