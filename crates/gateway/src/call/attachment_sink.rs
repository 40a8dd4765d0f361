//! Keeps in a session's record what is needed to come back to its servers.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use stayput_core::Session;
use stayput_upstream::{Attachment, KeepError, Keeper};

use crate::state::AppState;

/// The keeper of one session's link to one server.
pub(crate) struct RecordKeeper {
    pub(crate) app: Arc<AppState>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<str>,
}

#[async_trait]
impl Keeper for RecordKeeper {
    async fn load(&self) -> Result<Option<Attachment>, KeepError> {
        let record = self.session.record();
        let Some(kept) = record.attachments.get(&self.server) else { return Ok(None) };
        // What cannot be read, because the key is another one, is as good as nothing: the server's
        // session cannot be gone on with, and that is told as a loss.
        let attachment = Attachment::open(kept, &self.app.seal).ok();
        if let Some(attachment) = &attachment
            && Attachment::is_outdated(kept, &self.app.seal)
        {
            // If this fails it is tried again with the next link: the older key still opens it.
            let _ = self.save(attachment).await;
        }
        Ok(attachment)
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), KeepError> {
        let failed = |error: &dyn fmt::Display| KeepError::new(error.to_string());
        let sealed = attachment.seal(&self.app.seal).map_err(|error| failed(&error))?;
        let change = self.app.sessions.change(&self.session, |record| {
            record.attach(&self.server, sealed.clone());
        });
        change.await.map_err(|error| failed(&error))
    }
}

impl fmt::Debug for RecordKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKeeper({} to {})", self.session.id(), self.server)
    }
}
