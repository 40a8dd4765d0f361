//! Session that ends with its call.

use std::{fmt, sync::Arc};

use stayput_core::Session;

use crate::state::AppState;

/// Guard that ends a session when it is dropped, whatever the outcome of the call.
pub(crate) struct EphemeralSession {
    app: Arc<AppState>,
    session: Arc<Session>,
}

impl EphemeralSession {
    /// Creates the guard of a session.
    pub(super) fn new(app: &Arc<AppState>, session: &Arc<Session>) -> Self {
        Self { app: app.clone(), session: session.clone() }
    }
}

impl Drop for EphemeralSession {
    fn drop(&mut self) {
        let (app, session) = (self.app.clone(), self.session.clone());
        // Without a runtime the process is exiting, and everything ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // If this fails, the session expires after its idle limit.
            let _ = app.end(&session, None).await;
            let _ = app.links.end(session.id()).await;
        });
    }
}

impl fmt::Debug for EphemeralSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EphemeralSession({})", self.session.id())
    }
}
