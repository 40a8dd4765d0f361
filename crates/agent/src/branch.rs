//! The part of a session that a sub-agent has for itself.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use stayput_upstream::{LossReason, Place, Server};

use crate::hold::Hold;

/// Links of a sub-agent's own. They end with the sub-agent; the session goes on.
pub(crate) struct Branch {
    hold: Arc<Hold>,
    pub(crate) number: u64,
    used: Mutex<Vec<Server>>,
}

impl Branch {
    pub(crate) fn of(hold: &Arc<Hold>) -> Arc<Self> {
        let number = hold.hub.branches.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { hold: hold.clone(), number, used: Mutex::default() })
    }

    /// A server that is about to be used.
    pub(crate) fn uses(&self, server: &Server) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.iter().any(|other| other.configuration() == server.configuration()) {
            used.push(server.clone());
        }
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        let used = std::mem::take(self.used.get_mut().unwrap_or_else(PoisonError::into_inner));
        if used.is_empty() {
            return;
        }
        let (hub, id, number) = (self.hold.hub.clone(), self.hold.id, self.number);
        self.hold.hub.home.handle().spawn(async move {
            let place = Place::new(hub.owner.clone(), id).branch(number);
            for server in used {
                hub.links.restart(&server, &place, LossReason::Ended).await;
            }
        });
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Branch({} of {})", self.number, self.hold.id)
    }
}
