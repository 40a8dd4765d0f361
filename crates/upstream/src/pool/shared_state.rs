//! Record of which state of a shared link a session has seen.

use stayput_core::{Attachment, Generation, Record};

use crate::PooledLink;

/// Identifies the state behind a shared link, as stored in the record of a session. It is valid in one
/// process, or in one hub of it, because a shared link is not resumed by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedStateId(String);

impl SharedStateId {
    /// State behind this link now. `None` if the link belongs to one session, or has no state. `instance_id`
    /// identifies the process or hub.
    #[must_use]
    pub fn now(instance_id: &str, link: &PooledLink) -> Option<Self> {
        Self::at(instance_id, link, link.generation())
    }

    /// State behind this link after the current one is lost.
    #[must_use]
    pub fn next(instance_id: &str, link: &PooledLink) -> Option<Self> {
        Self::at(instance_id, link, link.generation().next())
    }

    fn at(instance_id: &str, link: &PooledLink, generation: Generation) -> Option<Self> {
        let shared = link.is_shared() && link.keeps_state();
        let entry = link.entry_id();
        shared.then(|| {
            Self(format!(
                r#"{{"shared":"{instance_id}","entry":{entry},"generation":{generation}}}"#
            ))
        })
    }

    /// Generation for the session, if this is the last state that it has seen.
    #[must_use]
    pub fn seen_by(&self, record: &Record, server: &str) -> Option<Generation> {
        let kept = record.attachments.get(server).filter(|kept| kept.body == self.0);
        kept.map(|kept| kept.generation)
    }

    /// Records that the session sees this state. If it had seen another one, that one counts as lost.
    pub fn note(&self, record: &mut Record, server: &str) {
        if self.seen_by(record, server).is_some() {
            return;
        }
        let known = record.attachments.contains_key(server);
        let generation = if known { record.generation.next() } else { record.generation };
        record.attach(server, Attachment::new(generation, self.0.clone()));
    }

    /// Whether a stored attachment body is of this kind. It contains no secret.
    #[must_use]
    pub fn is_kept_as(body: &str) -> bool {
        body.starts_with(r#"{"shared":"#)
    }
}
