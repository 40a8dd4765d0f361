//! Registry of children, through which all of them can be ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::Notify};

use super::{Grace, StartError, life::Life};

/// All children of one [`Processes`](super::Processes).
#[derive(Debug)]
pub(super) struct Registry {
    runtime: Handle,
    rows: Mutex<Rows>,
    /// Notified when a child is gone or a start is over.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    lives: HashMap<u64, Arc<Life>>,
    /// Number of starts in progress.
    starting: usize,
    /// Whether a task checks the children for exits.
    watched: bool,
    closed: bool,
}

impl Registry {
    pub(super) fn new(runtime: Handle) -> Self {
        Self { runtime, rows: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counts a start in progress, until the returned guard is dropped.
    pub(super) fn place(self: &Arc<Self>) -> Result<Place, StartError> {
        let mut rows = self.rows();
        if rows.closed {
            return Err(StartError::Closed);
        }
        rows.starting += 1;
        Ok(Place { registry: self.clone() })
    }

    /// Adds a running child. Has to be called before its exit can be noticed.
    pub(super) fn add(&self, life: &Arc<Life>) {
        self.rows().lives.insert(life.number, life.clone());
    }

    pub(super) fn remove(&self, number: u64) {
        // Dropped after the lock is released: this may be the last reference to the child.
        let _life = self.rows().lives.remove(&number);
        self.changed.notify_waiters();
    }

    /// Returns whether the caller has to start the task that checks for exits, and marks that task as running.
    pub(super) fn needs_lookout(&self) -> bool {
        let mut rows = self.rows();
        !std::mem::replace(&mut rows.watched, true)
    }

    /// Returns the children to check. If there are none, the task that checks counts as stopped.
    pub(super) fn looked_after(&self) -> Vec<Arc<Life>> {
        let mut rows = self.rows();
        rows.watched = !rows.lives.is_empty();
        rows.lives.values().cloned().collect()
    }

    /// Marks the task that checks as stopped, and returns the children that it left.
    pub(super) fn forsaken(&self) -> Vec<Arc<Life>> {
        let mut rows = self.rows();
        rows.watched = false;
        rows.lives.values().cloned().collect()
    }

    pub(super) fn live(&self) -> usize {
        self.rows().lives.len()
    }

    /// Refuses new children and ends all existing ones, all at once.
    pub(super) async fn close(&self, grace: Grace) {
        self.rows().closed = true;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let (lives, starting) = {
                let rows = self.rows();
                (rows.lives.values().cloned().collect::<Vec<_>>(), rows.starting)
            };
            if lives.is_empty() && starting == 0 {
                return;
            }
            for life in lives {
                life.begin(grace);
            }
            changed.await;
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of [`Registry::place`].
#[derive(Debug)]
pub(super) struct Place {
    registry: Arc<Registry>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.rows().starting -= 1;
        self.registry.changed.notify_waiters();
    }
}
