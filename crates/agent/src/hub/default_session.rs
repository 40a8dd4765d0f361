//! Default session of an agent: used by calls that belong to no other session.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use stayput_core::{Agent, Expiry, SessionId};
use stayput_sync::Mutex;

use super::KnownGenerations;

/// Options of [`Hub::enable_default_session`](crate::Hub::enable_default_session).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultSessionOptions {
    /// Time without use after which the session ends. Defaults to two hours.
    pub idle: Duration,
    /// Whether the session ends after `idle`; otherwise it never expires. Defaults to `true`.
    pub cleanup: bool,
    /// Prefix of the session's name. Defaults to `auto_`.
    pub prefix: String,
}

impl Default for DefaultSessionOptions {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), cleanup: true, prefix: "auto_".to_owned() }
    }
}

impl DefaultSessionOptions {
    pub(crate) fn expiry(&self) -> Expiry {
        if self.cleanup { Expiry::idle(self.idle) } else { Expiry::NEVER }
    }
}

/// Default session of one agent. It has no reference to the hub, because the hub owns it.
#[derive(Clone)]
pub(crate) struct DefaultSession {
    pub(crate) id: SessionId,
    pub(crate) generations: Arc<KnownGenerations>,
}

/// Default sessions by agent.
pub(crate) type DefaultSessions = Arc<Mutex<BTreeMap<Agent, DefaultSession>>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// R086.
    #[test]
    fn defaults_are_the_documented_ones() {
        let options = DefaultSessionOptions::default();
        assert_eq!(options.expiry(), Expiry::idle(Duration::from_secs(7_200)));
        assert_eq!((options.cleanup, options.prefix.as_str()), (true, "auto_"));
    }
}
