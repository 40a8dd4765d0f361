//! Registry of children, through which all of them can be ended.

use std::{collections::HashMap, sync::Arc};

use stayput_sync::Mutex;
use tokio::{runtime::Handle, sync::Notify};

use super::Lifecycle;
use crate::{Grace, StartError};

/// All children of one [`Processes`](crate::Processes).
#[derive(Debug)]
pub(crate) struct Registry {
    runtime: Handle,
    table: Mutex<Table>,
    /// Notified when a child is gone or a start is over.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    children: HashMap<u64, Arc<Lifecycle>>,
    /// Number of starts in progress.
    starting: usize,
    /// Whether a task checks the children for exits.
    watched: bool,
    closed: bool,
}

impl Registry {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, table: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counts a start in progress, until the returned guard is dropped.
    pub(crate) fn begin_start(self: &Arc<Self>) -> Result<StartGuard, StartError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(StartError::Closed);
        }
        table.starting += 1;
        Ok(StartGuard { registry: self.clone() })
    }

    /// Adds a running child. Has to be called before its exit can be noticed.
    pub(crate) fn add(&self, child: &Arc<Lifecycle>) {
        self.table.lock().children.insert(child.number, child.clone());
    }

    pub(crate) fn remove(&self, number: u64) {
        // Dropped after the lock is released: this may be the last reference to the child.
        let _child = self.table.lock().children.remove(&number);
        self.changed.notify_waiters();
    }

    /// Returns whether the caller has to start the task that checks for exits, and marks that task as running.
    pub(crate) fn start_watching(&self) -> bool {
        let mut table = self.table.lock();
        !std::mem::replace(&mut table.watched, true)
    }

    /// Returns the children to check. If there are none, the task that checks counts as stopped.
    pub(crate) fn children_to_check(&self) -> Vec<Arc<Lifecycle>> {
        let mut table = self.table.lock();
        table.watched = !table.children.is_empty();
        table.children.values().cloned().collect()
    }

    /// Marks the task that checks as stopped, and returns the children that it left.
    pub(crate) fn stop_watching(&self) -> Vec<Arc<Lifecycle>> {
        let mut table = self.table.lock();
        table.watched = false;
        table.children.values().cloned().collect()
    }

    pub(crate) fn live(&self) -> usize {
        self.table.lock().children.len()
    }

    /// Refuses new children and ends all existing ones, all at once.
    pub(crate) async fn close(&self, grace: Grace) {
        self.table.lock().closed = true;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let (children, starting) = {
                let table = self.table.lock();
                (table.children.values().cloned().collect::<Vec<_>>(), table.starting)
            };
            if children.is_empty() && starting == 0 {
                return;
            }
            for child in children {
                child.begin_end(grace);
            }
            changed.await;
        }
    }
}

/// Guard of [`Registry::place`].
#[derive(Debug)]
pub(crate) struct StartGuard {
    registry: Arc<Registry>,
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.registry.table.lock().starting -= 1;
        self.registry.changed.notify_waiters();
    }
}
