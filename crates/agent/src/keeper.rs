//! Keeps in a session's record what is needed to come back to its servers.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use stayput_core::Session;
use stayput_upstream::{Attachment, KeepError, Keeper};

use crate::hub::Inner;

/// The keeper of one session's link to one server.
pub(crate) struct RecordKeeper {
    /// Weak: a link must not keep its hub.
    pub(crate) hub: Weak<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<str>,
}

#[async_trait]
impl Keeper for RecordKeeper {
    async fn load(&self) -> Result<Option<Attachment>, KeepError> {
        let Some(hub) = self.hub.upgrade() else { return Ok(None) };
        let record = self.session.record();
        let Some(kept) = record.attachments.get(&self.server) else { return Ok(None) };
        // What cannot be read is as good as nothing: that is told as a loss.
        Ok(Attachment::open(kept, &hub.seal).ok())
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), KeepError> {
        let Some(hub) = self.hub.upgrade() else { return Ok(()) };
        let failed = |error: &dyn fmt::Display| KeepError::new(error.to_string());
        let sealed = attachment.seal(&hub.seal).map_err(|error| failed(&error))?;
        let change = hub
            .sessions
            .change(&self.session, |record| record.attach(&self.server, sealed.clone()));
        change.await.map_err(|error| failed(&error))
    }
}

impl fmt::Debug for RecordKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKeeper({} on {})", self.session.id(), self.server)
    }
}
