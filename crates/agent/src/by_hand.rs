//! For bindings to other languages, whose tasks have a context of their own: scopes that are entered and left by
//! hand, the runtime of a hub, and lists as servers wrote them.
//!
//! A [`Scope`] is a value that can be kept wherever that context is. Whatever is made
//! [`within`] it, or awaited [`in_session`](stayput_core::scope::InSession::in_session) of it, belongs to its session.
//!
//! ```no_run
//! use stayput::{Hub, by_hand};
//! # async fn example(hub: Hub) -> Result<(), stayput::Error> {
//! let run = by_hand::begin(&hub);
//! let scope = run.scope();
//! let call = by_hand::within(scope, || hub.call("browser", "browser_snapshot", ()));
//! call.await?;
//! run.finish().await?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use serde_json::value::RawValue;
pub use stayput_core::scope::{InSession, Scope, current, within};
use tokio::runtime::Handle;

pub use crate::lists::List;
use crate::{
    Error, Hub, Session,
    ambient::{self, Ambient},
    hold::Hold,
    run::{self, Root, Want},
};

/// A run that was begun by hand. Dropped before it is finished, it is over all the same, and nobody waits for
/// the end.
#[derive(Debug)]
#[must_use = "a run that is dropped is over"]
pub struct Run {
    scope: Scope,
    /// None if it joined another one, which ends with whoever began it.
    root: Option<Root>,
}

impl Run {
    /// The scope of all that belongs to it.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope.clone()
    }

    /// Whether it has a session of its own, which ends with it.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.root.is_some()
    }

    /// Ends it, and waits until nothing is left.
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

/// Begins a run. Within a scope of this hub it joins that one. See [`Hub::run`].
pub fn begin(hub: &Hub) -> Run {
    if let Some(scope) = current().filter(|_| ambient::of_hub(hub.inner.id).is_some()) {
        return Run { scope, root: None };
    }
    let hold = Hold::own(hub.inner.clone());
    Run { scope: Ambient::of(hold.clone()).scope(), root: Some(Root(hold)) }
}

/// The scope of a session, inside the one this is called within. See [`Session::run`].
#[must_use]
pub fn scope(session: &Session) -> Scope {
    Ambient::of(session.hold.clone()).scope()
}

/// The session that is current for a hub, if any is: of the scope this is called within, else the automatic one.
#[must_use]
pub fn session(hub: &Hub) -> Option<Session> {
    let ambient = hub.current().ok()?;
    Some(Session::new(hub, ambient.hold.clone()))
}

/// The scope of a sub-agent with a link of its own to a server, which ends with the last clone. None where
/// there is no scope around. See [`SubAgent::isolated`](crate::SubAgent::isolated).
#[must_use]
pub fn isolated(server: &str) -> Option<Scope> {
    run::scope(server, Want::Own)
}

/// The scope of a sub-agent without a server. None where there is no scope around. See
/// [`SubAgent::denied`](crate::SubAgent::denied).
#[must_use]
pub fn denied(server: &str) -> Option<Scope> {
    run::scope(server, Want::Nothing)
}

/// The runtime that a hub lives on.
#[must_use]
pub fn runtime(hub: &Hub) -> Handle {
    hub.inner.home.handle().clone()
}

/// A list of a server, each piece as the server wrote it: as the session sees it, else as [`Hub::tools`] does.
///
/// # Errors
/// As for [`Hub::tools`].
pub async fn list(
    hub: &Hub,
    session: Option<&Session>,
    server: &str,
    list: List,
) -> Result<Vec<Box<RawValue>>, Error> {
    let ambient: Option<Arc<Ambient>> = match session {
        Some(session) => Some(hub.ambient_of(session.hold.clone())),
        None => hub.current().ok(),
    };
    hub.list(ambient, server, list).await
}
