//! A session that ends with its call.

use std::{fmt, sync::Arc};

use stayput_core::Session;

use crate::state::AppState;

/// Ends a session when it is dropped, however the call went.
pub(crate) struct EphemeralSession {
    app: Arc<AppState>,
    session: Arc<Session>,
}

impl EphemeralSession {
    /// The session ends with this.
    pub(crate) fn of(app: &Arc<AppState>, session: &Arc<Session>) -> Self {
        Self { app: app.clone(), session: session.clone() }
    }
}

impl Drop for EphemeralSession {
    fn drop(&mut self) {
        let (app, session) = (self.app.clone(), self.session.clone());
        // Without a runtime everything ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // If this fails, it idles out.
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
