//! What servers ask a client.

use std::sync::atomic::Ordering;

use stayput_upstream::{Asked, LinkKey};
use stayput_wire::Code;

use super::Connection;

/// The most questions that one client has not answered.
const QUESTIONS: usize = 256;

impl Connection {
    /// Keeps a question of a server until the client answers it; says under which id. One that comes when
    /// too many wait is refused.
    pub(crate) fn ask(&self, link: &LinkKey, asked: Asked) -> Option<u64> {
        let id = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let mut under_way = self.under_way();
        let all = &mut under_way.rare().asked;
        if all.len() >= QUESTIONS {
            drop(under_way);
            let sentence = format!(
                "the client has {QUESTIONS} questions that it has not answered yet; ask again when it has"
            );
            asked.refuse(Code::INTERNAL_ERROR, &sentence);
            return None;
        }
        all.insert(id, (link.clone(), asked));
        Some(id)
    }

    /// The question that the client answers.
    pub(crate) fn asked(&self, id: u64) -> Option<Asked> {
        let asked = self.under_way().rare.as_mut()?.asked.remove(&id);
        asked.map(|(_, asked)| asked)
    }

    /// The server took a question back; says under which id the client knows it.
    pub(crate) fn withdraw(&self, link: &LinkKey, server_id: &str) -> Option<u64> {
        let mut under_way = self.under_way();
        // Another server, and another process of the same one, may use the same ids.
        let all = &mut under_way.rare.as_mut()?.asked;
        let mut found =
            all.iter().filter(|(_, (by, asked))| by == link && asked.id().as_str() == server_id);
        let id = found.next().map(|(id, _)| *id)?;
        let asked = all.remove(&id);
        drop(under_way);
        drop(asked);
        Some(id)
    }
}
