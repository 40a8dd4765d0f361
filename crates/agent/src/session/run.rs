//! Runs: sessions that end with a future.

use std::sync::Arc;

use stayput_core::scope::InSession as _;

use super::{
    guard::SessionGuard,
    id_keeper::SessionIdKeeper,
    scope::{self, TaskScope},
};
use crate::Hub;

impl Hub {
    /// Runs a future in a scope. All its calls, however deep, belong to one session, which is opened by the first
    /// call and ends with the future, also on a panic or cancellation. Inside a scope of this hub, the future joins
    /// that scope.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        self.run_guarded(SessionGuard::ephemeral(self.inner.clone()), future).await
    }

    /// Runs a future as [`Hub::run`], and keeps the ids of its sessions on HTTP servers with `keeper`: they go on after the
    /// run, and the next run with what the keeper has continues them. Inside a scope of this hub, the future joins that
    /// scope, and the keeper is not used.
    pub async fn run_keeping<F: Future>(
        &self,
        keeper: Arc<dyn SessionIdKeeper>,
        future: F,
    ) -> F::Output {
        let guard = SessionGuard::ephemeral(self.inner.clone());
        guard.set_id_keeper(keeper);
        self.run_guarded(guard, future).await
    }

    async fn run_guarded<F: Future>(&self, guard: Arc<SessionGuard>, future: F) -> F::Output {
        if scope::current_of_hub(self.inner.id).is_some() {
            return future.await;
        }
        let scope = TaskScope::new(guard.clone()).into_scope();
        // Ends the run if this future is dropped half-way or panics, even if another task still has the scope.
        let root = RunRoot(guard.clone());
        let output = future.in_session(scope).await;
        // Ends the session of this run, not the one that is current by now (E04). If that fails, it expires.
        let _ = guard.finish().await;
        drop(root);
        output
    }
}

/// Root of a run. Dropping it ends the run.
#[derive(Debug)]
pub(crate) struct RunRoot(pub(crate) Arc<SessionGuard>);

impl Drop for RunRoot {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
