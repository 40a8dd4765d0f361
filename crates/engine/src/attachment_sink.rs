//! Stores attachments in the record of a session: the data that is needed to resume its links.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use stayput_core::{Session, Sessions};
use stayput_upstream::{Attachment, AttachmentSink, AttachmentStoreError, SealKey};

/// Attachment of one session's link to one server.
pub(crate) struct RecordSink {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) seal: SealKey,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<str>,
}

#[async_trait]
impl AttachmentSink for RecordSink {
    async fn load(&self) -> Result<Option<Attachment>, AttachmentStoreError> {
        let record = self.session.record();
        let Some(sealed) = record.attachments.get(&self.server) else { return Ok(None) };
        // An attachment that was sealed with an unknown key counts as absent: the server's session cannot be
        // resumed, and that is reported as a loss.
        let attachment = Attachment::open(sealed, &self.seal).ok();
        if let Some(attachment) = &attachment
            && Attachment::is_outdated(sealed, &self.seal)
        {
            // If this fails, the next link tries again: the older key still opens it.
            let _ = self.save(attachment).await;
        }
        Ok(attachment)
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), AttachmentStoreError> {
        let failed = |error: &dyn fmt::Display| AttachmentStoreError::new(error.to_string());
        let sealed = attachment.seal(&self.seal).map_err(|error| failed(&error))?;
        let change = self
            .sessions
            .change(&self.session, |record| record.attach(&self.server, sealed.clone()));
        change.await.map_err(|error| failed(&error))
    }
}

impl fmt::Debug for RecordSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordSink({} to {})", self.session.id(), self.server)
    }
}
