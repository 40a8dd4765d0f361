//! The part of a session that a sub-agent has for itself.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::hold::Hold;

/// Links of a sub-agent's own. They end with the sub-agent, with their folders; the session goes on.
pub(crate) struct Branch {
    hold: Arc<Hold>,
    pub(crate) number: u64,
    used: AtomicBool,
}

impl Branch {
    pub(crate) fn of(hold: &Arc<Hold>) -> Arc<Self> {
        let number = hold.hub.branches.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { hold: hold.clone(), number, used: AtomicBool::new(false) })
    }

    /// It is about to be used.
    pub(crate) fn enter(&self) -> u64 {
        self.used.store(true, Ordering::Relaxed);
        self.number
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if *self.used.get_mut() {
            let (links, id, number) = (self.hold.hub.links.clone(), self.hold.id, self.number);
            self.hold.hub.losses.forget_branch(id, number);
            self.hold.hub.home.handle().spawn(async move { links.end_part(id, number).await });
        }
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Branch({} of {})", self.number, self.hold.id)
    }
}
