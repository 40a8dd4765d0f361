//! Ends expired sessions.

use stayput_core::{EndReason, Record};

use crate::Engine;

/// Session that a sweep ended.
#[derive(Debug)]
pub struct SweptSession {
    /// Record at its end.
    pub record: Record,
    /// Whether the session was revived meanwhile. Its links belong to the new incarnation then.
    pub is_revived: bool,
}

impl SweptSession {
    /// Reason of the end, unless a client closed the session: the code that closed it has reported that.
    #[must_use]
    pub fn unreported_reason(&self) -> Option<EndReason> {
        let reason = self.record.ended.map(|ended| ended.reason);
        reason.filter(|reason| *reason != EndReason::Closed)
    }
}

impl Engine {
    /// Writes times of use to the store and ends expired sessions. The caller ends the links of those that were not
    /// revived, with [`Links::end`](stayput_upstream::Links::end), because a child process can take long to exit.
    pub async fn sweep(&self) -> Vec<SweptSession> {
        // If this fails, the next sweep writes them.
        let _ = self.sessions.write_back().await;
        let ended = self.sessions.sweep().await.ended.into_iter();
        let swept = ended.map(|record| {
            let held = self.sessions.get_held(record.id);
            let is_revived = held.is_some_and(|it| it.record().incarnation != record.incarnation);
            SweptSession { record, is_revived }
        });
        swept.collect()
    }
}
