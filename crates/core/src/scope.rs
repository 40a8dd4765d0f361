//! Current session of a task.
//!
//! A scope sets the session of the code that runs in it, without a parameter in every signature. It
//! follows `.await`, `join!` and `select!`; a new task inherits it through [`spawn`]. A nested
//! scope shadows the outer one and ends with its future: it never changes the outer scope or a
//! sibling.
//!
//! ```
//! use stayput_core::{SessionId, Timestamp, scope::{self, InSession}};
//!
//! async fn deep_inside() -> Option<SessionId> {
//!     scope::current().and_then(|scope| scope.session())
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

/// Current session of a task, if it has one, with an optional extension that follows the task.
#[derive(Clone, Default)]
pub struct Scope {
    session: Option<SessionId>,
    extension: Option<Arc<dyn Any + Send + Sync>>,
}

impl Scope {
    /// Builds the scope of a session.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self { session: Some(session), extension: None }
    }

    /// Builds a scope without a session, for an extension that must follow the task all the same.
    #[must_use]
    pub fn without_session() -> Self {
        Self::default()
    }

    /// Attaches a value that follows the task together with the session.
    #[must_use]
    pub fn with_extension<T: Any + Send + Sync>(self, value: Arc<T>) -> Self {
        Self { extension: Some(value), ..self }
    }

    /// Returns the session, if the scope has one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the attached value if it is a `T`.
    #[must_use]
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.extension.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.session {
            Some(session) => write!(f, "Scope({session})"),
            None => f.write_str("Scope(no session)"),
        }
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

/// Returns the current scope. `None` means that the code runs in no scope.
#[must_use]
pub fn current() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}

/// Extension trait that runs futures in a scope.
pub trait InSession: Future + Sized {
    /// Runs this future with `scope` as the current one.
    fn in_session(self, scope: impl Into<Scope>) -> TaskLocalFuture<Scope, Self> {
        CURRENT.scope(scope.into(), self)
    }
}

impl<F: Future> InSession for F {}

/// Runs a function in a scope, for futures that are polled by hand.
pub fn within<R>(scope: Scope, work: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(scope, work)
}

/// Spawns a task that runs in the current scope, if there is one.
///
/// # Panics
/// Outside a tokio runtime, as [`tokio::spawn`] does.
#[allow(clippy::disallowed_methods)] // The only place that spawns with the scope.
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
