//! Requests of servers to a client.

use std::sync::atomic::Ordering;

use stayput_upstream::{LinkKey, ServerRequest};
use stayput_wire::Code;

use super::Connection;

/// Largest number of unanswered requests per client.
const QUESTIONS: usize = 256;

impl Connection {
    /// Stores a request of a server until the client answers it, and returns its new id. Refuses the request if too
    /// many are unanswered.
    pub(crate) fn ask(&self, link: &LinkKey, asked: ServerRequest) -> Option<u64> {
        let id = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let mut activity = self.activity();
        let all = &mut activity.rare().asked;
        if all.len() >= QUESTIONS {
            drop(activity);
            let sentence = format!(
                "the client has {QUESTIONS} questions that it has not answered yet; ask again when it has"
            );
            asked.refuse(Code::INTERNAL_ERROR, &sentence);
            return None;
        }
        all.insert(id, (link.clone(), asked));
        Some(id)
    }

    /// Removes and returns the request that the client answers.
    pub(crate) fn take_server_request(&self, id: u64) -> Option<ServerRequest> {
        let asked = self.activity().rare.as_mut()?.asked.remove(&id);
        asked.map(|(_, asked)| asked)
    }

    /// Removes a request that the server cancelled. Returns the id that the client knows it by.
    pub(crate) fn withdraw(&self, link: &LinkKey, server_id: &str) -> Option<u64> {
        let mut activity = self.activity();
        // The link is compared, too: another server, or another process of the same server, may use the same ids.
        let all = &mut activity.rare.as_mut()?.asked;
        let mut found =
            all.iter().filter(|(_, (by, asked))| by == link && asked.id().as_str() == server_id);
        let id = found.next().map(|(id, _)| *id)?;
        let asked = all.remove(&id);
        drop(activity);
        drop(asked);
        Some(id)
    }
}
