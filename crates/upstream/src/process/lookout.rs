//! Looks after children that nobody waits for.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::registry::Registry;

/// How often it looks, which is how long an exit can go unnoticed that nothing else tells of. A look is
/// one system call for each child.
const PACE: Duration = Duration::from_millis(500);

/// Finds the children of this process that have exited, all of them in one task and without a descriptor
/// for each.
///
/// The end of a child's output tells of nearly every exit at once, and who ends a child or waits for it
/// watches it. What is left is a leader that died while something it has started keeps its pipes open.
///
/// Dropped while there are children, because its runtime is gone, it kills them: nobody would notice their
/// exit any more.
#[derive(Debug)]
pub(super) struct Lookout {
    /// None once there is nobody left to look after.
    registry: Option<Arc<Registry>>,
}

impl Lookout {
    /// Has one look after all who are there, for as long as there are some.
    pub(super) fn keep(registry: &Arc<Registry>) {
        if registry.needs_lookout() {
            let lookout = Self { registry: Some(registry.clone()) };
            registry.runtime().spawn(async move { lookout.run().await });
        }
    }

    async fn run(mut self) {
        while let Some(registry) = &self.registry {
            sleep(PACE).await;
            let lives = registry.looked_after();
            for life in &lives {
                life.look();
            }
            if lives.is_empty() {
                self.registry = None;
            }
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        let Some(registry) = &self.registry else { return };
        for life in registry.forsaken() {
            life.end_now();
        }
    }
}
