//! Links that several sessions share: which state of them a session has seen.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stayput_core::{Attachment, Generation, Owner, Record};
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
        let slot = link.slot();
        shared.then(|| {
            Self(format!(r#"{{"shared":"{life}","slot":{slot},"generation":{generation}}}"#))
        })
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

/// Which state behind a link: what is behind one in a later slot is another, whatever its generation.
pub(crate) type Behind = (u64, Generation);

/// Which generation of a link that all share an owner has seen whose requests belong to no session. It is of this
/// process, as such links are.
#[derive(Debug, Default)]
pub(crate) struct Generations(Mutex<HashMap<String, HashMap<Owner, Behind>>>);

impl Generations {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<Owner, Behind>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this owner has seen an earlier generation, and so lost it. Who comes for the first time has lost
    /// nothing.
    pub(crate) fn lost(&self, owner: &Owner, server: &str, generation: Behind) -> bool {
        let mut all = self.lock();
        match all.get_mut(server) {
            Some(owners) => match owners.get(owner) {
                Some(seen) => *seen < generation,
                None => {
                    owners.insert(owner.clone(), generation);
                    false
                }
            },
            None => {
                all.insert(server.to_owned(), HashMap::from([(owner.clone(), generation)]));
                false
            }
        }
    }

    /// This owner was told of the loss up to this generation.
    pub(crate) fn tell(&self, owner: &Owner, server: &str, generation: Behind) {
        let mut all = self.lock();
        let seen = all.entry(server.to_owned()).or_default().entry(owner.clone()).or_default();
        *seen = generation.max(*seen);
    }
}
