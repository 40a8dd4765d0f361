//! Access rules of sub-agents: the servers that are denied to them, or to which they have their own links.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_core::SessionId;
use stayput_sync::Mutex;

use super::guard::SessionGuard;
use crate::{
    Error, Hub,
    hub::{HubInner, KnownGenerations},
};

/// Access of a sub-agent to one server. Without a rule it uses the link of its parent.
#[derive(Clone, Debug)]
pub(crate) enum ServerRule {
    /// Uses its own links, one in each session that it uses.
    Isolated(Arc<Branches>),
    /// Has no access.
    Denied,
}

/// Rule for the servers of one name.
#[derive(Clone, Debug)]
struct NamedRule {
    /// Hub whose server is meant. `None` means each hub.
    hub: Option<u64>,
    server: Arc<str>,
    /// Whether a hub around the sub-agent has the server. If not, the hub of each call must have it.
    is_known: bool,
    rule: ServerRule,
}

/// Rules of a sub-agent and of all sub-agents around it. They hold in every session, because a rule that ends where
/// the sub-agent opens another session would protect nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessRules(Vec<NamedRule>);

impl AccessRules {
    /// Returns the rules with one more.
    pub(crate) fn with(
        &self,
        hub: Option<u64>,
        (server, is_known): (&str, bool),
        rule: ServerRule,
    ) -> Self {
        let mut rules = self.0.clone();
        rules.push(NamedRule { hub, server: server.into(), is_known, rule });
        Self(rules)
    }

    /// Returns these rules and those of the caller, which come last.
    pub(crate) fn joined(&self, callers: &Self) -> Self {
        Self(self.0.iter().chain(&callers.0).cloned().collect())
    }

    /// Returns the rule for a server of a hub. A denied server stays denied, so that no sub-agent can undo it;
    /// otherwise the innermost rule holds.
    pub(crate) fn get(&self, hub: u64, server: &str) -> Option<&ServerRule> {
        let meant = |it: &&NamedRule| it.hub.is_none_or(|id| id == hub) && *it.server == *server;
        let mut rules = self.0.iter().filter(meant).map(|it| &it.rule);
        let last = rules.clone().next_back();
        rules.find(|rule| matches!(rule, ServerRule::Denied)).or(last)
    }

    /// Refuses calls on a hub while a rule names a server that does not exist: a typing error must not grant access.
    pub(crate) fn check(&self, hub: &Hub) -> Result<(), Error> {
        for rule in self.concerning(hub).filter(|it| !it.is_known) {
            hub.check_server_exists(&rule.server)?;
        }
        Ok(())
    }

    /// Asks the gateway, if the hub is connected to one, whether the servers of all rules exist.
    pub(crate) async fn confirm(&self, hub: &Hub) -> Result<(), Error> {
        if hub.inner.gateway.is_some() {
            for rule in self.concerning(hub) {
                hub.confirm_server(&rule.server).await?;
            }
        }
        Ok(())
    }

    fn concerning<'a>(&'a self, hub: &Hub) -> impl Iterator<Item = &'a NamedRule> + use<'a> {
        let id = hub.inner.id;
        self.0.iter().filter(move |it| it.hub.is_none_or(|of| of == id))
    }

    /// Returns the branch of a session that the sub-agent uses on a server: 0 is the link of the session itself.
    pub(crate) fn branch(
        &self,
        server: &str,
        guard: &SessionGuard,
        generations: &Arc<KnownGenerations>,
    ) -> Result<u64, Error> {
        match self.get(guard.hub_id(), server) {
            None => Ok(0),
            Some(ServerRule::Isolated(branches)) => Ok(branches.number_in(guard, generations)),
            Some(ServerRule::Denied) => Err(Error::ServerDenied { server: server.to_owned() }),
        }
    }
}

/// Links of an isolated sub-agent, by session. They end with the sub-agent, with their folders; the sessions continue.
#[derive(Debug, Default)]
pub(crate) struct Branches(Mutex<Vec<Branch>>);

impl Branches {
    /// Returns the number of the branch in a session, and creates the branch at its first use.
    fn number_in(&self, guard: &SessionGuard, generations: &Arc<KnownGenerations>) -> u64 {
        let mut all = self.0.lock();
        let known = all.iter().find(|it| it.session == guard.id && it.hub.id == guard.hub_id());
        if let Some(known) = known {
            return known.number;
        }
        let number = next_number(&guard.hub.next_branch);
        all.push(Branch {
            hub: guard.hub.clone(),
            session: guard.id,
            number,
            generations: Arc::downgrade(generations),
        });
        number
    }
}

fn next_number(next: &AtomicU64) -> u64 {
    next.fetch_add(1, Ordering::Relaxed)
}

/// Links of an isolated sub-agent in one session.
struct Branch {
    hub: Arc<HubInner>,
    session: SessionId,
    number: u64,
    /// Generations in which the losses of its links are noted.
    generations: Weak<KnownGenerations>,
}

impl Drop for Branch {
    fn drop(&mut self) {
        let (links, session, number) = (self.hub.links.clone(), self.session, self.number);
        self.hub.losses.remove_branch(session, number);
        if let Some(generations) = self.generations.upgrade() {
            generations.remove_branch(number);
        }
        if self.hub.thread.is_own_process() {
            self.hub.thread.handle().spawn(async move { links.end_part(session, number).await });
        }
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Branch({} of {})", self.number, self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_server_stays_denied() {
        let isolated = || ServerRule::Isolated(Arc::default());
        let rules = AccessRules::default().with(None, ("a", true), ServerRule::Denied);
        let rules =
            rules.with(None, ("a", true), isolated()).with(Some(1), ("b", true), isolated());
        assert!(matches!(rules.get(1, "a"), Some(ServerRule::Denied)));
        assert!(matches!(rules.get(1, "b"), Some(ServerRule::Isolated(_))));
        assert!(rules.get(2, "b").is_none(), "a rule of another hub");
        let joined = AccessRules::default().with(None, ("b", true), isolated()).joined(&rules);
        assert!(matches!(joined.get(2, "a"), Some(ServerRule::Denied)));
    }
}
