//! The current session of a task.
//!
//! A scope says which session the code that runs in it belongs to, without a parameter in any
//! signature between. It follows `.await`, `join!` and `select!`; a task of its own gets it by
//! [`spawn`]. A scope inside a scope shadows it and ends with its future: no change ever reaches the
//! outside or a sibling. A session that is named explicitly always wins, see [`resolve`].
//!
//! ```
//! use stayput_core::{SessionId, Timestamp, scope::{self, InSession}};
//!
//! async fn deep_inside() -> Option<SessionId> {
//!     scope::current().map(|scope| scope.session())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let id = SessionId::generate(Timestamp::from_millis(0));
//! assert_eq!(deep_inside().await, None);
//! assert_eq!(deep_inside().in_session(id).await, Some(id));
//! # }
//! ```

use std::{any::Any, fmt, future::Future, sync::Arc};

use tokio::task::{JoinHandle, futures::TaskLocalFuture};

use crate::{Session, SessionId};

tokio::task_local! {
    static CURRENT: Scope;
}

/// The current session of a task, and whatever else should follow the task with it.
#[derive(Clone)]
pub struct Scope {
    session: SessionId,
    carried: Option<Arc<dyn Any + Send + Sync>>,
}

impl Scope {
    /// The scope of a session.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self { session, carried: None }
    }

    /// Lets something follow the task beside the session.
    #[must_use]
    pub fn carrying<T: Any + Send + Sync>(self, thing: Arc<T>) -> Self {
        Self { carried: Some(thing), ..self }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// What follows the task beside the session, if it is a `T`.
    #[must_use]
    pub fn carried<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.carried.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.session)
    }
}

impl From<SessionId> for Scope {
    fn from(session: SessionId) -> Self {
        Self::new(session)
    }
}

impl From<&Session> for Scope {
    fn from(session: &Session) -> Self {
        Self::new(session.id())
    }
}

/// The scope this code runs in. `None` means that whoever asks is the root.
#[must_use]
pub fn current() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}

/// The session to use: the one that is named, else the current one.
#[must_use]
pub fn resolve(explicit: Option<SessionId>) -> Option<SessionId> {
    explicit.or_else(|| current().map(|scope| scope.session()))
}

/// Runs futures in a scope.
pub trait InSession: Future + Sized {
    /// This future, with `scope` as the current one while it runs.
    fn in_session(self, scope: impl Into<Scope>) -> TaskLocalFuture<Scope, Self> {
        CURRENT.scope(scope.into(), self)
    }
}

impl<F: Future> InSession for F {}

/// Runs a function in a scope: for what is polled by hand.
pub fn within<R>(scope: Scope, work: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(scope, work)
}

/// Spawns a task that runs in the current scope, if there is one.
///
/// # Panics
/// Outside a tokio runtime, as [`tokio::spawn`] does.
#[allow(clippy::disallowed_methods)] // The one place that spawns with the scope.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match current() {
        Some(scope) => tokio::spawn(future.in_session(scope)),
        None => tokio::spawn(future),
    }
}
