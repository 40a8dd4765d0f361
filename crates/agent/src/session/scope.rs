//! Scope of a task: the session it belongs to, and the servers that a sub-agent may use.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use stayput_core::scope::{self, Scope};

use super::guard::SessionGuard;
use crate::{Error, Hub, hub::KnownGenerations};

/// Access of a sub-agent to one server of its session. Without a rule it uses the link of its parent.
#[derive(Clone, Debug)]
pub(crate) enum ServerRule {
    /// Uses its own link.
    Isolated(Arc<Branch>),
    /// Has no access.
    Denied,
}

/// Rules by server, under the name that the agent uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerRules(Vec<(Arc<str>, ServerRule)>);

impl ServerRules {
    /// Sets the rule of a server. A denied server stays denied, so that no sub-agent can undo it.
    pub(crate) fn set(&mut self, server: &str, rule: ServerRule) {
        if matches!(self.get(server), Some(ServerRule::Denied)) {
            return;
        }
        self.0.retain(|(other, _)| **other != *server);
        self.0.push((server.into(), rule));
    }

    pub(crate) fn get(&self, server: &str) -> Option<&ServerRule> {
        self.0.iter().find(|(other, _)| **other == *server).map(|(_, rule)| rule)
    }

    /// Rules that also apply in another session: the denied servers. A branch belongs to one session only.
    fn denied_only(&self) -> Self {
        let denied = self.0.iter().filter(|(_, rule)| matches!(rule, ServerRule::Denied));
        Self(denied.cloned().collect())
    }
}

/// Links of an isolated sub-agent. They end with the sub-agent, with their folders; the session continues.
pub(crate) struct Branch {
    guard: Arc<SessionGuard>,
    number: u64,
    used: AtomicBool,
}

impl Branch {
    pub(crate) fn new(guard: &Arc<SessionGuard>) -> Arc<Self> {
        let number = guard.hub.next_branch.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { guard: guard.clone(), number, used: AtomicBool::new(false) })
    }

    /// Marks the branch as used, so that dropping it ends its links. Returns its number.
    pub(crate) fn mark_used(&self) -> u64 {
        self.used.store(true, Ordering::Relaxed);
        self.number
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if *self.used.get_mut() {
            let hub = &self.guard.hub;
            let (links, id, number) = (hub.links.clone(), self.guard.id, self.number);
            hub.losses.remove_branch(id, number);
            hub.thread.handle().spawn(async move { links.end_part(id, number).await });
        }
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Branch({} of {})", self.number, self.guard.id)
    }
}

/// Scope of a task.
pub(crate) struct TaskScope {
    pub(crate) guard: Arc<SessionGuard>,
    pub(crate) rules: ServerRules,
    pub(crate) generations: Arc<KnownGenerations>,
    /// Enclosing scope, possibly of another hub.
    pub(crate) outer: Option<Arc<Self>>,
}

impl TaskScope {
    /// Creates a scope of a session inside the current scope, whose rules it inherits.
    pub(crate) fn new(guard: Arc<SessionGuard>) -> Self {
        let generations = guard.generations.clone();
        let rules = match current_of_hub(guard.hub_id()) {
            Some(outer) if outer.guard.id == guard.id => outer.rules.clone(),
            Some(outer) => outer.rules.denied_only(),
            None => ServerRules::default(),
        };
        Self { guard, rules, generations, outer: current() }
    }

    pub(crate) fn into_scope(self) -> Scope {
        Scope::new(self.guard.id).with_extension(Arc::new(self))
    }
}

impl fmt::Debug for TaskScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskScope({})", self.guard.id)
    }
}

/// Returns the scope of the current task, of any hub.
pub(crate) fn current() -> Option<Arc<TaskScope>> {
    scope::current().and_then(|scope| scope.extension())
}

/// Returns the innermost scope of this hub.
pub(crate) fn current_of_hub(hub: u64) -> Option<Arc<TaskScope>> {
    let mut next = current();
    while let Some(scope) = next {
        if scope.guard.hub_id() == hub {
            return Some(scope);
        }
        next = scope.outer.clone();
    }
    None
}

impl Hub {
    /// Returns the scope of a call that names no session: that of the task, else that of the default session.
    pub(crate) fn current_scope(&self) -> Result<Arc<TaskScope>, Error> {
        if let Some(scope) = current_of_hub(self.inner.id) {
            return Ok(scope);
        }
        let guard = self.default_guard().ok_or(Error::NoSession)?;
        Ok(Arc::new(TaskScope::new(guard)))
    }

    /// Returns the scope of a call on a named session. Inside a scope of the same session, that scope's rules apply.
    pub(crate) fn scope_of(&self, guard: Arc<SessionGuard>) -> Arc<TaskScope> {
        match current_of_hub(self.inner.id) {
            Some(current) if current.guard.id == guard.id => current,
            _ => Arc::new(TaskScope::new(guard)),
        }
    }
}
