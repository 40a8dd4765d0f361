//! The session of a client that has a line of its own, such as standard input and output.

use std::sync::Arc;

use stayput_core::{Agent, EndReason, Generation, Key, OpenError, Owner, SessionId};
use tokio::sync::Mutex;

use crate::shared::{Shared, Use};

/// A line and the session it leads to. Made by the first call that wants it, replaced when the client
/// shakes hands again, ended with the line.
#[derive(Debug)]
pub(crate) struct Line {
    owner: Owner,
    /// Where the line leads is kept under this name, and outlives it.
    key: Option<Key>,
    leads: Mutex<Leads>,
}

#[derive(Debug, Default)]
struct Leads {
    to: Option<SessionId>,
    /// Whether this line made it: then it also ends it.
    made: bool,
}

impl Line {
    pub(crate) fn new(owner: Owner, key: Option<Key>) -> Arc<Self> {
        Arc::new(Self { owner, key, leads: Mutex::default() })
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The session, made if there is none. The lock makes many first calls at once make one.
    pub(crate) async fn session(&self, shared: &Arc<Shared>) -> Result<Use, OpenError> {
        let mut leads = self.leads.lock().await;
        let over = match leads.to {
            None => None,
            Some(id) => match shared.known(id) {
                Some(used) => return Ok(used),
                None => match shared.by_id(&self.owner, id).await {
                    Err(OpenError::Over(over)) => Some(over),
                    Err(OpenError::Unknown) => None,
                    found => return found,
                },
            },
        };
        if let Some(key) = &self.key {
            return shared.keyed(&self.owner, &Agent::none(), key).await;
        }
        let lost = over.filter(|it| it.ended.is_none_or(|it| it.reason != EndReason::Closed));
        let generation = lost.map_or(Generation::default(), |it| it.generation.next());
        let made = shared.make_after(&self.owner, generation).await?;
        *leads = Leads { to: Some(made.held().id()), made: true };
        Ok(made)
    }

    /// Lets the line lead to another session, which it does not end.
    pub(crate) async fn lead(&self, shared: &Arc<Shared>, id: SessionId) -> Result<(), OpenError> {
        self.end(shared).await?;
        *self.leads.lock().await = Leads { to: Some(id), made: false };
        Ok(())
    }

    /// Ends the session that the line made, if it made one and nobody else has a handle for it.
    pub(crate) async fn end(&self, shared: &Shared) -> Result<(), OpenError> {
        let leads = std::mem::take(&mut *self.leads.lock().await);
        match leads.to.filter(|_| leads.made) {
            Some(id) => shared.end_unnamed(id).await,
            None => Ok(()),
        }
    }
}
