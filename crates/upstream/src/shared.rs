//! Links that several sessions share: which state of them a session has seen.

use stayput_core::{Attachment, Generation, Record};

use crate::Held;

/// The state behind a link that several sessions share, as the record of a session keeps it. It is of one
/// process, or of one hub in it, because such a link is not gone on with in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared(String);

impl Shared {
    /// What is behind this link now; none if it is of one session alone, or nothing is behind it. `life` tells
    /// one process, or hub, from all others.
    #[must_use]
    pub fn now(life: &str, link: &Held) -> Option<Self> {
        Self::at(life, link, link.generation())
    }

    /// What will be behind it after this was lost.
    #[must_use]
    pub fn next(life: &str, link: &Held) -> Option<Self> {
        Self::at(life, link, link.generation().next())
    }

    fn at(life: &str, link: &Held, generation: Generation) -> Option<Self> {
        let shared = link.is_shared() && link.keeps_state();
        let slot = link.slot();
        shared.then(|| {
            Self(format!(r#"{{"shared":"{life}","slot":{slot},"generation":{generation}}}"#))
        })
    }

    /// The generation that a session has for this, if it has seen it, and nothing since.
    #[must_use]
    pub fn seen_by(&self, record: &Record, server: &str) -> Option<Generation> {
        let kept = record.attachments.get(server).filter(|kept| kept.body == self.0);
        kept.map(|kept| kept.generation)
    }

    /// A session sees this from now on. If it has seen something else, that is lost.
    pub fn note(&self, record: &mut Record, server: &str) {
        if self.seen_by(record, server).is_some() {
            return;
        }
        let known = record.attachments.contains_key(server);
        let generation = if known { record.generation.next() } else { record.generation };
        record.attach(server, Attachment::new(generation, self.0.clone()));
    }

    /// Whether what a record keeps is of this kind. There is nothing secret in it.
    #[must_use]
    pub fn is_kept_as(body: &str) -> bool {
        body.starts_with(r#"{"shared":"#)
    }
}
