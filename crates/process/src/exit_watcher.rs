//! Checks children that no task waits for.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::lifecycle::Registry;

/// Interval of the checks, and so the longest time that an exit goes unnoticed if nothing else reports it. A
/// check is one system call per child.
const PACE: Duration = Duration::from_millis(500);

/// Finds the children of this process that have exited, in one task for all of them and without a descriptor
/// for each.
///
/// The end of a child's output reveals nearly every exit at once, and a task that ends a child or waits for it
/// watches it. The remaining case is a leader that died while a process that it started keeps its pipes open.
///
/// If it is dropped while there are children, because its runtime is gone, it kills them: their exit would go
/// unnoticed.
#[derive(Debug)]
pub(super) struct ExitWatcher {
    /// `None` once no child is left to check.
    registry: Option<Arc<Registry>>,
}

impl ExitWatcher {
    /// Starts the task that checks all children, unless it runs. It stops when no child is left.
    pub(super) fn keep(registry: &Arc<Registry>) {
        if registry.start_watching() {
            let watcher = Self { registry: Some(registry.clone()) };
            registry.runtime().spawn(async move { watcher.run().await });
        }
    }

    async fn run(mut self) {
        while let Some(registry) = &self.registry {
            sleep(PACE).await;
            let children = registry.children_to_check();
            for lifecycle in &children {
                lifecycle.check();
            }
            if children.is_empty() {
                self.registry = None;
            }
        }
    }
}

impl Drop for ExitWatcher {
    fn drop(&mut self) {
        let Some(registry) = &self.registry else { return };
        for lifecycle in registry.stop_watching() {
            lifecycle.end_now();
        }
    }
}
