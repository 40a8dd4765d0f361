//! Interface for bindings to other languages, whose tasks have their own context: scopes that are entered and left
//! explicitly, the runtime of a hub, and lists as the servers wrote them.
//!
//! A [`Scope`] is a value that the binding stores in the context of its language. A call that is created
//! [`within`] it, or a future that runs [`in_session`](stayput_core::scope::InSession::in_session) of it, belongs to
//! its session.
//!
//! ```no_run
//! use stayput::{Hub, ffi};
//! # async fn example(hub: Hub) -> Result<(), stayput::Error> {
//! let run = ffi::begin_run(&hub, None);
//! let scope = run.scope();
//! let call = ffi::within(scope, || hub.call("browser", "browser_snapshot", ()));
//! call.await?;
//! run.finish().await?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use serde_json::value::RawValue;
pub use stayput_core::scope::{InSession, Scope, current, within};
use tokio::runtime::Handle;

pub use crate::session::ListKind;
use crate::{
    Builder, Error, Hub, Session, SessionIdKeeper,
    session::{
        Access, RunRoot, SessionGuard, TaskContext, TaskScope, current_of_hub, sub_agent_scope,
    },
};

/// Run that was begun explicitly. Dropping it before [`Run::finish`] also ends it, without waiting.
#[derive(Debug)]
#[must_use = "dropping a run ends it"]
pub struct Run {
    scope: Scope,
    /// `None` if it joined another run.
    root: Option<RunRoot>,
}

impl Run {
    /// Scope of the run.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope.clone()
    }

    /// Whether it has its own session, which ends with it.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.root.is_some()
    }

    /// Ends the run, and waits until its links are closed. Does nothing if it joined another run.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn finish(self) -> Result<(), Error> {
        match &self.root {
            Some(root) => root.0.finish().await,
            None => Ok(()),
        }
    }
}

/// Begins a run, or joins the one of the current scope. See [`Hub::run`] and, with a keeper, [`Hub::run_keeping`].
pub fn begin_run(hub: &Hub, keeper: Option<Arc<dyn SessionIdKeeper>>) -> Run {
    if let Some(scope) = current().filter(|_| current_of_hub(hub.inner.id).is_some()) {
        return Run { scope, root: None };
    }
    let guard = SessionGuard::ephemeral(hub.inner.clone());
    if let Some(keeper) = keeper {
        guard.set_id_keeper(keeper);
    }
    Run { scope: TaskScope::new(guard.clone()).into_scope(), root: Some(RunRoot(guard)) }
}

/// Creates a scope of a session inside the current scope. See [`Session::run`].
#[must_use]
pub fn session_scope(session: &Session) -> Scope {
    TaskScope::new(session.guard.clone()).into_scope()
}

/// Returns the current session of a hub: that of the current scope, else the default session.
#[must_use]
pub fn current_session(hub: &Hub) -> Option<Session> {
    let scope = hub.current_scope().ok()?;
    Some(Session::new(hub, scope.guard.clone()))
}

/// Refuses a server that does not exist. A hub over a gateway asks the gateway.
///
/// # Errors
/// If there is no such server, or the gateway cannot be reached.
pub async fn confirm_server(hub: &Hub, server: &str) -> Result<(), Error> {
    let confirming = hub.clone();
    let name = server.to_owned();
    hub.inner.thread.in_runtime(async move { confirming.confirm_server(&name).await }).await
}

/// Creates the scope of a sub-agent with its own links to a server of this hub, which end with the last clone of the
/// scope. See [`SubAgent::isolated`](crate::SubAgent::isolated).
///
/// # Errors
/// If there is no such server.
pub fn isolated_scope(hub: &Hub, server: &str) -> Result<Scope, Error> {
    hub.check_server_exists(server)?;
    Ok(sub_agent_scope(Some(hub.inner.id), server, Access::Isolated))
}

/// Creates the scope of a sub-agent without access to a server of this hub. See
/// [`SubAgent::denied`](crate::SubAgent::denied).
///
/// # Errors
/// If there is no such server.
pub fn denied_scope(hub: &Hub, server: &str) -> Result<Scope, Error> {
    hub.check_server_exists(server)?;
    Ok(sub_agent_scope(Some(hub.inner.id), server, Access::Denied))
}

/// Creates the scope of a sub-agent that uses the links of its caller to a server of this hub. See
/// [`SubAgent::inherited`](crate::SubAgent::inherited).
///
/// # Errors
/// If there is no such server.
pub fn inherited_scope(hub: &Hub, server: &str) -> Result<Scope, Error> {
    hub.check_server_exists(server)?;
    Ok(sub_agent_scope(Some(hub.inner.id), server, Access::Inherited))
}

/// Creates the scope of a call of bound work, such as a tool that was created inside a scope: it has the session of
/// `bound`, and the rules of both `bound` and the current task. So a sub-agent that is given such a tool stays
/// isolated or denied.
#[must_use]
pub fn bound_scope(bound: &Scope) -> Scope {
    TaskContext::bound_to(bound).map_or_else(|| bound.clone(), TaskContext::into_scope)
}

/// Names of the servers of a hub that the current task may use.
///
/// # Errors
/// If a rule of the sub-agent names a server that does not exist.
pub fn allowed_servers(hub: &Hub) -> Result<Vec<String>, Error> {
    let mut allowed = hub.server_names();
    for name in hub.server_names() {
        match hub.check_access(&name) {
            Err(Error::ServerDenied { .. }) => allowed.retain(|other| *other != name),
            checked => checked?,
        }
    }
    Ok(allowed)
}

/// Opens a hub as [`Builder::open`], and blocks until its store is open.
///
/// # Errors
/// The same as for [`Builder::open`].
pub fn open_blocking(builder: Builder) -> Result<Hub, Error> {
    crate::hub::open_blocking(builder)
}

/// Runtime of the hub's thread.
#[must_use]
pub fn runtime(hub: &Hub) -> Handle {
    hub.inner.thread.handle().clone()
}

/// Lists what a server has, each item as the server wrote it: as the session sees it, or else as [`Hub::tools`].
///
/// # Errors
/// The same as for [`Hub::tools`].
pub async fn list(
    hub: &Hub,
    session: Option<&Session>,
    server: &str,
    kind: ListKind,
) -> Result<Vec<Box<RawValue>>, Error> {
    let scope: Option<Arc<TaskScope>> = match session {
        Some(session) => Some(hub.scope_of(session.guard.clone())?),
        None => hub.current_scope().ok(),
    };
    hub.list(scope, server, kind).await
}
