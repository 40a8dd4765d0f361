//! What a scope knows of losses.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use stayput_core::Generation;

use crate::closing::lock;

/// The generations that a scope has seen, by server and branch. Each scope is told of a loss once: all its
/// calls that began before it was told are, and those that begin later run on what is new.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<(Arc<str>, u64), Generation>>);

impl Seen {
    /// The generation that the scope knows, if it knows any.
    pub(crate) fn known(&self, server: &Arc<str>, branch: u64) -> Option<Generation> {
        lock(&self.0).get(&(server.clone(), branch)).copied()
    }

    /// The scope knows of `generation` from now on.
    pub(crate) fn note(&self, server: &Arc<str>, branch: u64, generation: Generation) {
        let mut seen = lock(&self.0);
        let known = seen.entry((server.clone(), branch)).or_insert(generation);
        *known = generation.max(*known);
    }

    /// The scope knows that everything of the session was lost and begins on `generation`.
    pub(crate) fn note_all(&self, generation: Generation) {
        for known in lock(&self.0).values_mut() {
            *known = generation.max(*known);
        }
    }

    /// As much as this one knows, and from now on for itself.
    pub(crate) fn fork(&self) -> Self {
        Self(Mutex::new(lock(&self.0).clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_knows_for_itself() {
        let (server, scope) = (Arc::<str>::from("a"), Seen::default());
        assert_eq!(scope.known(&server, 0), None);
        scope.note(&server, 0, Generation(3));
        let other = scope.fork();
        scope.note(&server, 0, Generation(4));
        scope.note(&server, 0, Generation(2));
        assert_eq!(scope.known(&server, 0), Some(Generation(4)), "nobody forgets");
        assert_eq!(other.known(&server, 0), Some(Generation(3)), "the other one was not told");
        assert_eq!(scope.known(&server, 1), None, "a branch is another link");
        scope.note_all(Generation(9));
        assert_eq!(scope.known(&server, 0), Some(Generation(9)));
    }
}
