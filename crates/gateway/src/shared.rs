//! Links that several sessions share: which state of them a session has seen.

use stayput_core::{Attachment, Generation, Record};
use stayput_upstream::Held;

/// The state behind a link that several sessions share, as the record of a session keeps it. It is of one
/// process of ours, because such a link is not gone on with after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen(String);

impl Seen {
    /// What is behind this link now; none if it is of one session alone, or nothing is behind it.
    pub(crate) fn now(life: &str, link: &Held) -> Option<Self> {
        Self::at(life, link, link.generation())
    }

    /// What will be behind it after this was lost.
    pub(crate) fn next(life: &str, link: &Held) -> Option<Self> {
        Self::at(life, link, link.generation().next())
    }

    fn at(life: &str, link: &Held, generation: Generation) -> Option<Self> {
        let shared = link.key().scope().session().is_none() && link.keeps_state();
        shared.then(|| Self(format!(r#"{{"shared":"{life}","generation":{generation}}}"#)))
    }

    /// Whether a session has seen this, and nothing since.
    pub(crate) fn is_in(&self, record: &Record, server: &str) -> bool {
        record.attachments.get(server).is_some_and(|kept| kept.body == self.0)
    }

    /// A session sees this from now on. If it has seen something else, that is lost.
    pub(crate) fn note(&self, record: &mut Record, server: &str) {
        if self.is_in(record, server) {
            return;
        }
        let known = record.attachments.contains_key(server);
        let generation = if known { record.generation.next() } else { record.generation };
        record.attach(server, Attachment::new(generation, self.0.clone()));
    }
}
