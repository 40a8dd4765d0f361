//! The session of a client that has a line of its own, such as standard input and output.

use std::sync::Arc;

use stayput_core::{Agent, EndReason, Generation, Key, OpenError, Owner, SessionId};
use tokio::sync::Mutex;

use super::{SessionGuard, SessionRegistry};

/// A line and the session it target to. Made by the first call that wants it, replaced when the client
/// shakes hands again, ended with the line.
#[derive(Debug)]
pub(crate) struct TransportSession {
    owner: Owner,
    /// Where the line target is kept under this name, and outlives it.
    key: Option<Key>,
    target: Mutex<Target>,
}

#[derive(Debug, Default)]
struct Target {
    session: Option<SessionId>,
    /// Whether this line made it: then it also ends it.
    owned: bool,
}

impl TransportSession {
    pub(crate) fn new(owner: Owner, key: Option<Key>) -> Arc<Self> {
        Arc::new(Self { owner, key, target: Mutex::default() })
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The session, made if there is none. The lock makes many first calls at once make one.
    pub(crate) async fn session(
        &self,
        registry: &Arc<SessionRegistry>,
    ) -> Result<SessionGuard, OpenError> {
        let mut target = self.target.lock().await;
        let over = match target.session {
            None => None,
            Some(id) => match registry.cached_by_id(id) {
                Some(guard) => return Ok(guard),
                None => match registry.open_by_id(&self.owner, id).await {
                    Err(OpenError::Over(over)) => Some(over),
                    Err(OpenError::Unknown) => None,
                    found => return found,
                },
            },
        };
        if let Some(key) = &self.key {
            return registry.find_or_create(&self.owner, &Agent::none(), key).await;
        }
        let lost = over.filter(|it| it.ended.is_none_or(|it| it.reason != EndReason::Closed));
        let generation = lost.map_or(Generation::default(), |it| it.generation.next());
        let made = registry.create_generation(&self.owner, generation).await?;
        *target = Target { session: Some(made.session().id()), owned: true };
        Ok(made)
    }

    /// Lets the line lead to another session, which it does not end.
    pub(crate) async fn switch_to(
        &self,
        registry: &Arc<SessionRegistry>,
        id: SessionId,
    ) -> Result<(), OpenError> {
        self.end(registry).await?;
        *self.target.lock().await = Target { session: Some(id), owned: false };
        Ok(())
    }

    /// Ends the session that the line made, if it made one and nobody else has a handle for it.
    pub(crate) async fn end(&self, registry: &SessionRegistry) -> Result<(), OpenError> {
        let target = std::mem::take(&mut *self.target.lock().await);
        match target.session.filter(|_| target.owned) {
            Some(id) => registry.end_if_unnamed(id).await,
            None => Ok(()),
        }
    }
}
