//! Session of a transport that serves one client, such as stdio.

use std::sync::Arc;

use stayput_core::{Agent, EndReason, Generation, Key, Owner, SessionId, SessionOpenError};
use tokio::sync::Mutex;

use super::{SessionGuard, SessionRegistry};

/// Transport and its session. The session is created by the first call that needs it, replaced when the client
/// initializes again, and ended with the transport.
#[derive(Debug)]
pub(crate) struct TransportSession {
    owner: Owner,
    /// Key of the session. A session with a key outlives the transport.
    key: Option<Key>,
    target: Mutex<Target>,
}

#[derive(Debug, Default)]
struct Target {
    session: Option<SessionId>,
    /// Whether this transport created the session and therefore ends it.
    owned: bool,
}

impl TransportSession {
    pub(crate) fn new(owner: Owner, key: Option<Key>) -> Arc<Self> {
        Arc::new(Self { owner, key, target: Mutex::default() })
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Opens the session, or creates it. The lock makes concurrent first calls share one session.
    pub(crate) async fn session(
        &self,
        registry: &Arc<SessionRegistry>,
    ) -> Result<SessionGuard, SessionOpenError> {
        let mut target = self.target.lock().await;
        let over = match target.session {
            None => None,
            Some(id) => match registry.cached_by_id(id) {
                Some(guard) => return Ok(guard),
                None => match registry.open_by_id(&self.owner, id).await {
                    Err(SessionOpenError::Ended(over)) => Some(over),
                    Err(SessionOpenError::Unknown) => None,
                    found => return found,
                },
            },
        };
        if let Some(key) = &self.key {
            return registry.find_or_create(&self.owner, &Agent::none(), key).await;
        }
        let lost = over.filter(|it| it.ended.is_none_or(|it| it.reason != EndReason::Closed));
        let generation = lost.map_or(Generation::default(), |it| it.generation.next());
        let created = registry.create_generation(&self.owner, generation).await?;
        *target = Target { session: Some(created.session().id()), owned: true };
        Ok(created)
    }

    /// Switches to another session, which the transport does not end.
    pub(crate) async fn switch_to(
        &self,
        registry: &Arc<SessionRegistry>,
        id: SessionId,
    ) -> Result<(), SessionOpenError> {
        self.end(registry).await?;
        *self.target.lock().await = Target { session: Some(id), owned: false };
        Ok(())
    }

    /// Ends the session that the transport created, unless its handle was used.
    pub(crate) async fn end(&self, registry: &SessionRegistry) -> Result<(), SessionOpenError> {
        let target = std::mem::take(&mut *self.target.lock().await);
        match target.session.filter(|_| target.owned) {
            Some(id) => registry.end_if_unnamed(id).await,
            None => Ok(()),
        }
    }
}
