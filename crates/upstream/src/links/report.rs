//! What an operator can see of links.

use std::{fmt, sync::Arc, time::Duration};

use super::{Links, Standing};
use crate::{Link, LinkKey, Loss, OpenError};

/// One link, live or not, as an operator sees it.
#[derive(Clone)]
pub struct LinkReport {
    /// What it is found by.
    pub key: LinkKey,
    /// How it stands.
    pub standing: Standing,
    /// Why the state of the generation before is gone, if that is known.
    pub loss: Option<Arc<Loss>>,
    /// Why the last attempt to open one failed, if it did.
    pub failed: Option<Arc<OpenError>>,
    /// How long it has been there, if it is live.
    pub opened: Option<Duration>,
    pub(super) link: Option<Arc<Link>>,
}

impl LinkReport {
    /// The pid of the child process, if it is live and has one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.link.as_ref()?.pid()
    }

    /// As [`Link::memory`]: to be called where that may block.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.link.as_ref()?.memory()
    }

    /// As [`Link::last_words`]. They are for the operator alone.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.link.as_ref().map(|link| link.last_words()).unwrap_or_default()
    }
}

impl Links {
    /// What is known of all links with such a key, also of those that are over and whose place is still
    /// known. Nothing is waited for.
    #[must_use]
    pub fn report(&self, which: impl Fn(&LinkKey) -> bool) -> Vec<LinkReport> {
        let slots = self.0.table.all();
        slots.iter().filter(|slot| which(&slot.key)).map(|slot| slot.report()).collect()
    }
}

impl fmt::Debug for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkReport({:?}, {:?})", self.key, self.standing)
    }
}
