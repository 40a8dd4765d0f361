//! The children that are there, so that all of them can be ended.

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
    /// Somebody has gone.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    lives: HashMap<u64, Arc<Life>>,
    /// How many are on their way in.
    starting: usize,
    /// Somebody looks after them.
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

    /// A place for a child that is about to be started, until it is added or given up.
    pub(super) fn place(self: &Arc<Self>) -> Result<Place, StartError> {
        let mut rows = self.rows();
        if rows.closed {
            return Err(StartError::Closed);
        }
        rows.starting += 1;
        Ok(Place { registry: self.clone() })
    }

    /// Called once it runs, before anybody can notice that it does not any more.
    pub(super) fn add(&self, life: &Arc<Life>) {
        self.rows().lives.insert(life.number, life.clone());
    }

    pub(super) fn remove(&self, number: u64) {
        // Dropped after the lock: it may be the last one to know the child.
        let _life = self.rows().lives.remove(&number);
        self.changed.notify_waiters();
    }

    /// Says whether somebody has to begin to look after them, who then does.
    pub(super) fn needs_lookout(&self) -> bool {
        let mut rows = self.rows();
        !std::mem::replace(&mut rows.watched, true)
    }

    /// All to look after. If there are none nobody has to.
    pub(super) fn looked_after(&self) -> Vec<Arc<Life>> {
        let mut rows = self.rows();
        rows.watched = !rows.lives.is_empty();
        rows.lives.values().cloned().collect()
    }

    /// Nobody looks after them any more: these are they.
    pub(super) fn forsaken(&self) -> Vec<Arc<Life>> {
        let mut rows = self.rows();
        rows.watched = false;
        rows.lives.values().cloned().collect()
    }

    pub(super) fn live(&self) -> usize {
        self.rows().lives.len()
    }

    /// Lets nobody in any more and ends all who are there, all at once.
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

/// See [`Registry::place`].
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
