//! Generations of links that a scope knows of: they decide whether a loss still has to be reported to it.

use std::{collections::HashMap, sync::Arc};

use stayput_core::Generation;
use stayput_sync::Mutex;

/// Generations that a scope knows, by server and branch. Each call that began before a loss was first reported to the
/// scope reports the loss; later calls run on the new state.
#[derive(Debug, Default)]
pub(crate) struct KnownGenerations(Mutex<HashMap<(Arc<str>, u64), Generation>>);

impl KnownGenerations {
    pub(crate) fn get(&self, server: &Arc<str>, branch: u64) -> Option<Generation> {
        self.0.lock().get(&(server.clone(), branch)).copied()
    }

    /// Records that the scope knows `generation`. A lower one than before is ignored.
    pub(crate) fn record(&self, server: &Arc<str>, branch: u64, generation: Generation) {
        let mut all = self.0.lock();
        let known = all.entry((server.clone(), branch)).or_insert(generation);
        *known = generation.max(*known);
    }

    /// Records that the scope knows that all state of the session was lost, and that `generation` follows.
    pub(crate) fn record_all(&self, generation: Generation) {
        for known in self.0.lock().values_mut() {
            *known = generation.max(*known);
        }
    }

    /// Forgets the links of an isolated sub-agent that has ended.
    pub(crate) fn remove_branch(&self, branch: u64) {
        self.0.lock().retain(|(_, other), _| *other != branch);
    }

    /// Returns an independent copy.
    pub(crate) fn fork(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_own_generations() {
        let (server, scope) = (Arc::<str>::from("a"), KnownGenerations::default());
        assert_eq!(scope.get(&server, 0), None);
        scope.record(&server, 0, Generation(3));
        let other = scope.fork();
        scope.record(&server, 0, Generation(4));
        scope.record(&server, 0, Generation(2));
        assert_eq!(scope.get(&server, 0), Some(Generation(4)), "a generation never goes back");
        assert_eq!(other.get(&server, 0), Some(Generation(3)), "the copy is independent");
        assert_eq!(scope.get(&server, 1), None, "a branch is another link");
        scope.record_all(Generation(9));
        assert_eq!(scope.get(&server, 0), Some(Generation(9)));
    }
}
