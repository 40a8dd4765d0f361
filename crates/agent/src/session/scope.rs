//! Scope of a task: the session it belongs to, and the access rules of the sub-agent it runs in.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use stayput_core::scope::{self, InSession as _, Scope};

use super::{access::AccessRules, guard::SessionGuard};
use crate::{Error, Hub, hub::KnownGenerations};

/// Rules outside any sub-agent, shared so that a call allocates nothing for them.
static NO_RULES: LazyLock<Arc<AccessRules>> = LazyLock::new(Arc::default);

/// Returns a future that belongs to the session of the current task wherever it runs, as [`spawn`](crate::spawn) does:
/// for a `JoinSet`, or for the tasks of another executor.
///
/// ```
/// # async fn example(hub: &stayput::Hub) {
/// let mut set = tokio::task::JoinSet::new();
/// hub.run(async {
///     let hub = hub.clone();
///     set.spawn(stayput::scoped(async move { hub.call("browser", "browser_snapshot", ()).await }));
///     set.join_all().await;
/// })
/// .await;
/// # }
/// ```
pub fn scoped<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let scope = scope::current();
    async move {
        match scope {
            Some(scope) => future.in_session(scope).await,
            None => future.await,
        }
    }
}

/// Session of a task, with the rules for its calls.
pub(crate) struct TaskScope {
    pub(crate) guard: Arc<SessionGuard>,
    pub(crate) rules: Arc<AccessRules>,
    pub(crate) generations: Arc<KnownGenerations>,
}

/// Extension of a task's scope.
pub(crate) struct TaskContext {
    /// `None` for a sub-agent that was started outside any session.
    scope: Option<Arc<TaskScope>>,
    rules: Arc<AccessRules>,
    /// Enclosing context, possibly of another hub.
    outer: Option<Arc<Self>>,
}

impl TaskScope {
    /// Creates a scope of a session inside the current context, whose rules it inherits.
    pub(crate) fn new(guard: Arc<SessionGuard>) -> Self {
        let (rules, generations) = (current_rules(), guard.generations.clone());
        Self { guard, rules, generations }
    }

    pub(crate) fn into_scope(self) -> Scope {
        let rules = self.rules.clone();
        TaskContext { scope: Some(Arc::new(self)), rules, outer: current() }.into_scope()
    }

    /// Returns the same scope with the rules of the current context.
    fn with_rules(self: &Arc<Self>, rules: &Arc<AccessRules>) -> Arc<Self> {
        if Arc::ptr_eq(&self.rules, rules) {
            return self.clone();
        }
        let (guard, generations) = (self.guard.clone(), self.generations.clone());
        Arc::new(Self { guard, rules: rules.clone(), generations })
    }
}

impl TaskContext {
    /// Creates the context of a sub-agent inside the current one. Losses are reported to it separately.
    pub(crate) fn of_sub_agent(change: impl FnOnce(&AccessRules) -> AccessRules) -> Self {
        let outer = current();
        let rules = Arc::new(change(&current_rules()));
        let scope = outer.as_ref().and_then(|outer| outer.scope.as_ref());
        let scope = scope.map(|scope| {
            let (guard, rules) = (scope.guard.clone(), rules.clone());
            Arc::new(TaskScope { guard, rules, generations: Arc::new(scope.generations.fork()) })
        });
        Self { scope, rules, outer: outer.and_then(|outer| outer.outer.clone()) }
    }

    /// Creates the context of work that is bound to a scope, and is called by the current task: it has the session of
    /// the former, and the rules of both.
    pub(crate) fn bound_to(bound: &Scope) -> Option<Self> {
        let bound: Arc<Self> = bound.extension()?;
        let rules = Arc::new(bound.rules.joined(&current_rules()));
        let scope = bound.scope.as_ref().map(|scope| scope.with_rules(&rules));
        Some(Self { scope, rules, outer: bound.outer.clone() })
    }

    pub(crate) fn into_scope(self) -> Scope {
        let scope = match &self.scope {
            Some(scope) => Scope::new(scope.guard.id),
            None => Scope::without_session(),
        };
        scope.with_extension(Arc::new(self))
    }
}

impl fmt::Debug for TaskScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskScope({})", self.guard.id)
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskContext({:?}, {:?})", self.scope, self.rules)
    }
}

/// Returns the context of the current task, of any hub.
fn current() -> Option<Arc<TaskContext>> {
    scope::current().and_then(|scope| scope.extension())
}

/// Returns the rules of the current task. They are those of the innermost context, whichever hub it belongs to.
pub(crate) fn current_rules() -> Arc<AccessRules> {
    current().map_or_else(|| NO_RULES.clone(), |context| context.rules.clone())
}

/// Returns the innermost scope of this hub, with the rules of the current task.
pub(crate) fn current_of_hub(hub: u64) -> Option<Arc<TaskScope>> {
    let current = current()?;
    enclosing(&current)
        .find(|scope| scope.guard.hub_id() == hub)
        .map(|scope| scope.with_rules(&current.rules))
}

/// Whether a hub around the current task has this server.
pub(crate) fn is_known_around(server: &str) -> bool {
    let current = current();
    current.is_some_and(|it| enclosing(&it).any(|scope| scope.guard.hub.servers.contains(server)))
}

/// Scopes of a context and of those around it, innermost first.
fn enclosing(context: &TaskContext) -> impl Iterator<Item = &Arc<TaskScope>> {
    std::iter::successors(Some(context), |context| context.outer.as_deref())
        .filter_map(|context| context.scope.as_ref())
}

impl Hub {
    /// Returns the scope of a call that names no session: that of the task, else that of the default session.
    pub(crate) fn current_scope(&self) -> Result<Arc<TaskScope>, Error> {
        current_rules().check(self)?;
        if let Some(scope) = current_of_hub(self.inner.id) {
            return Ok(scope);
        }
        let guard = self.default_guard().ok_or(Error::NoSession)?;
        Ok(Arc::new(TaskScope::new(guard)))
    }

    /// Returns the scope of a call on a named session, with the rules of the current task.
    pub(crate) fn scope_of(&self, guard: Arc<SessionGuard>) -> Result<Arc<TaskScope>, Error> {
        current_rules().check(self)?;
        Ok(match current_of_hub(self.inner.id) {
            Some(current) if current.guard.id == guard.id => current,
            _ => Arc::new(TaskScope::new(guard)),
        })
    }

    /// Refuses a server that is denied to the sub-agent of the current task.
    pub(crate) fn check_access(&self, server: &str) -> Result<(), Error> {
        let rules = current_rules();
        rules.check(self)?;
        match rules.get(self.inner.id, server) {
            Some(super::access::ServerRule::Denied) => {
                Err(Error::ServerDenied { server: server.to_owned() })
            }
            _ => Ok(()),
        }
    }
}
