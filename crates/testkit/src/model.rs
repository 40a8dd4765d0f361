//! Simplest possible store.
//!
//! It is one list with linear search. It has no indexes that could be inconsistent and no concurrency, so it can be
//! compared with the contract line by line. It names sessions and holders by their number in the story, and takes
//! revisions from the real store.

use std::collections::BTreeMap;

use stayput_core::{Expiry, Generation, Revision, Timestamp};

/// State of the model.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Sessions of the story, in the order of their attempted inserts.
    pub(crate) sessions: Vec<Session>,
}

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Whether it is in the store at all.
    pub(crate) there: bool,
    /// Step of the story at which it got its key; 0 if it never had one.
    pub(crate) key_since: usize,
    /// Owner and key, as numbers of the story.
    pub(crate) name: (usize, Option<usize>),
    /// Expiry rule.
    pub(crate) expiry: Expiry,
    /// Time of its creation.
    pub(crate) created: Timestamp,
    /// Time of its last use.
    pub(crate) last_used: Timestamp,
    /// Time of its end.
    pub(crate) ended: Option<Timestamp>,
    /// Generation.
    pub(crate) generation: Generation,
    /// Revision.
    pub(crate) revision: Revision,
    /// Lease that holds it, as a number of the story.
    pub(crate) holder: Option<usize>,
    /// State values.
    pub(crate) state: BTreeMap<usize, (Revision, usize)>,
    /// Highest revision that any of its values had.
    pub(crate) state_revision: Revision,
}

/// Error of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelError {
    /// This session has the key.
    Taken(usize),
    /// The session does not exist.
    Missing,
    /// The session was changed since.
    Stale,
    /// Another lease holds it.
    NotHolder,
    /// This lease holds it.
    HeldBy(usize),
    /// The state is too large: limit and size.
    TooLarge(usize, usize),
}

/// Largest state of a session in a story.
pub(crate) const STATE_LIMIT: usize = 40;

impl Session {
    fn is_live(&self) -> bool {
        self.there && self.ended.is_none()
    }
}

impl Model {
    /// Finds the live session with this name.
    #[must_use]
    pub(crate) fn find(&self, name: (usize, Option<usize>)) -> Option<usize> {
        let named =
            |session: &Session| session.is_live() && session.name == name && name.1.is_some();
        self.sessions.iter().position(named)
    }

    /// Inserts a session and returns the generations that it may get. They differ only if the last session of its key
    /// was removed and an older one was not.
    pub(crate) fn insert(&mut self, mut session: Session) -> Result<[Generation; 2], ModelError> {
        let taken = self.find(session.name).map(ModelError::Taken);
        let had = |old: &&Session| old.name == session.name && session.name.1.is_some();
        let after = |old: Option<Generation>| old.map_or(Generation(0), Generation::next);
        let there = self.sessions.iter().filter(had).filter(|old| old.there);
        let highest = after(there.map(|old| old.generation).max());
        let last = self.sessions.iter().filter(had).max_by_key(|old| old.key_since);
        let last = after(last.filter(|old| old.there).map(|old| old.generation));
        session.there = taken.is_none();
        if !session.there {
            session.key_since = 0;
        }
        self.sessions.push(session);
        taken.map_or(Ok([last, highest]), Err)
    }

    /// Returns the session, if `by` may write it.
    pub(crate) fn write(
        &mut self,
        at: usize,
        by: Option<usize>,
    ) -> Result<&mut Session, ModelError> {
        let session =
            self.sessions.get_mut(at).filter(|session| session.there).ok_or(ModelError::Missing)?;
        if session.holder.is_some() && session.holder != by {
            Err(ModelError::NotHolder)
        } else {
            Ok(session)
        }
    }

    /// Returns the live session, if `by` may write it.
    pub(crate) fn write_live(
        &mut self,
        at: usize,
        by: Option<usize>,
    ) -> Result<&mut Session, ModelError> {
        self.write(at, by)
            .and_then(|it| if it.ended.is_none() { Ok(it) } else { Err(ModelError::Missing) })
    }

    /// Checks that an ended session could be revived.
    pub(crate) fn revivable(&self, at: usize) -> Result<(), ModelError> {
        match self.find(self.sessions[at].name) {
            Some(other) if other != at => Err(ModelError::Taken(other)),
            _ => Ok(()),
        }
    }

    /// Writes a value of `size` bytes under a key of one byte.
    pub(crate) fn put(
        &mut self,
        at: usize,
        by: Option<usize>,
        key: usize,
        size: usize,
    ) -> Result<&mut Session, ModelError> {
        let session = self.write_live(at, by)?;
        let others = session.state.iter().filter(|(other, _)| **other != key);
        let total = others.map(|(_, (_, size))| size + 1).sum::<usize>() + size + 1;
        if total > STATE_LIMIT {
            Err(ModelError::TooLarge(STATE_LIMIT, total))
        } else {
            Ok(session)
        }
    }

    /// Claims a session for `lease`, given the dead leases.
    pub(crate) fn claim(
        &mut self,
        at: usize,
        lease: usize,
        dead: impl Fn(usize) -> bool,
    ) -> Result<(), ModelError> {
        let session = self
            .sessions
            .get_mut(at)
            .filter(|session| session.is_live())
            .ok_or(ModelError::Missing)?;
        match session.holder {
            Some(other) if other != lease && !dead(other) => Err(ModelError::HeldBy(other)),
            _ => {
                session.holder = Some(lease);
                Ok(())
            }
        }
    }

    /// Returns the live sessions that are expired at `now`, earliest deadline first.
    #[must_use]
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(Timestamp, usize)> {
        let due = |(at, session): (usize, &Session)| {
            let deadline = session.expiry.deadline(session.created, session.last_used)?;
            (session.is_live() && deadline <= now).then_some((deadline, at))
        };
        let mut found: Vec<_> = self.sessions.iter().enumerate().filter_map(due).collect();
        found.sort_unstable();
        found
    }
}
