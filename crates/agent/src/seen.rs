//! What a scope knows of losses.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use stayput_core::Generation;

/// The generations that a scope has seen, by server and branch. Each scope is told of a loss once.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<(Arc<str>, u64), Generation>>);

impl Seen {
    /// Notes that the scope meets `generation`; says whether it knew an earlier one.
    pub(crate) fn meets(&self, server: &Arc<str>, branch: u64, generation: Generation) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get_mut(&(server.clone(), branch)) {
            Some(known) if *known < generation => {
                *known = generation;
                true
            }
            Some(_) => false,
            None => {
                seen.insert((server.clone(), branch), generation);
                false
            }
        }
    }

    /// Whether the scope knows of `generation` or a later one.
    pub(crate) fn knows(&self, server: &Arc<str>, branch: u64, generation: Generation) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&(server.clone(), branch)).is_some_and(|known| *known >= generation)
    }

    /// As much as this one knows, and from now on for itself.
    pub(crate) fn fork(&self) -> Self {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Self(Mutex::new(seen.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_is_told_once() {
        let (server, scope) = (Arc::<str>::from("a"), Seen::default());
        assert!(!scope.meets(&server, 0, Generation(3)), "nothing was known before");
        let other = scope.fork();
        assert!(scope.meets(&server, 0, Generation(4)));
        assert!(!scope.meets(&server, 0, Generation(4)));
        assert!(other.meets(&server, 0, Generation(4)), "the other one was not told");
        assert!(!scope.meets(&server, 1, Generation(9)), "a branch is another link");
        assert!(scope.knows(&server, 0, Generation(4)) && !scope.knows(&server, 0, Generation(5)));
    }
}
