//! Saves attachments in the record of a session: the data that is needed to resume its links.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use stayput_core::Session;
use stayput_upstream::{Attachment, AttachmentSink, KeepError};

use crate::hub::HubInner;

/// Attachment of one session's link to one server.
pub(crate) struct RecordAttachmentSink {
    /// Weak, because the hub owns the link.
    pub(crate) hub: Weak<HubInner>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<str>,
}

#[async_trait]
impl AttachmentSink for RecordAttachmentSink {
    async fn load(&self) -> Result<Option<Attachment>, KeepError> {
        let Some(hub) = self.hub.upgrade() else { return Ok(None) };
        let record = self.session.record();
        let Some(sealed) = record.attachments.get(&self.server) else { return Ok(None) };
        // An attachment that cannot be opened counts as none: the caller reports a loss.
        Ok(Attachment::open(sealed, &hub.seal).ok())
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

impl fmt::Debug for RecordAttachmentSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordAttachmentSink({} on {})", self.session.id(), self.server)
    }
}
