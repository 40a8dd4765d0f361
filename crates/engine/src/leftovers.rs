//! Links that this process must not keep, and leftovers of killed processes.

use std::sync::Arc;

use stayput_core::{LostReason, SessionId, Sessions};
use stayput_upstream::{LinkSweepReport, Links};

/// Closes the links of sessions that this process loses to another one: they lead to older state than the record.
/// `on_lost` is called before. Call this before the first session is opened.
pub fn close_lost_links(
    sessions: &Sessions,
    links: &Links,
    on_lost: impl Fn(SessionId, LostReason) + Send + Sync + 'static,
) {
    let links = links.clone();
    sessions.on_lost(move |session, reason| {
        on_lost(session, reason);
        match reason {
            LostReason::Moved => drop(links.release(session)),
            LostReason::Ended => drop(links.end(session)),
        }
    });
}

/// Removes processes and private folders that killed processes left behind: the folders of sessions without a live
/// record, for which `keeps` returns false. If the store cannot say, a folder stays until the next start. Call this
/// before the first link is opened.
pub fn sweep_leftovers(
    sessions: &Arc<Sessions>,
    links: &Links,
    keeps: impl Fn(SessionId) -> bool + Send + 'static,
) -> impl Future<Output = LinkSweepReport> + Send + 'static {
    let sessions = sessions.clone();
    links.sweep(move |session| {
        let (sessions, is_kept) = (sessions.clone(), keeps(session));
        async move {
            is_kept
                || sessions
                    .load_record(session)
                    .await
                    .map_or(true, |found| found.is_some_and(|record| record.is_live()))
        }
    })
}
