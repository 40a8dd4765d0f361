//! Requests of servers to a client.

use std::sync::atomic::Ordering;

use stayput_upstream::{LinkKey, ServerRequest};
use stayput_wire::Code;

use super::Connection;
use crate::connections::question_ids::QuestionIds;

/// Largest number of unanswered requests per client.
const QUESTIONS: usize = 256;

/// Request of a server that the client has not answered.
pub(super) struct PendingQuestion {
    link: LinkKey,
    request: ServerRequest,
    /// Id that the client was given, as JSON.
    id: String,
}

impl Connection {
    /// Stores a request of a server until the client answers it, and returns its number and its new id as JSON. Refuses the
    /// request if too many are unanswered.
    pub(crate) fn ask(
        &self,
        ids: &QuestionIds,
        link: &LinkKey,
        asked: ServerRequest,
    ) -> Option<(u64, String)> {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let id = ids.write(&self.hash, number)?;
        let mut activity = self.activity.lock();
        let all = &mut activity.rare().asked;
        if all.len() >= QUESTIONS {
            drop(activity);
            let sentence = format!(
                "the client has {QUESTIONS} questions that it has not answered yet; ask again when it has"
            );
            asked.refuse(Code::INTERNAL_ERROR, &sentence);
            return None;
        }
        let (link, question) = (link.clone(), id.clone());
        all.insert(number, PendingQuestion { link, request: asked, id: question });
        Some((number, id))
    }

    /// Removes and returns the request with this number.
    pub(crate) fn take_server_request(&self, number: u64) -> Option<ServerRequest> {
        self.activity.lock().rare.as_mut()?.asked.remove(&number).map(|asked| asked.request)
    }

    /// Removes a request that the server cancelled. Returns the id that the client knows it by, as JSON.
    pub(crate) fn withdraw(&self, link: &LinkKey, server_id: &str) -> Option<String> {
        let mut activity = self.activity.lock();
        // The link is compared, too: another server, or another process of the same server, may use the same ids.
        let all = &mut activity.rare.as_mut()?.asked;
        let mut found =
            all.iter().filter(|(_, it)| it.link == *link && it.request.id().as_str() == server_id);
        let number = found.next().map(|(number, _)| *number)?;
        let PendingQuestion { request, id, .. } = all.remove(&number)?;
        drop(activity);
        drop(request);
        Some(id)
    }
}
