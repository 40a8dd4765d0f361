//! What follows a task: the session it belongs to, and what its sub-agents may use.

use std::{fmt, sync::Arc};

use stayput_core::scope::{self, Scope};

use crate::{branch::Branch, hold::Hold, seen::Seen};

/// How a sub-agent uses a server of its session.
#[derive(Clone, Debug)]
pub(crate) enum Share {
    /// On a link of its own.
    Own(Arc<Branch>),
    /// Not at all.
    Denied,
}

/// What was said of each server, by the name that the agent calls it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules(Vec<(Arc<str>, Share)>);

impl Rules {
    /// The innermost rule holds, but what was denied to an agent is denied to its sub-agents.
    pub(crate) fn set(&mut self, server: &str, share: Share) {
        if matches!(self.of(server), Some(Share::Denied)) {
            return;
        }
        self.0.retain(|(other, _)| **other != *server);
        self.0.push((server.into(), share));
    }

    pub(crate) fn of(&self, server: &str) -> Option<&Share> {
        self.0.iter().find(|(other, _)| **other == *server).map(|(_, share)| share)
    }

    /// What holds in another session, too: what is denied. Links of its own are of the one they are in.
    fn elsewhere(&self) -> Self {
        let denied = self.0.iter().filter(|(_, share)| matches!(share, Share::Denied));
        Self(denied.cloned().collect())
    }
}

/// The scope of a task.
pub(crate) struct Ambient {
    pub(crate) hold: Arc<Hold>,
    pub(crate) rules: Rules,
    pub(crate) seen: Arc<Seen>,
    /// The scope around it. It may be of another hub.
    pub(crate) outer: Option<Arc<Self>>,
}

impl Ambient {
    /// A scope of this session inside whatever is around.
    pub(crate) fn of(hold: Arc<Hold>) -> Self {
        let seen = hold.seen.clone();
        let around = of_hub(hold.hub_id());
        let rules = around.map_or_else(Rules::default, |around| match around.hold.id == hold.id {
            true => around.rules.clone(),
            false => around.rules.elsewhere(),
        });
        Self { hold, rules, seen, outer: innermost() }
    }

    /// As a scope of a task.
    pub(crate) fn scope(self) -> Scope {
        Scope::new(self.hold.id).carrying(Arc::new(self))
    }
}

impl fmt::Debug for Ambient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ambient({})", self.hold.id)
    }
}

/// The scope this code runs in, of whatever hub.
pub(crate) fn innermost() -> Option<Arc<Ambient>> {
    scope::current().and_then(|scope| scope.carried())
}

/// The innermost scope of this hub.
pub(crate) fn of_hub(hub: u64) -> Option<Arc<Ambient>> {
    let mut next = innermost();
    while let Some(ambient) = next {
        if ambient.hold.hub_id() == hub {
            return Some(ambient);
        }
        next = ambient.outer.clone();
    }
    None
}
