//! Reports about links for the operator.

use std::{fmt, sync::Arc, time::Duration};

use stayput_process::ProcessInfo;

use super::{LinkState, Links};
use crate::{Link, LinkKey, LinkOpenError, Loss};

/// Report about one link, live or not.
#[derive(Clone)]
pub struct LinkReport {
    /// Key of the link in the pool.
    pub key: LinkKey,
    /// State of the link.
    pub state: LinkState,
    /// Reason why the state of the previous generation is gone, if known.
    pub loss: Option<Arc<Loss>>,
    /// Error of the last attempt to open a link, if it failed.
    pub failed: Option<Arc<LinkOpenError>>,
    /// Age of the link, if it is live.
    pub opened: Option<Duration>,
    pub(super) link: Option<Arc<Link>>,
}

impl LinkReport {
    /// Pid of the child process, if the link is live and has one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.link.as_ref()?.pid()
    }

    /// Whether the link is live, and no other process could continue behind the server, see [`Link::can_move`].
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.can_move())
    }

    /// Same as [`Link::memory`]: it may block.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.link.as_ref()?.memory()
    }

    /// Same as [`Link::processes`]: it may block.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.link.as_ref().map(|link| link.processes()).unwrap_or_default()
    }

    /// Same as [`Link::stderr_tail`]. The text is for the operator only.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.link.as_ref().map(|link| link.stderr_tail()).unwrap_or_default()
    }
}

impl Links {
    /// Reports all links whose key matches, including ended ones whose pool entry still exists. Never waits.
    #[must_use]
    pub fn report(&self, which: impl Fn(&LinkKey) -> bool) -> Vec<LinkReport> {
        let entries = self.0.table.all();
        entries.iter().filter(|entry| which(&entry.key)).map(|entry| entry.report()).collect()
    }
}

impl fmt::Debug for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkReport({:?}, {:?})", self.key, self.state)
    }
}
